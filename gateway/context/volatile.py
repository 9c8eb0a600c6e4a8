"""Text that changes with each request: clock times, ids and nonces, a per-request billing header. Whole short lines only.

High precision beats recall: a line moves only when it says what it is and holds nothing else worth keeping in place.
Day-granular dates stay. Source: design, "Layout: three segments".
"""

import functools
import re
from dataclasses import dataclass

LONGEST_LINE = 240  # a longer line says more than the time
_TIME = r"(?:\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?\s*(?:[AaPp]\.?[Mm]\.?)?)"
_DAYS = (
    r"\d{4}[-/]\d{1,2}[-/]\d{1,2}",
    r"\w{3,9},?\s+\w{3,9}\.?\s+\d{1,2}(?:,?\s+\d{4})?",
    r"\w{3,9}\.?\s+\d{1,2},?\s+\d{4}",
    r"\d{1,2}\s+\w{3,9}\s+\d{4}",
)
_DATE = rf"(?:{'|'.join(_DAYS)})"
_LEAD = r"(?:[-*#>\s]*)(?:\*\*)?"
_CLOCK_WORDS = (
    r"(?:the\s+)?(?:current|present|local|system|server|utc|user'?s?)?\s*(?:local\s+|utc\s+|system\s+)?"
    r"(?:date\s*(?:and|&|/)\s*time|date-?time|timestamp|time|now)"
)
_ZONE = r"(?:\s*(?:Z|UTC|GMT|[+-]\d{2}:?\d{2}|[A-Z]{2,5}|\([\w\s/+-]{2,40}\)))"
_VALUE = r"\s*(?:is|[:=])\s*[\"'`]?[A-Za-z0-9_.:+/=-]{6,128}[\"'`]?\.?\s*$"
_CLOCK = re.compile(
    rf"^{_LEAD}(?:{_CLOCK_WORDS}|today(?:'s\s+date)?|it\s+is(?:\s+now|\s+currently)?)(?:\s+(?:now|is|now\s+is|in\s+\w+))*"
    rf"\s*(?:\*\*)?[:=]?\s*(?:\*\*)?(?:(?:{_DATE})[\sT,]*(?:at\s+)?)?{_TIME}{_ZONE}*\.?\s*$",
    re.IGNORECASE,
)
_EPOCH = re.compile(
    rf"^{_LEAD}(?:current\s+)?(?:unix\s+(?:time|timestamp|epoch)|epoch|timestamp)\s*(?:is|[:=])\s*\d{{10,19}}\.?\s*$", re.IGNORECASE
)
_NAMED = re.compile(
    rf"^{_LEAD}(?:x-)?(?:request|trace|correlation|invocation|span|message|run|turn|call)[-_ ]?(?:id|uuid|guid){_VALUE}",
    re.IGNORECASE,
)
_NONCE = re.compile(rf"^{_LEAD}(?:nonce|cache[- ]?buster|random\s+seed|salt){_VALUE}", re.IGNORECASE)
_BILLING = re.compile(r"^x-anthropic-billing-header:.*$")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
KINDS = (("clock", _CLOCK), ("epoch", _EPOCH), ("id", _NAMED), ("nonce", _NONCE), ("billing", _BILLING))


@dataclass(frozen=True, slots=True)
class Span:
    """Characters `start` to `end` of a text: a whole line with its line end."""

    start: int
    end: int
    kind: str


@functools.lru_cache(maxsize=64)
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for pattern in patterns)


def scan(text: str, patterns: tuple[str, ...] = ()) -> tuple[Span, ...]:
    """Return the volatile lines of a text, in order. `patterns` are more of them, searched for in a line. Never raises.

    Lines within a code fence are examples and stay.
    """
    found: list[Span] = []
    at, fenced, more = 0, False, _compiled(patterns)
    for line in text.split("\n"):
        end = min(at + len(line) + 1, len(text))
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and 0 < len(line) <= LONGEST_LINE:
            kind = _kind(line, more)
            if kind:
                found.append(Span(at, end, kind))
        at += len(line) + 1
    return tuple(found)


def _kind(line: str, patterns: tuple[re.Pattern[str], ...]) -> str | None:
    for kind, pattern in KINDS:
        if pattern.match(line):
            return kind
    return "pattern" if any(pattern.search(line) for pattern in patterns) else None
