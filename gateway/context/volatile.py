"""Lines of a prompt that differ from request to request and so break a cached prefix: clocks, ids, nonces, git status.

Precision beats recall. A line counts only when all of it is a lead word and a value that surely changes; a sentence that
goes on, a line in fenced code or in an example, a date without a time, a range of hours stay. Source: design, "Layout".
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST_LINE = 240  # characters; a longer line holds more than a clock
LONGEST_BLOCK = 4_000  # characters of a labelled git status


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Whole lines of a text, with their line ends: `text[start:end]` in characters. `kind` names the detector."""

    start: int
    end: int
    kind: str


_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sept?|oct|nov|dec)[a-z]*\.?"
_DATE = (
    r"(?:\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}[./]\d{1,2}[./]\d{4}"
    rf"|{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+\d{{4}}|\d{{1,2}}\.?\s+{_MONTH},?\s+\d{{4}})"
)
_DAY = r"(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?,?\s+"
_TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s*[ap]\.?m\.?)?"
_ZONE = r"(?:\s*(?:Z|[A-Z]{2,5}|(?:UTC|GMT)?[+-]\d{1,2}(?::?\d{2})?|\(?[A-Za-z]+/[A-Za-z_/]+\)?|\([A-Z][A-Za-z0-9 +:-]{1,30}\)))"
# Without a date, a bare offset would make a clock of opening hours: "9:00-17:00".
_NAMED = rf"(?:(?!\s*[+-]){_ZONE})"
_STAMP = (
    rf"(?:(?:{_DAY})?{_DATE}(?:T|,?\s+(?:at\s+)?|\s*[-|]\s*){_TIME}{_ZONE}{{0,2}}"
    rf"|(?:{_DAY})?{_TIME}{_NAMED}{{0,2}}"
    rf"|(?:{_DAY}){_MONTH}\s+\d{{1,2}}\s+{_TIME}{_ZONE}?\s+\d{{4}}"
    rf"|{_TIME}{_ZONE}{{0,2}},?\s+(?:on\s+)?(?:{_DAY})?{_DATE})"
)
_PREFIX = r"[\s>*#\-–•_`\[(]*+"  # gives nothing back: no lead begins with any of these
_JOIN = r"[\s*_`\])\"']*(?:\s+is\s+now|\s+is|:|=|\s+at)[\s*_`\"'\[(]*"
_TAIL = r"[\s.*_`\])\"',;]*"
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_OPAQUE = r"(?=[A-Za-z_:.-]*\d)[A-Za-z0-9][A-Za-z0-9_:.-]{7,127}"
# "time" alone leads no clock: "Boarding time: 09:40" is a fact, "Current time: 09:40" is a clock.
_NOW = r"(?:current|present|local|system|server|today'?s|user'?s|my|your|utc|gmt)"
_WHAT = r"(?:date\s*(?:and|&|/|,|-|_)?\s*time|datetime|time\s*(?:and|&|/)\s*date|time[\s_-]?stamp|time|clock|date)"
_LEAD = rf"(?:(?:the|as of|for reference,?)\s+)*(?:{_NOW}[\s_-]+)+{_WHAT}(?:\s*\([A-Za-z/_ ]{{1,30}}\))?(?:\s+(?:now|here))?"
_IDENTITY = (
    r"(?:the\s+|this\s+|current\s+)*(?:x-)?(?:"
    r"(?:request|trace|correlation|span|invocation|transaction|message|completion|call|turn)[\s_-]*(?:id|uuid|identifier|nonce)"
    r"|(?:request|cache|random)?[\s_-]*nonce|cache[\s_-]*bust(?:er)?|traceparent)"
)
_EPOCH = (
    r"(?:the\s+|current\s+)*"
    r"(?:(?:unix|epoch|posix)(?:[\s_-]*(?:time[\s_-]?stamp|time|epoch|seconds|ms))?|time[\s_-]?stamp)(?:\s+now)?"
)


def _line(lead: str, value: str) -> re.Pattern[str]:
    # The lead in any case; `_ZONE` is no worse for it, as the whole line must match.
    return re.compile(rf"{_PREFIX}(?:{lead}){_JOIN}{value}{_TAIL}", re.IGNORECASE)


_DETECTORS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("billing", re.compile(r"x-anthropic-billing-header:.*", re.IGNORECASE)),
    ("clock", _line(_LEAD, _STAMP)),
    ("clock", re.compile(rf"{_PREFIX}(?:now|it is(?: now| currently)?|the time is(?: now)?|today is)[\s:=]+{_STAMP}{_TAIL}", re.I)),
    ("clock", re.compile(rf"time[\s_-]?stamp\s*[:=]\s*{_DATE}[T ]\d{{2}}:\d{{2}}:\d{{2}}(?:[.,]\d+)?{_ZONE}?\s*", re.I)),
    (
        "clock",
        re.compile(rf"\s*<((?:current[_-]?)(?:date[_-]?)?time|now|timestamp|current[_-]?datetime)>\s*{_STAMP}\s*</\1>\s*", re.I),
    ),
    ("id", _line(_IDENTITY, rf"(?:{_UUID}|{_OPAQUE})")),
    ("id", _line(r"(?:request\s+|trace\s+)?uuid", _UUID)),
    ("epoch", _line(_EPOCH, r"1\d{9}(?:\d{3}|\.\d{1,9})?")),
)
_CLUE = re.compile(r"\d")  # every detected line holds a digit, and most lines of a prompt do not
# A line that says an example follows, and the tags of one.
_EXAMPLE = re.compile(r"\b(?:examples?|e\.g|such as|like (?:this|so)|format(?:ted)?|template|samples?)\b", re.IGNORECASE)
_TAGGED = re.compile(r"\s*<(/?)(?:[a-z]+[_-])?(?:examples?|samples?|template)(?:\s[^<>]*)?>\s*", re.IGNORECASE)
_FENCE = re.compile(r"\s*(?:```|~~~)")
_GIT_OPEN = re.compile(r"\s*<(git[_-]?status)>", re.IGNORECASE)
_GIT_LABEL = re.compile(r"\W{0,4}git[ _-]?status(?:\s*\([^)]{1,40}\))?\W{0,3}:\W{0,3}", re.IGNORECASE)
_GIT_LINE = re.compile(r"(?:##|[ MADRCU?!]{2}) \S.{0,230}")


def scan(text: str, patterns: tuple[str, ...] = ()) -> tuple[Span, ...]:
    """Return the volatile lines of a text, in order, not overlapping, possibly none.

    `patterns` are the caller's own, searched in each line wherever it stands; they are trusted, in examples too. Lines over
    240 characters are left alone. Raises `re.error` for a pattern that is none: settings check that at start.
    """
    own = tuple(re.compile(pattern) for pattern in patterns)
    return tuple(_spans(text, own))


def _spans(text: str, own: tuple[re.Pattern[str], ...]) -> Iterator[Span]:
    quoted, skip_to, start = _Quoted(), 0, 0
    for line in _lines(text):
        end, bare = start + len(line), line.rstrip("\r\n")
        if start >= skip_to:
            shown = quoted.after(bare)
            kind = None if len(bare) > LONGEST_LINE else _kind(bare, own, shown)
            if kind is not None:
                yield Span(start=start, end=end, kind=kind)
            elif not shown and (block := _git(text, start, end, bare)) > start:
                yield Span(start=start, end=block, kind="git")
                skip_to = block
        start = end


class _Quoted:
    """Whether a line is only shown, not said: in fenced code, in example tags, or in the paragraph that an example opens."""

    def __init__(self) -> None:
        self._fenced = self._tagged = self._announced = self._begun = False

    def after(self, line: str) -> bool:
        """Take the next line, and return whether it is shown."""
        fence, tag = _FENCE.match(line) is not None, _TAGGED.fullmatch(line)
        self._fenced ^= fence
        if tag and not self._fenced:
            self._tagged = not tag[1]
        blank = not line.strip()
        shown = self._fenced or fence or self._tagged or (self._announced and not blank)
        if blank:
            self._announced &= not self._begun
        elif len(line) <= LONGEST_LINE and line.rstrip(" *_`\t").endswith(":") and _EXAMPLE.search(line):
            self._announced, self._begun = True, False
        else:
            self._begun = True
        return shown


def _lines(text: str) -> Iterator[str]:
    """Cut at line feeds only: `splitlines` also cuts at form feeds and U+2028, which stand inside lines of a prompt."""
    start = 0
    while (at := text.find("\n", start)) >= 0:
        yield text[start : at + 1]
        start = at + 1
    if start < len(text):
        yield text[start:]


def _kind(line: str, own: tuple[re.Pattern[str], ...], shown: bool) -> str | None:
    if any(pattern.search(line) for pattern in own):
        return "pattern"
    if shown or not _CLUE.search(line):
        return None
    return next((kind for kind, pattern in _DETECTORS if pattern.fullmatch(line)), None)


def _git(text: str, start: int, end: int, line: str) -> int:
    """Return where a labelled git status that begins on this line ends; `start` when none does."""
    if opened := _GIT_OPEN.match(line):
        close = re.compile(rf"</{opened[1]}>[ \t]*(?:\r?\n|$)").search(text, start, start + LONGEST_BLOCK)
        return close.end() if close else start
    if not _GIT_LABEL.fullmatch(line):
        return start
    at = end
    for each in _lines(text[end : end + LONGEST_BLOCK]):
        if not _GIT_LINE.fullmatch(each.rstrip("\r\n")):
            break
        at += len(each)
    return at if at > end else start
