"""When a plan counts as a cut."""

from gateway.context.compaction.plan import Plan


def test_a_plan_is_a_cut_when_anything_was_dropped_or_pruned() -> None:
    assert [p.cut for p in (Plan(kept=(0,)), Plan(kept=(), dropped=1), Plan(kept=(0,), pruned=(0,)))] == [False, True, True]
