"""What a provider's answer means when it is no answer: the kind of failure, and how long to wait.

By code first, by shape second; only the first bytes of a body are looked at, and of a body that can be read only what the
provider says itself: a validation error that echoes the prompt must not be taken for what the prompt talks about.
Source: reference, context-window-errors, sections 2 to 10.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

from gateway.providers.base import Failure, Headers

LOOKED_AT_BYTES = 16_384
WHOLE_BODY_BYTES = 1 << 20  # a 200 longer than this is taken for an answer: no error member was seen that long
OVERFLOW_CODES = {"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"}
MONEY_CODES = {
    "insufficient_quota", "credit_balance_exhausted", "organization_spend_limit_exceeded", "project_spend_limit_exceeded",
    "organization_usage_limit_exceeded", "enforced_spend_limit_reached", "contract_spend_limit_reached", "billing_error",
    "exceeded_current_quota_error", "payment_required", "ServiceQuotaExceededException",
}  # fmt: skip
OVERLOAD_CODES = {
    "overloaded_error", "server_is_overloaded", "engine_overloaded_error", "provider_overloaded", "unavailable_error",
    "UNAVAILABLE", "ModelNotReadyException",
}  # fmt: skip
KEY_CODES = {"API_KEY_INVALID", "invalid_api_key", "authentication_error", "UnrecognizedClientException"}
MODEL_CODES = {"model_not_found", "model_decommissioned", "DeploymentNotFound"}
# What an error means that has no status of its own, as inside a stream: the status that its code has elsewhere.
STATUS_OF_CODE = {
    "invalid_request_error": 400, "invalid_prompt": 400, "content_policy_violation": 400, "INVALID_ARGUMENT": 400,
    "BadRequestError": 400, "authentication": 401, "UNAUTHENTICATED": 401, "permission_error": 403, "permission_denied": 403,
    "PERMISSION_DENIED": 403, "not_found_error": 404, "NOT_FOUND": 404, "request_too_large": 413, "rate_limit_error": 429,
    "rate_limit_exceeded": 429, "rate_limit_reached_error": 429, "slow_down": 429, "ramp_limit_exceeded": 429,
    "RESOURCE_EXHAUSTED": 429, "throttlingException": 429, "ThrottlingException": 429, "timeout_error": 504,
}  # fmt: skip
RATE_WORDS = re.compile(r"rate.?limit|too many requests|throttl|please wait", re.IGNORECASE)
MONEY_WORDS = re.compile(r"credit balance is too low|spend(?:ing)? limit|insufficient (?:balance|credits?)", re.IGNORECASE)
KEY_WORDS = re.compile(r"(?:incorrect|invalid) api key|api key not valid", re.IGNORECASE)
OVERFLOW_WORDS = re.compile(
    r"maximum context length|context window|prompt is too long|prompt too long|input is too long"
    r"|exceeds the maximum number of tokens|maximum prompt length|exceeds the available context size"
    r"|is longer than the model's context length|reduce the length of the messages|exceed context limit"
    r"|exceeded model token limit|range of input length should be|too large for model with|exceeded max context length"
    r"|token count of [\d,]{1,15} exceeds the limit of|input tokens exceed the configured limit"
    r"|tokens to keep from the initial prompt is greater than the context length|current length is \d{1,15} while limit is",
    re.IGNORECASE,
)
ONE_FIELD = re.compile(r"string_above_max_length|string too long", re.IGNORECASE)
ONE_REQUEST_TOO_LARGE = re.compile(r"^\W{0,3}request too large", re.IGNORECASE)
BY_STATUS = {
    401: Failure.AUTH, 402: Failure.OUT_OF_MONEY, 403: Failure.AUTH, 404: Failure.MODEL, 408: Failure.SERVER, 409: Failure.SERVER,
    413: Failure.TOO_LARGE, 424: Failure.SERVER, 429: Failure.RATE_LIMIT, 498: Failure.OVERLOADED, 503: Failure.OVERLOADED,
    504: Failure.SERVER, 529: Failure.OVERLOADED,
}  # fmt: skip

_CODE_NAMES = ("code", "type", "error_type", "error_code", "status", "reason", "__type")
_TEXT_NAMES = ("message", "msg", "error", "detail", "raw")
_HOLDERS = ("error", "metadata", "details", "innererror", "detail", "violations", "x_groq", "response")
# The same in the head of a body that was cut before its end. Linear: each alternative starts with another character.
_CUT_CODE = re.compile(rf'"(?:{"|".join(_CODE_NAMES)})"\s{{0,8}}:\s{{0,8}}"([^"\\]{{1,80}})"')
_CUT_TEXT = re.compile(rf'"(?:{"|".join(_TEXT_NAMES)})"\s{{0,8}}:\s{{0,8}}"((?:[^"\\]|\\.){{1,2000}})')


@dataclass(frozen=True, slots=True)
class _Said:
    """What an error body says: its codes and types, its texts, the status it names, and whether a filter stopped the input."""

    codes: frozenset[str]
    text: str
    status: int | None = None
    filtered: bool = False
    daily: bool = False


def classify(status: int, headers: Headers, body: bytes) -> Failure:
    """Return what a client or server error of a provider means. Never raises; an unknown client error is the request's own.

    A 200 that holds an error takes the status that the error names. `headers` are the answer's: Bedrock names its error there.
    """
    said = _said(body)
    named = frozenset(value.split(":", 1)[0] for name, value in headers if name.lower() == "x-amzn-errortype")
    if status < 400:
        status = _status_of(said)
    return _meaning(status, _Said(said.codes | named, said.text, said.status, said.filtered, said.daily))


def _meaning(status: int, said: _Said) -> Failure:
    codes, text = said.codes, said.text
    if status == 429:
        return _limited(said)
    if codes & OVERFLOW_CODES:
        return Failure.OVERFLOW
    if codes & MONEY_CODES or (status in (400, 403) and MONEY_WORDS.search(text)):
        return Failure.OUT_OF_MONEY
    if status in (400, 413, 422) and _overflows(text):
        return Failure.OVERFLOW
    if status in (400, 401, 403) and (codes & KEY_CODES or (status == 400 and KEY_WORDS.search(text))):
        return Failure.AUTH
    if status in (400, 403) and codes & MODEL_CODES:
        return Failure.MODEL
    if status == 403 and said.filtered:
        return Failure.REQUEST  # a filter said no: to ask elsewhere would be to evade it
    if status >= 500 and codes & OVERLOAD_CODES:
        return Failure.OVERLOADED
    return BY_STATUS.get(status, Failure.SERVER if status >= 500 else Failure.REQUEST)


def _limited(said: _Said) -> Failure:
    """A 429 is never an overflow, even one that says "too many tokens". What no wait will mend is told apart."""
    if said.codes & MONEY_CODES or said.daily or MONEY_WORDS.search(said.text):
        return Failure.OUT_OF_MONEY
    if ONE_REQUEST_TOO_LARGE.search(said.text):
        return Failure.TOO_LARGE  # larger than the limit of a whole minute: it never succeeds
    return Failure.OVERLOADED if said.codes & OVERLOAD_CODES else Failure.RATE_LIMIT


def _overflows(text: str) -> bool:
    return bool(OVERFLOW_WORDS.search(text)) and not RATE_WORDS.search(text) and not ONE_FIELD.search(text)


def classify_event(data: bytes) -> Failure | None:
    """Return what an error inside a 200 means, in a plain body or a stream's first events; None when it is none. Never raises."""
    if data.lstrip()[:1] in (b"{", b"["):
        return _inside(data) if len(data) <= WHOLE_BODY_BYTES else None
    named = b""
    for line in data[:WHOLE_BODY_BYTES].splitlines():
        if line.startswith(b"event:"):
            named = line[6:].strip()
        elif line.startswith(b"data:"):
            found = _inside(line[5:].strip(), named)
            if found is not None:
                return found
        elif not line:
            named = b""
    return None


def _inside(data: bytes, event: bytes = b"") -> Failure | None:
    """Return what one JSON value of a 200 means. An event that is called an error is one even when it cannot be read."""
    value = _object(data)
    error = _error_of(value)
    if error is None and event != b"error" and not data.startswith((b"error:", b"Error:")):
        return None
    said = _said(data if error is None else json.dumps(error).encode())
    status = _status_of(said)
    if status not in (400, 413, 422, 429) and _overflows(said.text):
        return Failure.OVERFLOW
    return _meaning(status, said)


def _error_of(value: Mapping[str, object]) -> object:
    """Return the error that a value of a 200 holds, under any of the names that are in use; None when it holds none."""
    if value.get("error"):
        return {"error": value["error"]}
    if value.get("type") == "error":
        return {"error": {name: each for name, each in value.items() if name != "type"}}
    for holder in ("response", "x_groq"):  # Responses' `response.failed`; Groq's string beside the chunk
        inner = value.get(holder)
        if isinstance(inner, dict) and inner.get("error"):
            return {"error": inner["error"]}
    return None


def _status_of(said: _Said) -> int:
    """Return the status that an error without one of its own stands for; 502 when it does not say."""
    if said.status is not None:
        return said.status
    for code in sorted(said.codes):
        if code in STATUS_OF_CODE:
            return STATUS_OF_CODE[code]
    if said.codes & (OVERFLOW_CODES | MONEY_CODES | KEY_CODES | MODEL_CODES):
        return 400
    return 429 if RATE_WORDS.search(said.text) else 502


def retry_after_s(headers: Headers, now: float) -> float | None:
    """Return the wait that an answer asks for, in seconds from `now` (Unix time); None when it asks for none that can be read."""
    given = {name.lower(): value.strip() for name, value in headers}
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = given.get(name, "")
        if re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,6})?", text):
            return float(text) * unit
        if name == "retry-after" and text:
            try:
                then = parsedate_to_datetime(text)  # without a zone, or with -0000, it is naive and means UTC, not local time
                return max(0.0, (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp() - now)
            except (ValueError, OverflowError):
                return None
    return None


def _object(data: bytes) -> Mapping[str, object]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):  # not JSON: then only its text says something
        return {}
    if isinstance(value, list) and value:  # Gemini's stream without `alt=sse`
        value = value[0]
    return value if isinstance(value, dict) else {}


def _said(body: bytes) -> _Said:
    """Return what an error body says; of one that cannot be read, what its first bytes show."""
    value = _object(body) if len(body) <= LOOKED_AT_BYTES else {}
    if not value:
        text = body[:LOOKED_AT_BYTES].decode("utf-8", "replace")
        texts = _CUT_TEXT.findall(text) if text.lstrip()[:1] in ("{", "[") else []
        return _Said(frozenset(_CUT_CODE.findall(text)), "\n".join(texts) or text)
    codes: set[str] = set()
    texts, status, filtered, daily = [], None, False, False
    for holder in _holders(value, 0):
        codes |= {each for name in _CODE_NAMES if isinstance(each := holder.get(name), str)}
        texts += [each for name in _TEXT_NAMES if isinstance(each := holder.get(name), str)]
        status = status or _status(holder.get("code")) or _status(holder.get("status"))
        filtered = filtered or "flagged_input" in holder or "reasons" in holder
        daily = daily or "PerDay" in str(holder.get("quotaId", ""))
    return _Said(frozenset(codes), "\n".join(texts), status, filtered, daily)


def _holders(value: object, depth: int) -> Iterator[Mapping[str, object]]:
    """Yield the objects of an error body that name codes or texts, outermost first; deeper than four no provider goes."""
    if isinstance(value, list):
        for each in value[:16]:
            yield from _holders(each, depth)
    elif isinstance(value, dict) and depth < 5:
        yield value
        for name in _HOLDERS:
            yield from _holders(value.get(name), depth + 1)


def _status(value: object) -> int | None:
    """Return a code that is an HTTP status: some write it as a number, some as the digits."""
    if isinstance(value, str) and re.fullmatch(r"[45][0-9]{2}", value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600 else None
