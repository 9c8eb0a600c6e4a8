"""The plan that the fold comes to."""

from gateway.context.compaction.plan import Plan
from gateway.context.compaction.sliding_window import slide, stepped
from gateway.context.policy import CompactionPolicy
from gateway.dialects.chat import CHAT
from tests.context.talks import assistant, request, system, user

TALK = [system(), user("first"), assistant("a"), user("second"), assistant("b"), user("third")]


def plan(limit: int, fixed: int = 10) -> Plan:
    return slide(request(TALK).items, [100] * 6, 1, fixed, limit, CompactionPolicy(protect_last_tokens=0), CHAT)


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
