"""`sliding_window@1`: prune old tool outputs, then drop the oldest groups, rarely and by much."""

import math
from collections.abc import Sequence

from gateway.context.compaction.boundary import Cut, Rule, Sizes, fold, groups
from gateway.context.compaction.plan import Plan
from gateway.context.items import Item, Kind
from gateway.context.policy import CompactionPolicy

NAME = "sliding_window"
FIXED_STEP = 256  # what always stands is rounded up to this, so that a jittering envelope moves no old boundary
MARKER_TOKENS = 40  # a pruned result: its marker, id and role


def slide(items: Sequence[Item], sizes: Sequence[int], head: int, fixed: int, limit: int, policy: CompactionPolicy) -> Plan:
    """Return the plan at one limit. `sizes` are the items' tokens, the first `head` of them never move; `fixed` is beside them.

    The result may still be over the limit: then nothing more can go.
    """
    stable = sum(sizes[:head])
    rule = Rule(
        limit=limit,
        fixed=math.ceil(fixed / FIXED_STEP) * FIXED_STEP + stable,
        low_water=policy.low_water,
        protect_first=policy.protect_first,
        protect_last_tokens=policy.protect_last_tokens,
        prune=policy.prune_tool_outputs,
    )
    parts = groups(items, head)
    short = [min(size, MARKER_TOKENS) if item.kind is Kind.RESULT else size for item, size in zip(items, sizes, strict=True)]
    measured = Sizes(parts, sizes, short)
    cut = fold(parts, measured, rule)
    keep = [n for n in range(len(parts)) if n >= cut.boundary or n in cut.pins]
    kept = (*range(head), *(at for n in keep for at in range(parts[n].start, parts[n].end)))
    old = [at for n in keep if n < cut.pruned for at in range(parts[n].start, parts[n].end)]
    pruned = tuple(at for at in old if short[at] < sizes[at])
    before = fixed + sum(sizes)
    return Plan(
        kept=kept,
        pruned=pruned,
        boundary=parts[cut.boundary].start if cut.boundary else 0,
        dropped=len(items) - len(kept),
        before=before,
        after=fixed + stable + measured.prompt(cut, len(parts)),
        strategy=NAME if cut != Cut() else "none",
    )
