"""Groups, and the fold that places the boundary: a pure function of the sizes, so every process finds the same one.

Replayed from the first turn: whenever a turn's prompt would reach the limit, first old tool outputs are pruned, then the
boundary moves on, at group borders, until low water is left. It never moves back and always strictly advances. Source:
design, "Compaction that keeps the cache".
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class Grouped:
    """The groups of the items before `end`, and what tells where the next item belongs.

    `waiting` are the calls without a result, by id, with the items that made them; `recent` the calls of the run of
    results that the last items are.
    """

    parts: tuple[Group, ...]
    end: int
    waiting: Mapping[str, tuple[int, ...]]
    recent: frozenset[str] = frozenset()


def groups(items: Sequence[Item], first: int) -> tuple[Group, ...]:
    """Return the groups from item `first` on, in order and without gaps.

    A result belongs to the nearest call before it that is still open: ids recur in real transcripts. A second result for
    a call that was just answered joins it; any other result without an open call stands alone.
    """
    return grouped(items, Grouped((), first, {})).parts


def grouped(items: Sequence[Item], known: Grouped) -> Grouped:
    """Return the groups of all items, going on from those that are known of the first ones. See `groups`."""
    starts = [part.start for part in known.parts[-1:]]  # of each group that may still grow, the last one last
    settled = known.parts[:-1]
    waiting, recent = dict(known.waiting), known.recent
    for index in range(known.end, len(items)):
        item = items[index]
        callers = _callers(item, waiting)
        if callers:
            while starts[-1] > min(callers):
                starts.pop()
                if not starts:
                    starts, settled = [settled[-1].start], settled[:-1]
            recent |= frozenset(item.answers)
        elif not (item.kind is Kind.RESULT and recent.intersection(item.answers)):
            starts.append(index)
            recent = frozenset()
        if item.kind is not Kind.RESULT:
            for each in item.opens:
                waiting[each] = (*waiting.get(each, ()), index)
    ends = [*starts[1:], len(items)] if starts else []
    fresh = (Group(start, end, items[start].kind is Kind.USER) for start, end in zip(starts, ends, strict=True))
    return Grouped(settled + tuple(fresh), len(items), waiting, recent)


def _callers(item: Item, waiting: dict[str, tuple[int, ...]]) -> list[int]:
    """Return the items whose calls a result answers, the nearest for each; they wait no longer."""
    callers = []
    for each in item.answers if item.kind is Kind.RESULT else ():
        if made := waiting.pop(each, None):
            callers.append(made[-1])
            if made[:-1]:
                waiting[each] = made[:-1]
    return callers


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

    def __init__(
        self,
        items: Sequence[Item],
        parts: Sequence[Group],
        whole: Sequence[int],
        saving: Callable[[int], int],
        known: "Folded | None" = None,
    ) -> None:
        self.items = items
        self.parts = parts
        before = (0,) if known is None else known.sums
        self.sums = before + tuple(accumulate(whole[len(before) - 1 :], initial=before[-1]))[1:]
        self.savings = [0] if known is None else list(known.savings)
        self._saving = saving

    def saved(self, start: int, end: int) -> int:
        """Return what pruning groups `start` to `end` saves."""
        while len(self.savings) <= end:
            part = self.parts[len(self.savings) - 1]
            self.savings.append(self.savings[-1] + sum(self._saving(at) for at in range(part.start, part.end)))
        return self.savings[end] - self.savings[start] if end > start else 0

    def whole(self, start: int, end_item: int) -> int:
        """Return the unpruned size from group `start` up to an item (exclusive)."""
        return self.sums[end_item] - self.sums[self.parts[start].start]

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


def turns(items: Sequence[Item], parts: Sequence[Group], known: "Folded | None" = None) -> list[_Turn]:
    """Return the requests that this history was built by: before each answer of the model's, and now.

    Those that were folded before are left out: the answers before item `known.grouped.end`.
    """
    made: list[_Turn] = []
    first, done, user = (0, 0, -1) if known is None else (len(known.grouped.parts) - 1, known.grouped.end, known.user)
    for number in range(first, len(parts)):
        part = parts[number]
        for at in range(max(part.start, done), part.end):
            if items[at].kind is Kind.ASSISTANT and at > parts[0].start:
                made.append(_Turn(at, number if at > part.start else number - 1, user))
            if items[at].kind is Kind.USER:
                user = number
    made.append(_Turn(parts[-1].end, len(parts) - 1, user))
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """The fold over a history, as a value that the fold over a longer one goes on from: a shortcut, never another result.

    `before` stands before the last turn, the one without an answer, since the next history may go on otherwise; `cut` after
    it. `sizes` are the items', `sums` and `savings` what `Sizes` made of them, `user` the newest group with a user's turn.
    """

    grouped: Grouped
    sizes: tuple[int, ...]
    sums: tuple[int, ...]
    savings: tuple[int, ...]
    user: int
    before: Cut
    cut: Cut

    def begins(self, longer: Grouped, sizes: tuple[int, ...]) -> bool:
        """Whether the fold over a longer history goes on from this one: no late result joined old groups, no size changed."""
        last = len(self.grouped.parts) - 1
        same = last < len(longer.parts) and longer.parts[last].start == self.grouped.parts[last].start
        return same and sizes[: len(self.sizes)] == self.sizes


def fold(sizes: Sizes, rule: Rule) -> Cut:
    """Return where the boundary stands after every turn up to now. Never raises; what cannot be cut stays, and may be over."""
    return _replayed(sizes, rule, None)[1]


def _replayed(sizes: Sizes, rule: Rule, known: Folded | None) -> tuple[Cut, Cut, int]:
    """Return the cut before the last turn, the one after it, and the newest group with a user's turn (-1: none)."""
    cut = before = Cut() if known is None else known.before
    if not sizes.parts:
        return cut, cut, -1
    made = turns(sizes.items, sizes.parts, known)
    for turn in made:
        before = cut
        if rule.fixed + sizes.prompt(cut, turn.end) >= rule.limit:
            cut = step(cut, sizes, rule, turn)
    return before, cut, made[-1].user


def folded(
    items: Sequence[Item], sizes: tuple[int, ...], head: int, rule: Rule, saving: Callable[[int], int], known: Folded | None = None
) -> tuple[Folded, Sizes]:
    """Return the fold over these items, of which the first `head` never move, and its sums. `known` is of fewer of the items."""
    made = grouped(items, Grouped((), head, {}) if known is None else known.grouped)
    if known is not None and not known.begins(made, sizes):
        return folded(items, sizes, head, rule, saving)
    measured = Sizes(items, made.parts, sizes, saving, known)
    before, cut, user = _replayed(measured, rule, known)
    savings = tuple(measured.savings)
    return Folded(grouped=made, sizes=sizes, sums=measured.sums, savings=savings, user=user, before=before, cut=cut), measured


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
