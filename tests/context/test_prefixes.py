"""What is found was made from the very same first items, or is not found."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.prefixes import LOOK_BACK, Prefixes
from tests.context.talks import request, user

ITEMS = request([user(f"{n}") for n in range(4)]).items


@given(st.lists(st.lists(st.integers(0, 3), max_size=9), min_size=1, max_size=12), st.integers(100, 2_000))
@settings(max_examples=200, deadline=None)
def test_a_value_is_found_for_a_prefix_that_was_kept_and_for_nothing_else(series: list[list[int]], limit: int) -> None:
    memo, kept = Prefixes[tuple[int, ...]](limit), set[tuple[int, ...]]()
    for picks in series:
        items = tuple(ITEMS[n] for n in picks)
        found = memo.longest(items, "k")
        if found is not None:
            assert found[1] == tuple(picks[: found[0]])
            assert found[1] in kept
        assert memo.longest(items, "another key") is None
        memo.keep(items, "k", tuple(picks), instead_of=found[0] if found else 0)
        kept.add(tuple(picks))
        if picks:
            assert memo.longest((*items, ITEMS[0]), "k") is not None


def test_a_history_that_parted_is_not_taken_for_the_same() -> None:
    memo = Prefixes[str]()
    memo.keep(ITEMS[:3], "k", "one")

    assert memo.longest((ITEMS[3], *ITEMS[1:3]), "k") is None


def test_only_so_many_bytes_are_kept_and_items_looked_back() -> None:
    long, size = (ITEMS[0],) * 40, len(ITEMS[0].raw)
    memo = Prefixes[int](limit_bytes=200 * size)
    for number in range(40):
        memo.keep((*long, *(ITEMS[1],) * number), "k", number)

    assert memo.longest((*long, *(ITEMS[1],) * 39), "k") == (79, 39)
    assert memo.longest(long, "k") is None
    assert memo.longest((*long, *(ITEMS[1],) * 39, *(ITEMS[2],) * LOOK_BACK), "k") is None
