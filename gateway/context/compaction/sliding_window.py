"""`sliding_window@1`: prune old tool outputs, then drop the oldest groups, rarely and by much."""

import functools
from collections.abc import Sequence

from gateway.context.compaction.boundary import Rule, Sizes, fold, groups
from gateway.context.compaction.plan import Plan
from gateway.context.compaction.pruning import saving
from gateway.context.items import Dialect, Item
from gateway.context.policy import CompactionPolicy

NAME = "sliding_window"
# What always stands is rounded up to this, so that a jittering envelope moves no old boundary; less in a small window,
# where 256 tokens are worth having.
FIXED_STEP = 256
SMALL = 16  # and never more than this part of the limit


def slide(
    items: Sequence[Item],
    sizes: Sequence[int],
    head: int,
    fixed: int,
    limit: int,
    policy: CompactionPolicy,
    dialect: Dialect,
    safety: float = 1.0,
) -> Plan:
    """Return the plan at one limit. `sizes` are the items' tokens, the first `head` of them never move; `fixed` is beside them.

    The result may still be over the limit: then nothing more can go.
    """
    parts = groups(items, head)
    saved = functools.cache(lambda at: saving(items[at], sizes[at], dialect, safety))
    measured = Sizes(items, parts, sizes, saved)
    stable = sum(sizes[:head])
    rule = Rule(
        limit=limit,
        fixed=stepped(fixed, limit) + stable,
        low_water=policy.low_water,
        protect_first=policy.protect_first,
        protect_last_tokens=policy.protect_last_tokens,
        prune=policy.prune_tool_outputs,
    )
    cut = fold(measured, rule)
    keep = [*cut.pins, *range(cut.boundary, len(parts))]
    kept = (*range(head), *(at for n in keep for at in range(parts[n].start, parts[n].end)))
    old = (at for n in keep if n < cut.pruned for at in range(parts[n].start, parts[n].end))
    pruned = tuple(at for at in old if saved(at))
    dropped = len(items) - len(kept)
    return Plan(
        kept=kept,
        pruned=pruned,
        boundary=parts[cut.boundary].start if cut.boundary else 0,
        dropped=dropped,
        before=fixed + sum(sizes),
        after=fixed + stable + (measured.prompt(cut, len(items)) if parts else 0),
        strategy=NAME if dropped or pruned else "none",
    )


def stepped(fixed: int, limit: int) -> int:
    """Return what always stands, rounded up as the fold takes it."""
    step = max(1, min(FIXED_STEP, limit // SMALL))
    return -(-fixed // step) * step
