"""Groups, and the fold that places the boundary: a pure function of the sizes, so every process finds the same one.

Replayed from the first turn: whenever a turn's prompt would reach the limit, first old tool outputs are pruned, then the
boundary moves on, at group borders, until low water is left. It never moves back and always strictly advances. Source:
design, "Compaction that keeps the cache".
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from gateway.context.items import Item, Kind

MINIMUM_RECLAIM = 0.1  # share of the limit that a batch of pruning must bring, or it is not worth a rewritten prefix


@dataclass(frozen=True, slots=True)
class Group:
    """Items `start` to `end` (exclusive) that only go together: a turn with calls and all the results that answer it.

    What came between a call and its late result is part of the group. `user`: whether it begins with a user's turn.
    """

    start: int
    end: int
    user: bool


def groups(items: Sequence[Item], first: int) -> list[Group]:
    """Return the groups from item `first` on, in order and without gaps.

    A result belongs to the nearest call before it that is still open: ids recur in real transcripts. A second result for
    a call that was just answered joins it; any other result without an open call stands alone.
    """
    starts: list[int] = []  # of each group up to now; the last one is still growing
    opened: dict[str, list[int]] = {}  # calls that wait for their result, by id -> the items that made them
    recent: frozenset[str] = frozenset()  # calls of the run of results that we are in
    for index in range(first, len(items)):
        item = items[index]
        callers = [opened[each].pop() for each in item.answers if opened.get(each)] if item.kind is Kind.RESULT else []
        if callers:
            while starts[-1] > min(callers):
                starts.pop()
            recent |= frozenset(item.answers)
        elif not (item.kind is Kind.RESULT and recent.intersection(item.answers)):
            starts.append(index)
            recent = frozenset()
        if item.kind is not Kind.RESULT:
            for each in item.opens:
                opened.setdefault(each, []).append(index)
    ends = [*starts[1:], len(items)]
    return [Group(start, end, items[start].kind is Kind.USER) for start, end in zip(starts, ends, strict=True)] if starts else []


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
    """Prefix sums over the items of the groups, whole, and of what pruning would save of each group, found when first asked."""

    def __init__(self, items: Sequence[Item], parts: Sequence[Group], whole: Sequence[int], saving: Callable[[int], int]) -> None:
        self.items = items
        self.parts = parts
        self._whole = list(accumulate(whole, initial=0))
        self._saved = [0]
        self._saving = saving

    def saved(self, start: int, end: int) -> int:
        """Return what pruning groups `start` to `end` saves."""
        while len(self._saved) <= end:
            part = self.parts[len(self._saved) - 1]
            self._saved.append(self._saved[-1] + sum(self._saving(at) for at in range(part.start, part.end)))
        return self._saved[end] - self._saved[start] if end > start else 0

    def whole(self, start: int, end_item: int) -> int:
        """Return the unpruned size from group `start` up to an item (exclusive)."""
        return self._whole[end_item] - self._whole[self.parts[start].start]

    def prompt(self, cut: Cut, end_item: int) -> int:
        """Return the size of all that is kept of the groups up to an item (exclusive)."""
        pins = sum(self.whole(pin, self.parts[pin].end) - self.saved(pin, min(pin + 1, cut.pruned)) for pin in cut.pins)
        return pins + self.whole(cut.boundary, end_item) - self.saved(cut.boundary, cut.pruned)


@dataclass(frozen=True, slots=True)
class _Turn:
    """One request of the past: the items before `end`; its newest group, its newest group with a user's turn (-1: none)."""

    end: int
    newest: int
    user: int


def turns(items: Sequence[Item], parts: Sequence[Group]) -> list[_Turn]:
    """Return the requests that this history was built by: before each answer of the model's, and now."""
    made, user = [], -1
    for number, part in enumerate(parts):
        for at in range(part.start, part.end):
            if items[at].kind is Kind.ASSISTANT and at > parts[0].start:
                made.append(_Turn(at, number if at > part.start else number - 1, user))
            if items[at].kind is Kind.USER:
                user = number
    made.append(_Turn(parts[-1].end, len(parts) - 1, user))
    return made


def fold(sizes: Sizes, rule: Rule) -> Cut:
    """Return where the boundary stands after every turn up to now. Never raises; what cannot be cut stays, and may be over."""
    cut = Cut()
    if not sizes.parts:
        return cut
    for turn in turns(sizes.items, sizes.parts):
        if rule.fixed + sizes.prompt(cut, turn.end) >= rule.limit:
            cut = step(cut, sizes, rule, turn)
    return cut


def step(cut: Cut, sizes: Sizes, rule: Rule, turn: _Turn) -> Cut:
    """Return the cut after one turn that reached the limit. The protections yield, the later first, before the limit does."""
    if rule.prune:
        cut = _pruned(cut, sizes, rule, turn)
        if sizes.prompt(cut, turn.end) <= _goal(rule):
            return cut
    if cut.boundary >= turn.newest:
        return cut
    first, tail = _first(sizes, rule, turn), _tail(sizes, rule, turn)
    if cut.boundary and first and 0 not in cut.pins:
        first = 0  # given up by an earlier cut: it does not come back
    for kept, last in ((first, tail), (first, turn.newest), (0, turn.newest)):
        moved = _moved(cut, sizes, rule, turn, kept, last)
        if rule.fixed + sizes.prompt(moved, turn.end) < rule.limit:
            return moved
    return moved


def _moved(cut: Cut, sizes: Sizes, rule: Rule, turn: _Turn, first: int, last: int) -> Cut:
    """Return the nearest boundary up to group `last` that leaves low water and begins with a user; else the furthest."""
    goal = _goal(rule)

    def at(boundary: int) -> Cut:
        pins = [*range(min(first, boundary)), *([turn.user] if first <= turn.user < boundary else [])]
        return Cut(boundary, tuple(pins), cut.pruned)

    def begins_with_user(made: Cut) -> bool:
        return turn.user < 0 or sizes.parts[made.pins[0] if made.pins else made.boundary].user

    # What is kept never grows with the boundary, as a pin costs what its group did: so the first that is low enough is bisected.
    borders = range(cut.boundary + 1, last + 1)
    low = bisect_left(borders, True, key=lambda boundary: sizes.prompt(at(boundary), turn.end) <= goal)
    candidates = (at(boundary) for boundary in (*borders[low:], *reversed(borders[:low])))
    return next((made for made in candidates if begins_with_user(made)), cut)


def _first(sizes: Sizes, rule: Rule, turn: _Turn) -> int:
    """Return how many first groups stay: those of the first protected messages, none when they hold more than half the limit.

    None also when they do not begin with a user's turn: what follows the leading run must.
    """
    parts = sizes.parts
    if not parts[0].user:
        return 0
    count = 0
    while count < turn.newest and parts[count].start - parts[0].start < rule.protect_first:
        count += 1
    return count if sizes.whole(0, parts[count].start) <= rule.limit // 2 else 0


def _tail(sizes: Sizes, rule: Rule, turn: _Turn) -> int:
    """Return the first group of the tail that stays: the newest one, and the protected tokens before the end.

    Where those would hold more than half the limit, they yield to a quarter of it, so that low water stays in reach.
    """
    protected = rule.protect_last_tokens if rule.protect_last_tokens <= rule.limit // 2 else rule.limit // 4
    first = bisect_left(range(turn.newest), True, key=lambda group: sizes.whole(group, turn.end) <= protected)
    return min(first, turn.newest)


def _goal(rule: Rule) -> int:
    """Return what may be left of the groups after a cut: low water, less what is always there."""
    return int(rule.low_water * rule.limit) - rule.fixed


def _pruned(cut: Cut, sizes: Sizes, rule: Rule, turn: _Turn) -> Cut:
    """Return the cut with old tool outputs pruned, oldest first, until low water is left, at most up to the protected tail.

    One batch, and only if it brings enough: what is over low water then is cut in the same step, so that the prefix is
    rewritten once. Pruning alone, above low water, wore the cache twice as often: 100 cuts for 66 on the transcripts at 8k.
    """
    until = _tail(sizes, rule, turn)
    if until <= cut.pruned:
        return cut
    goal, deeper = _goal(rule), range(cut.pruned + 1, until + 1)
    low = bisect_left(deeper, True, key=lambda pruned: sizes.prompt(replace(cut, pruned=pruned), turn.end) <= goal)
    more = replace(cut, pruned=deeper[min(low, len(deeper) - 1)])
    reclaimed = sizes.prompt(cut, turn.end) - sizes.prompt(more, turn.end)
    return more if reclaimed >= rule.limit * MINIMUM_RECLAIM else cut
