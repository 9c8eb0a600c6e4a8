"""How figures are spelled on the pages, and what a cause means in words. Pure."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

NONE = "–"

CAUSES: Mapping[str, str] = {}
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
