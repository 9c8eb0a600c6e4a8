"""What a provider's answer means when it is no answer: the kind of failure, and how long to wait.

By code first, by shape second; only the first bytes of a body are looked at. Source: reference, context-window-errors.
"""

import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from gateway.providers.base import Failure, Headers

LOOKED_AT_BYTES = 16_384
OVERFLOW_CODES = {"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"}
MONEY_CODES = {
    "insufficient_quota", "credit_balance_exhausted", "organization_spend_limit_exceeded", "project_spend_limit_exceeded",
    "organization_usage_limit_exceeded", "enforced_spend_limit_reached", "contract_spend_limit_reached", "billing_error",
    "exceeded_current_quota_error",
}  # fmt: skip
RATE_WORDS = re.compile(r"rate limit|too many requests|throttl|please wait", re.IGNORECASE)
OVERFLOW_WORDS = re.compile(
    r"maximum context length|context window|prompt is too long|input is too long|exceeds the maximum number of tokens"
    r"|maximum prompt length|exceeds the available context size|is longer than the model's context length"
    r"|reduce the length of the messages|exceed context limit|exceeded model token limit|range of input length should be"
    r"|too large for model with|exceeded max context length|prompt token count of \d+ exceeds the limit of"
    r"|input tokens exceed the configured limit|tokens to keep from the initial prompt is greater|current length is \d+ while limit is",
    re.IGNORECASE,
)
ONE_FIELD = re.compile(r"string_above_max_length|string too long", re.IGNORECASE)
BY_STATUS = {
    401: Failure.AUTH, 402: Failure.OUT_OF_MONEY, 403: Failure.AUTH, 404: Failure.MODEL, 408: Failure.SERVER, 409: Failure.SERVER,
    413: Failure.TOO_LARGE, 424: Failure.SERVER, 429: Failure.RATE_LIMIT, 498: Failure.OVERLOADED, 503: Failure.OVERLOADED,
    504: Failure.SERVER, 529: Failure.OVERLOADED,
}  # fmt: skip


def classify(status: int, headers: Headers, body: bytes) -> Failure:
    """Return what a client or server error of a provider means. Never raises; an unknown client error is the request's own."""
    words, text = _words(body)
    if words & OVERFLOW_CODES and status != 429:
        return Failure.OVERFLOW
    if words & MONEY_CODES:
        return Failure.OUT_OF_MONEY
    if status in (400, 413, 422) and not RATE_WORDS.search(text) and OVERFLOW_WORDS.search(text) and not ONE_FIELD.search(text):
        return Failure.OVERFLOW
    if status == 400 and "API_KEY_INVALID" in text:
        return Failure.AUTH
    if status in BY_STATUS:
        return BY_STATUS[status]
    return Failure.SERVER if status >= 500 else Failure.REQUEST


def classify_event(data: bytes) -> Failure | None:
    """Return what an error inside a 200 means, in a plain body or the first events of a stream; None when it is none."""
    for line in data[:LOOKED_AT_BYTES].splitlines():
        value = _object(line.removeprefix(b"data:").strip())
        error = value.get("error")
        if not error:
            continue
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else 502
        found = classify(status, (), line.removeprefix(b"data:").strip())
        if found is Failure.SERVER and OVERFLOW_WORDS.search(line.decode("utf-8", "replace")):
            return Failure.OVERFLOW
        return found
    return None


def retry_after_s(headers: Headers, now: float) -> float | None:
    """Return the wait that an answer asks for, in seconds from `now` (Unix time); None when it asks for none that can be read."""
    given = {name.lower(): value.strip() for name, value in headers}
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        text = given.get(name, "")
        if re.fullmatch(r"\d{1,9}(?:\.\d{1,6})?", text):
            return float(text) * unit
        if name == "retry-after" and text:
            try:
                return max(0.0, parsedate_to_datetime(text).timestamp() - now)
            except ValueError:
                return None
    return None


def _object(data: bytes) -> Mapping[str, object]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):  # not JSON: then only its text says something
        return {}
    return value if isinstance(value, dict) else {}


def _words(body: bytes) -> tuple[set[str], str]:
    """Return the codes and types that an error body names, and its text for the patterns."""
    text = body[:LOOKED_AT_BYTES].decode("utf-8", "replace")
    value = _object(body) if len(body) <= LOOKED_AT_BYTES else {}
    inner = value.get("error")
    holders = [value, inner if isinstance(inner, dict) else {}]
    metadata = holders[1].get("metadata")
    details = holders[1].get("details")
    holders += [each for each in (metadata, details) if isinstance(each, dict)]
    names = ("code", "type", "error_type", "error_code")
    return {str(each[name]) for each in holders for name in names if isinstance(each.get(name), str)}, text
