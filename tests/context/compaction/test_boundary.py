"""Groups stay whole, and the fold is the same as a process that remembered each turn."""

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings

from gateway.context.compaction.boundary import Cut, Group, Rule, Sizes, fold, groups, step, turns
from gateway.context.items import Item
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
@settings(max_examples=150, deadline=None)
def test_groups_cover_everything_once_in_order(messages: list[Message]) -> None:
    parts = groups(request(messages).items, 0)

    assert list(range(len(messages))) == [at for part in parts for at in range(part.start, part.end)]


RULE = Rule(limit=700, fixed=60, low_water=0.5, protect_first=1, protect_last_tokens=200, prune=True)


def sizes_of(items: tuple[Item, ...], parts: list[Group]) -> Sizes:
    whole = [len(item.raw) // 4 + 1 for item in items]
    return Sizes(items, parts, whole, lambda at: max(0, whole[at] - 40) if items[at].answers else 0)


@given(talks())
@settings(max_examples=150, deadline=None)
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
    for _ in range(5):
        began = time.perf_counter()
        fold(sizes_of(items, groups(items, 0)), replace(RULE, limit=20_000))
        best = min(best, time.perf_counter() - began)

    assert best < 0.02  # 2 to 4 ms on a quiet machine; room for a busy one
