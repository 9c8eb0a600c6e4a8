"""The plan that the fold comes to."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.compaction.plan import Plan
from gateway.context.compaction.sliding_window import Memo, slide, stepped
from gateway.context.items import Kind
from gateway.context.policy import CompactionPolicy
from gateway.dialects.chat import CHAT
from tests.context.talks import Message, assistant, jumbles, request, result, system, talks, user

TALK = [system(), user("first"), assistant("a"), user("second"), assistant("b"), user("third")]


def plan(limit: int, fixed: int = 10) -> Plan:
    return slide(request(TALK).items, (100,) * 6, 1, fixed, limit, CompactionPolicy(protect_last_tokens=0), CHAT)


def test_a_cut_leaves_low_water_and_adds_up() -> None:
    made = plan(600)

    assert made.after == 10 + 100 * len(made.kept) <= 310
    assert made.dropped + len(made.kept) == 6
    assert made.before == 610
    assert {0, 1, 5} <= set(made.kept)


def test_a_jittering_envelope_moves_no_boundary() -> None:
    assert len({plan(600, fixed).kept for fixed in range(75, 110)}) == 1


def test_a_small_window_is_rounded_in_small_steps() -> None:
    assert (stepped(10, 780), stepped(10, 100_000)) == (48, 256)


@given(st.one_of(talks(max_turns=12), jumbles()), st.sampled_from([300, 700, 1_500]), st.booleans(), st.data())
@settings(max_examples=150, deadline=None)
def test_a_fold_that_goes_on_from_an_earlier_one_is_the_fold_from_the_first_message(
    messages: list[Message], limit: int, prune: bool, data: st.DataObject
) -> None:
    """Requests of the same history at any length and in any order, forks among them, share one memo."""
    rule, memo = CompactionPolicy(protect_last_tokens=200, prune_tool_outputs=prune), Memo()
    for _ in range(data.draw(st.integers(1, 6))):
        items = request(messages[: data.draw(st.integers(1, len(messages)))]).items
        if data.draw(st.booleans()):
            items = (*items, *request([result("a", "late"), assistant("fork"), user("then")]).items)
        sizes = tuple(len(item.raw) // 4 + 1 for item in items)
        head = next((at for at, item in enumerate(items) if item.kind is not Kind.SYSTEM), len(items))

        assert slide(items, sizes, head, 10, limit, rule, CHAT) == slide(items, sizes, head, 10, limit, rule, CHAT, memo=memo)


def test_sizes_that_changed_are_not_those_of_the_fold_before() -> None:
    memo, items, rule = Memo(), request(TALK).items, CompactionPolicy(protect_last_tokens=0)
    slide(items, (100,) * 6, 1, 10, 450, rule, CHAT, memo=memo)

    assert slide(items, (10,) * 6, 1, 10, 450, rule, CHAT, memo=memo) == slide(items, (10,) * 6, 1, 10, 450, rule, CHAT)
