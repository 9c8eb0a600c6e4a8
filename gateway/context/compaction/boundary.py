"""Groups, and the fold that places the boundary: a pure function of the sizes, so every process finds the same one.

Replayed from the first turn: whenever a turn's prompt would reach the limit, first old tool outputs are pruned, then the
boundary moves on, at group borders, until low water is left. It never moves back. Source: design, "Compaction that keeps
the cache".
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from gateway.context.items import Item, Kind

MINIMUM_RECLAIM = 0.1  # share of the limit that a batch of pruning must bring, or it is not worth a rewritten prefix


@dataclass(frozen=True, slots=True)
class Group:
    """Items `start` to `end` (exclusive) that only go together: a turn with calls and all the results that answer it."""

    start: int
    end: int
    user: bool  # whether it begins with a user's turn
    answered: bool  # whether it is a turn of the model's: a request was sent just before it


def groups(items: Sequence[Item], first: int) -> list[Group]:
    """Return the groups from item `first` on, in order and without gaps. A result belongs to the nearest call before it."""
    made: list[Group] = []
    open_calls: set[str] = set()
    for index in range(first, len(items)):
        item = items[index]
        if item.kind is Kind.RESULT and made and set(item.answers) & open_calls:
            made[-1] = replace(made[-1], end=index + 1)
            continue
        made.append(Group(index, index + 1, item.kind is Kind.USER, item.kind is Kind.ASSISTANT))
        open_calls = set(item.opens)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What places a boundary. `limit` in estimated tokens for the whole prompt, `fixed` those that are always there."""

    limit: int
    fixed: int
    low_water: float
    protect_first: int
    protect_last_tokens: int
    prune: bool


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the fold ended: groups before `boundary` are gone but for `pins`, results in groups before `pruned` are markers."""

    boundary: int = 0
    pins: tuple[int, ...] = ()
    pruned: int = 0


class Sizes:
    """Prefix sums over the groups: whole, and with their tool outputs pruned."""

    def __init__(self, parts: Sequence[Group], whole: Sequence[int], pruned: Sequence[int]) -> None:
        self.whole = list(accumulate((sum(whole[g.start : g.end]) for g in parts), initial=0))
        self.pruned = list(accumulate((sum(pruned[g.start : g.end]) for g in parts), initial=0))

    def between(self, start: int, end: int, pruned: int) -> int:
        """Return the size of groups start to end, those before `pruned` in their pruned form."""
        middle = min(max(pruned, start), end)
        return self.pruned[middle] - self.pruned[start] + self.whole[end] - self.whole[middle]

    def prompt(self, cut: Cut, end: int) -> int:
        """Return the size of all that is kept of the first `end` groups."""
        pins = sum(self.between(pin, pin + 1, cut.pruned) for pin in cut.pins)
        return pins + self.between(cut.boundary, end, cut.pruned)


def fold(parts: Sequence[Group], sizes: Sizes, rule: Rule) -> Cut:
    """Return where the boundary stands after every turn up to now. Never raises; what cannot be cut stays, and may be over."""
    cut = Cut()
    for end in range(1, len(parts) + 1):
        sent = end == len(parts) or parts[end].answered
        if sent and rule.fixed + sizes.prompt(cut, end) >= rule.limit:
            cut = _move(cut, parts, sizes, rule, end)
    return cut


def _move(cut: Cut, parts: Sequence[Group], sizes: Sizes, rule: Rule, end: int) -> Cut:
    goal = int(rule.low_water * rule.limit) - rule.fixed
    last = _tail(parts, sizes, rule, end)
    if rule.prune:
        cut = _prune(cut, sizes, goal, max(last, cut.pruned), rule)
        if sizes.prompt(cut, end) <= goal:
            return cut
    newest = max((n for n in range(end) if parts[n].user), default=-1)
    first = [n for n in _first(parts, sizes, rule, end) if n < last]
    furthest = next((n for n in range(last, end) if parts[n].user), last)
    moved = cut
    for boundary in range(cut.boundary + 1, furthest + 1):
        pins = tuple(n for n in sorted({*first, newest}) if 0 <= n < boundary)
        moved = Cut(boundary, pins, cut.pruned)
        begins = pins[0] if pins else boundary
        if sizes.prompt(moved, end) <= goal and (parts[begins].user or begins == 0):
            break
    return moved


def _tail(parts: Sequence[Group], sizes: Sizes, rule: Rule, end: int) -> int:
    """Return the first group of the tail that stays: the newest, and as many before it as are protected."""
    protected = min(rule.protect_last_tokens, (rule.limit - rule.fixed) // 2)
    first = bisect_left(sizes.whole, sizes.whole[end] - protected, 0, end)
    return min(first, end - 1)


def _first(parts: Sequence[Group], sizes: Sizes, rule: Rule, end: int) -> list[int]:
    """Return the first groups that stay: those of the first protected messages, while they hold less than half of the room."""
    kept: list[int] = []
    for n in range(end):
        if parts[n].start - parts[0].start >= rule.protect_first:
            break
        if sizes.whole[n + 1] > (rule.limit - rule.fixed) // 2:
            break
        kept.append(n)
    return kept


def _prune(cut: Cut, sizes: Sizes, goal: int, last: int, rule: Rule) -> Cut:
    """Return the cut with old tool outputs pruned up to `last`, in one batch, if that brings enough."""
    start = max(cut.pruned, cut.boundary)
    reclaimed = sizes.between(start, last, start) - sizes.between(start, last, last) if last > start else 0
    return replace(cut, pruned=last) if reclaimed >= rule.limit * MINIMUM_RECLAIM else cut
