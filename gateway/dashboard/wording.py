"""How figures are spelled on the pages, and what a cause means in words. Pure."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

NONE = "–"

CAUSES: Mapping[str, str] = {
    "first_call": "nothing like it was sent there before; nothing to do",
    "expired": "sent longer ago than the provider keeps a prefix; where it offers a longer lifetime, that may pay",
    "prefix_changed": "an earlier message differs from what was sent before, or was cut; the two prompts show where",
    "below_minimum": "the prefix is shorter than the provider caches; nothing to do for short prompts",
    "routed_elsewhere": "another target holds this prefix: the cold start of a fallback",
    "tools_changed": "the tools, or what else stands before the messages, differ from what was sent before",
    "model_changed": "the same provider, another model: caches are kept for each model",
    "marks": "the provider caches only at marks, and none reached the prefix",
    "evicted": "the prefix stood still and was fresh; the provider did not have it all the same",
}
"""What each cause means and what to do about it."""


def count(value: int | None) -> str:
    return NONE if value is None else f"{value:,}"


def short(value: float | None) -> str:
    """Return a large number in few characters: 12,345 → 12.3k."""
    if value is None:
        return NONE
    for unit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.1f}{sign}"
    return f"{value:,.0f}"


def usd(value: float | None) -> str:
    """Return an amount with as many decimals as it needs to say something."""
    if value is None:
        return NONE
    return f"${value:,.2f}" if abs(value) >= 10 or value == 0 else f"${value:,.4f}"


def percent(ratio: float | None) -> str:
    return NONE if ratio is None else f"{ratio * 100:.1f} %"


def share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


def seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f} s"


def moment(value: datetime | None) -> str:
    return NONE if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def iso(value: datetime) -> str:
    """Return a time for the `datetime` attribute."""
    return value.astimezone(UTC).isoformat(timespec="seconds")


def epoch(second: int) -> str:
    return moment(datetime.fromtimestamp(second, UTC))[:16]


def tojson_text(value: object) -> str:
    """Return a value as indented JSON, to be escaped like any other text."""
    return json.dumps(value, indent=1, ensure_ascii=False)


def words(name: str) -> str:
    """Return a name of the records as words: `upstream_error` → upstream error."""
    return name.replace("_", " ")


def width(ratio: float | None) -> str:
    """Return a share as a length on a scale of 1,000, within it."""
    return f"{min(max(ratio or 0.0, 0.0), 1.0) * 1000:.1f}"


FILTERS: Mapping[str, Callable[..., Any]] = {
    each.__name__: each for each in (count, short, usd, percent, share, seconds, moment, iso, words, width, epoch, tojson_text)
}
