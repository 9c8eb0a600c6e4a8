"""`sliding_window@1`: prune old tool outputs, then drop the oldest groups, rarely and by much."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.context.compaction.boundary import Folded, Rule, Sizes, folded
from gateway.context.compaction.plan import Plan
from gateway.context.compaction.pruning import saving
from gateway.context.items import Dialect, Item
from gateway.context.policy import CompactionPolicy
from gateway.context.prefixes import Prefixes

NAME = "sliding_window"
# What always stands is rounded up to this, so that a jittering envelope moves no old boundary; less in a small window,
# where 256 tokens are worth having.
FIXED_STEP = 256
SMALL = 16  # and never more than this part of the limit


@dataclass(frozen=True, slots=True)
class Memo:
    """What earlier requests already proved: folds by the items they were over, and pruned items by the digest of the whole."""

    folds: Prefixes[Folded] = field(default_factory=Prefixes)
    pruned: dict[bytes, Item] = field(default_factory=dict)


def slide(
    items: tuple[Item, ...],
    sizes: tuple[int, ...],
    head: int,
    fixed: int,
    limit: int,
    policy: CompactionPolicy,
    dialect: Dialect,
    safety: float = 1.0,
    memo: Memo | None = None,
) -> Plan:
    """Return the plan at one limit. `sizes` are the items' tokens, the first `head` of them never move; `fixed` is beside them.

    The result may still be over the limit: then nothing more can go. The memo changes how long it takes, never the result.
    """
    stable = sum(sizes[:head])
    rule = Rule(
        limit=limit,
        fixed=stepped(fixed, limit) + stable,
        low_water=policy.low_water,
        protect_first=policy.protect_first,
        protect_last_tokens=policy.protect_last_tokens,
        prune=policy.prune_tool_outputs,
    )
    short = {} if memo is None else memo.pruned
    saved = functools.cache(lambda at: saving(items[at], sizes[at], dialect, safety, short))
    key = (rule, head, dialect.name, safety)
    found = None if memo is None else memo.folds.longest(items, key)
    made, measured = folded(items, sizes, head, rule, saved, found[1] if found else None)
    if memo is not None and made.grouped.parts:
        memo.folds.keep(items, key, made, instead_of=found[0] if found else 0)
    return _plan(made, measured, head, fixed + stable, fixed + made.sums[-1], saved)


def _plan(made: Folded, measured: Sizes, head: int, stable: int, before: int, saved: Callable[[int], int]) -> Plan:
    cut, parts, items = made.cut, made.grouped.parts, measured.items
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
        before=before,
        after=stable + (measured.prompt(cut, len(items)) if parts else 0),
        strategy=NAME if dropped or pruned else "none",
    )


def stepped(fixed: int, limit: int) -> int:
    """Return what always stands, rounded up as the fold takes it."""
    step = max(1, min(FIXED_STEP, limit // SMALL))
    return -(-fixed // step) * step
