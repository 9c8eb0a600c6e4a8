"""What one page asks of the fold: a span of time, a route, a key; and the figures that answer it. Pure; the clock is given."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from gateway.dashboard.metrics import OTHER, WIDTHS, Key, Line, Missed, Tally, Totals

SPANS = {"1h": 3_600, "6h": 21_600, "24h": 86_400, "7d": 604_800, "30d": 2_592_000, "all": 0}
DEFAULT_SPAN = "24h"
WIDTH_OF = {"1h": 0, "6h": 0, "24h": 1, "7d": 2, "30d": 3, "all": 3}
Name = TypeVar("Name", str, tuple[str, str])
LINES = 6  # of a chart, beyond which the eye does not tell them apart; the smallest share one
CALLS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is asked for; "" takes every route or key. It is what stands in the page's address."""

    span: str = DEFAULT_SPAN
    route: str = ""
    key: str = ""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Query":
        """Return the query of an address; a span that is not offered becomes the usual one. Never raises."""
        span = given.get("span", DEFAULT_SPAN)
        return cls(span=span if span in SPANS else DEFAULT_SPAN, route=given.get("route", ""), key=given.get("key", ""))

    @property
    def chosen(self) -> dict[str, str]:
        """What differs from the usual, as the address spells it."""
        named = {"span": self.span, "route": self.route, "key": self.key}
        return {name: value for name, value in named.items() if value not in ("", DEFAULT_SPAN)}

    def takes(self, route: str, key: str) -> bool:
        return self.route in ("", route) and self.key in ("", key)


@dataclass(frozen=True, slots=True)
class Point:
    """One step of a chart's line. `ratio` None: nobody reported cached tokens in it."""

    tokens: int
    cached: int
    ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines over time: `starts` are the first seconds of the steps, `lines` has a point for each; the largest line first."""

    step_s: int
    starts: tuple[int, ...]
    lines: Mapping[str, tuple[Point, ...]]

    @property
    def used(self) -> list[tuple[int, int]]:
        """The steps in which something was sent: index and first second, the newest first."""
        steps = enumerate(self.starts)
        return [(at, start) for at, start in steps if any(points[at].tokens for points in self.lines.values())][::-1]


class Fallback(NamedTuple):
    """Requests of a route that went on from one target to another, and what the first failed of, the most frequent first."""

    route: str
    target: str
    following: str
    requests: int
    reasons: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The figures of one page. `targets` are by route and target, `misses` by cause, both with the most expensive first.

    `routes_known` and `keys_known` are what may be chosen: all that appear in the span, whatever is chosen now.
    """

    query: Query
    all: Tally
    routes: Mapping[str, Tally]
    targets: Mapping[tuple[str, str], Tally]
    keys: Mapping[str, Tally]
    chart: Chart
    misses: tuple[tuple[str, Missed], ...]
    fallbacks: tuple[Fallback, ...]
    calls: tuple[Line, ...]
    routes_known: tuple[str, ...]
    keys_known: tuple[str, ...]


def view(totals: Totals, query: Query, now_s: float) -> View:
    """Return the figures that the query asks for, up to this moment (seconds since 1970). Never raises."""
    width = WIDTH_OF[query.span]
    step_s = WIDTHS[width][0]
    buckets = totals.widths[width]
    last = int(now_s) - int(now_s) % step_s
    span_s = SPANS[query.span] or step_s * WIDTHS[width][1]
    first = last - span_s + step_s
    if not SPANS[query.span]:
        first = max(first, min(buckets, default=last))
    summed: dict[Key, Tally] = {}
    known: dict[Key, None] = {}
    shapes = _Shapes(query)
    for start, key, tally in _within(buckets, first, last):
        known[key] = None
        if query.takes(key[0], key[2]):
            summed.setdefault(key, Tally()).merge(tally)
            shapes.add(start, key, tally)
    every = _by(summed, lambda key: "").get("", Tally())
    targets = _by(summed, lambda key: key[:2])
    misses = sorted(every.misses.items(), key=lambda item: (-item[1].usd, -item[1].tokens, item[0]))
    return View(
        query=query,
        all=every,
        routes=_by(summed, lambda key: key[0]),
        targets=targets,
        keys=_by(summed, lambda key: key[2]),
        chart=shapes.chart(first, last, step_s),
        misses=tuple(misses),
        fallbacks=tuple(_fallbacks(targets)),
        calls=tuple(_calls(totals, query, first)),
        routes_known=tuple(sorted({key[0] for key in known} | ({query.route} - {""}))),
        keys_known=tuple(sorted({key[2] for key in known} | ({query.key} - {""}))),
    )


def _within(buckets: Mapping[int, Mapping[Key, Tally]], first: int, last: int) -> Iterator[tuple[int, Key, Tally]]:
    for start, bucket in buckets.items():
        if first <= start <= last:
            for key, tally in bucket.items():
                yield start, key, tally


def _by(summed: Mapping[Key, Tally], name: Callable[[Key], Name]) -> dict[Name, Tally]:
    found: dict[Name, Tally] = {}
    for key, tally in summed.items():
        found.setdefault(name(key), Tally()).merge(tally)
    return dict(sorted(found.items(), key=lambda item: (-item[1].input_tokens, str(item[0]))))


def _fallbacks(targets: Mapping[tuple[str, str], Tally]) -> list[Fallback]:
    found = [
        Fallback(route, target, following, requests, tuple(sorted(tally.reasons.items(), key=lambda item: (-item[1], item[0]))))
        for (route, target), tally in targets.items()
        for following, requests in tally.fallbacks.items()
    ]
    return sorted(found, key=lambda each: (-each.requests, each))


def _calls(totals: Totals, query: Query, first: int) -> Iterator[Line]:
    """Yield the newest calls that match, the newest first."""
    count = 0
    for line in reversed(totals.latest):
        if count == CALLS:
            return
        if query.takes(line.route, line.key) and line.at.timestamp() >= first:
            count += 1
            yield line


@dataclass(slots=True)
class _Shapes:
    """The chart under construction: a line for each route, or for each target of the route that is chosen.

    `figures` are input tokens, cached tokens, and both again of the calls that reported them, by line and step.
    """

    query: Query
    figures: dict[str, dict[int, list[int]]] = field(default_factory=dict)

    def add(self, start: int, key: Key, tally: Tally) -> None:
        line = (key[1] or "(no target)") if self.query.route else key[0] or "(no route)"
        point = self.figures.setdefault(line, {}).setdefault(start, [0, 0, 0, 0])
        for at, tokens in enumerate((tally.input_tokens, tally.cached_tokens, tally.reported_input, tally.reported_cached)):
            point[at] += tokens

    def chart(self, first: int, last: int, step_s: int) -> Chart:
        ranked = sorted(self.figures, key=lambda name: (-sum(point[0] for point in self.figures[name].values()), name))
        for name in ranked[LINES:]:
            rest = self.figures.setdefault(OTHER, {})
            for start, point in self.figures.pop(name).items():
                rest[start] = [a + b for a, b in zip(rest.get(start, (0, 0, 0, 0)), point, strict=True)]
        starts = tuple(range(first, last + 1, step_s))
        names = ranked[:LINES] + ([OTHER] if len(ranked) > LINES else [])
        return Chart(
            step_s=step_s,
            starts=starts,
            lines={name: tuple(_point(self.figures[name].get(start)) for start in starts) for name in names},
        )


def _point(figures: list[int] | None) -> Point:
    if figures is None:
        return Point(0, 0, None)
    tokens, cached, reported_input, reported_cached = figures
    return Point(tokens, cached, reported_cached / reported_input if reported_input else None)
