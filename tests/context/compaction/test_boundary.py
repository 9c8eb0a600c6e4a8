"""Groups stay whole, and the fold is the same as a process that remembered each turn."""

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.compaction.boundary import Cut, Group, Rule, Sizes, fold, groups, step, turns
from gateway.context.items import Item, Kind
from tests.context.talks import Message, assistant, calls, jumbles, request, result, system, talks, user

GROUPS: list[tuple[list[Message], list[tuple[int, int]]]] = [
    ([user(), assistant(), user()], [(0, 1), (1, 2), (2, 3)]),
    ([user(), calls("a", "b"), result("a"), result("b"), assistant()], [(0, 1), (1, 4), (4, 5)]),
    ([calls("a"), result("a"), calls("a"), result("a")], [(0, 2), (2, 4)]),
    ([calls("a"), user(), result("a"), user()], [(0, 3), (3, 4)]),
    ([result("x"), user(), result("y")], [(0, 1), (1, 2), (2, 3)]),
    ([calls("a"), result("a"), result("a"), user()], [(0, 3), (3, 4)]),
    ([calls("a"), result("a"), user(), result("a")], [(0, 2), (2, 3), (3, 4)]),
    ([calls("a"), calls("b"), result("b"), result("a")], [(0, 4)]),
]


@pytest.mark.parametrize(("messages", "expected"), GROUPS)
def test_a_call_and_its_results_are_one_group(messages: list[Message], expected: list[tuple[int, int]]) -> None:
    assert expected == [(group.start, group.end) for group in groups(request(messages).items, 0)]


@given(jumbles())
@settings(max_examples=60, deadline=None)
def test_groups_cover_everything_once_in_order(messages: list[Message]) -> None:
    parts = groups(request(messages).items, 0)

    assert list(range(len(messages))) == [at for part in parts for at in range(part.start, part.end)]


RULE = Rule(limit=700, fixed=60, low_water=0.5, protect_first=1, protect_last_tokens=200, prune=True)


def sizes_of(items: tuple[Item, ...], parts: tuple[Group, ...]) -> Sizes:
    whole = [len(item.raw) // 4 + 1 for item in items]
    return Sizes(items, parts, whole, lambda at: max(0, whole[at] - 40) if items[at].answers else 0)


@given(talks())
@settings(max_examples=60, deadline=None)
def test_the_fold_finds_what_a_process_with_a_memory_would(messages: list[Message]) -> None:
    """The twin sees one turn at a time, each with no more of the history than there was, and remembers only its last cut."""
    items = request(messages).items
    head = next((at for at, message in enumerate(messages) if message["role"] != "system"), len(messages))
    ends = [at for at, message in enumerate(messages) if message["role"] == "assistant" and at > head]
    remembered = Cut()
    for end in [*ends, len(items)]:
        seen = items[:end]
        sizes = sizes_of(seen, groups(seen, head))
        turn = turns(seen, sizes.parts)[-1]
        if RULE.fixed + sizes.prompt(remembered, end) >= RULE.limit:
            moved = step(remembered, sizes, RULE, turn)
            assert moved.boundary >= remembered.boundary
            assert moved.pruned >= remembered.pruned
            remembered = moved

        assert remembered == fold(sizes, RULE)


class Twin:
    """The same rules written again, plainly: lists of items, sums over them, every candidate tried in turn; state is kept."""

    def __init__(self, items: tuple[Item, ...], head: int, rule: Rule) -> None:
        self.items, self.head, self.rule = items, head, rule
        self.gone: set[int] = set()  # items
        self.front = self.boundary = 0  # first item that is not pruned, first that is not cut
        self.first_lost = False

    def size(self, gone: set[int], front: int, end: int) -> int:
        kept = [at for at in range(self.head, end) if at not in gone]
        whole = {at: len(self.items[at].raw) // 4 + 1 for at in kept}
        return self.rule.fixed + sum(min(whole[at], 40) if self.items[at].answers and at < front else whole[at] for at in kept)

    def turn(self, end: int) -> None:
        """Take a request of the items before `end`."""
        rule, starts = self.rule, [g.start for g in groups(self.items[:end], self.head)]
        if self.size(self.gone, self.front, end) < rule.limit:
            return
        newest, tail = starts[-1], starts[-1]
        allowed = rule.protect_last_tokens if rule.protect_last_tokens <= rule.limit // 2 else rule.limit // 4
        for start in reversed(starts):
            if self.size(set(range(self.head, start)), self.head, end) - rule.fixed <= allowed:
                tail = start
        low = int(rule.low_water * rule.limit)
        if rule.prune and tail > self.front:
            fronts = [start for start in [*starts, end] if self.front < start <= tail]
            enough = [front for front in fronts if self.size(self.gone, front, end) <= low]
            front = [*enough, tail][0]
            saved = self.size(self.gone, self.front, end) - self.size(self.gone, front, end)
            self.front = front if saved >= rule.limit * 0.1 else self.front
            if self.size(self.gone, self.front, end) <= low:
                return
        if self.boundary < newest:
            self.cut(starts, tail, newest, end)

    def cut(self, starts: list[int], tail: int, newest: int, end: int) -> None:
        users = [at for at in starts if self.items[at].kind is Kind.USER]
        opening = [at for at in starts if at - self.head < self.rule.protect_first and at < newest]
        after = next(at for at in [*starts, end] if at not in opening)
        held = self.size(set(range(after, end)), self.head, end) - self.rule.fixed
        protected = after if users and users[0] == self.head and held <= self.rule.limit // 2 and not self.first_lost else self.head
        for keep, last in ((protected, tail), (protected, newest), (self.head, newest)):
            made = []
            for start in (at for at in starts if max(self.boundary, self.head) < at <= last):
                gone = set(range(keep, start)) - self.group_of(users[-1] if users else -1, starts, end)
                first = min(at for at in range(self.head, end) if at not in gone)
                if not users or self.items[first].kind is Kind.USER:
                    made.append((start, gone, self.size(gone, self.front, end)))
            low = int(self.rule.low_water * self.rule.limit)
            best = next((each for each in made if each[2] <= low), made[-1] if made else None)
            if best and (best[2] < self.rule.limit or keep == self.head):
                self.boundary, self.gone = best[0], best[1]
                self.first_lost = self.head in best[1]
            if self.size(self.gone, self.front, end) < self.rule.limit:
                return

    def group_of(self, start: int, starts: list[int], end: int) -> set[int]:
        return set(range(start, next((at for at in starts if at > start), end))) if start >= 0 else set()


@given(talks(), st.booleans(), st.integers(0, 3), st.sampled_from([0, 200, 900]), st.sampled_from([300, 700, 1500]))
@settings(max_examples=100, deadline=None)
def test_the_fold_is_what_a_plain_second_writing_of_it_finds(
    messages: list[Message], prune: bool, first: int, last: int, limit: int
) -> None:
    items = request(messages).items
    rule = replace(RULE, prune=prune, protect_first=first, protect_last_tokens=last, limit=limit)
    head = next((at for at, message in enumerate(messages) if message["role"] != "system"), len(messages))
    parts = groups(items, head)
    cut = fold(sizes_of(items, parts), rule)
    twin = Twin(items, head, rule)
    for end in [*(at for at, message in enumerate(messages) if message["role"] == "assistant" and at > head), len(items)]:
        twin.turn(end)
    kept = [at for n in (*cut.pins, *range(cut.boundary, len(parts))) for at in range(parts[n].start, parts[n].end)]

    assert kept == [at for at in range(head, len(items)) if at not in twin.gone]
    assert (parts[cut.pruned].start if cut.pruned else 0) == twin.front


@given(talks())
@settings(max_examples=100, deadline=None)
def test_a_cut_advances_keeps_the_newest_and_begins_with_a_user(messages: list[Message]) -> None:
    items = request(messages).items
    head = next((at for at, message in enumerate(messages) if message["role"] != "system"), len(messages))
    parts = groups(items, head)
    cut = fold(sizes_of(items, parts), RULE)
    kept = [*cut.pins, *range(cut.boundary, len(parts))]
    users = [n for n, part in enumerate(parts) if part.user]

    assert kept == sorted(set(kept))
    assert len(parts) - 1 in kept
    assert users[-1] in kept
    assert parts[kept[0]].user


def test_the_first_message_yields_when_it_holds_more_than_half() -> None:
    items = request([user("x" * 2000), assistant(), *[user("y" * 400), assistant()] * 4, user()]).items
    cut = fold(sizes_of(items, groups(items, 0)), RULE)

    assert 0 not in cut.pins


def test_system_turns_in_the_middle_are_ordinary() -> None:
    items = request([user("x" * 900), assistant("a" * 900), system("late"), user("y" * 900), assistant(), user()]).items
    parts = groups(items, 0)
    cut = fold(sizes_of(items, parts), RULE)

    assert parts[cut.boundary].start > 2


def test_a_thousand_messages_fold_in_little_time() -> None:
    messages = [
        message for n in range(250) for message in (user("u" * 200), calls("c"), result("c", "r" * 900), assistant("a" * 200))
    ]
    items = request(messages).items
    best = 1.0
    for _ in range(10):
        began = time.process_time()
        fold(sizes_of(items, groups(items, 0)), replace(RULE, limit=20_000))
        best = min(best, time.process_time() - began)

    assert len(items) == 1_000
    assert best < 0.01  # 2 to 4 ms on a quiet machine
