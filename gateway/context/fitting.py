"""Fits an arranged request to one target, and seals it: the two pure steps that a replay runs again."""

import math

from gateway.context import admission, edits
from gateway.context.admission import UNSETTLED, Overrun, Refused
from gateway.context.compaction.plan import Plan
from gateway.context.compaction.pruning import pruned
from gateway.context.compaction.sliding_window import Memo, slide, stepped
from gateway.context.digest import digest
from gateway.context.items import Dialect, Item, Kind, Prompt, Request, Segments
from gateway.context.layout import Arranged
from gateway.context.policy import Policy, Strategy
from gateway.context.tokens import Costs


def fit(arranged: Arranged, costs: Costs, policy: Policy, memo: Memo | None = None) -> Plan | Overrun | Refused:
    """Return what stays of the conversation at this target; Overrun when it must be counted first; Refused when it cannot fit.

    `after` holds what the target's own edits add. A byte estimate is believed only under two thirds of the limit: hex,
    digits and emoji have fewer than three bytes a token. What the fold would cut is cut even where a small output limit
    leaves room for it, so that the boundary does not follow a jittering one.
    """
    request = arranged.request
    runway = admission.runway(policy, request)
    limit, placing = runway.limit_tokens, admission.placing_limit(policy, request)
    fixed = costs.envelope + costs.notes + _added(request, policy, costs)
    sized = sum(costs.items)
    total = fixed + sized
    if limit is None or placing is None:
        return _everything(request, total)
    if not costs.counted:
        settled = total * UNSETTLED * max(1.0, policy.safety) < min(limit, placing)
        return _everything(request, total) if settled else Overrun()
    if policy.compaction.strategy is Strategy.OFF:
        reason = "compaction is off and the prompt does not fit"
        return _everything(request, total) if total < limit else Refused(required_tokens=total, runway=runway, reason=reason)
    # As the fold sees it, with the same rounding: else a boundary could appear in the past one turn later.
    if total < limit and stepped(fixed, placing) + sized < placing:
        return _everything(request, total)
    where = (policy.compaction, arranged.dialect, costs.safety, memo)
    plan = slide(request.items, costs.items, arranged.head, fixed, placing, *where)
    if plan.after >= limit > 0:
        plan = slide(request.items, costs.items, arranged.head, fixed, limit, *where)
    return plan if plan.after < limit else Refused(required_tokens=plan.after, runway=runway)


def _everything(request: Request, total: int) -> Plan:
    return Plan(kept=tuple(range(len(request.items))), before=total, after=total)


def finish(
    arranged: Arranged, plan: Plan, costs: Costs, policy: Policy, dialect: Dialect, memo: Memo | None = None
) -> Prompt | Refused:
    """Return the sealed prompt: the plan applied, notes at the tail, the target's edits in their fixed order.

    Nothing to change: the body is the client's, byte for byte. Refused when the edits made it too long after all.
    """
    request = arranged.request
    items: tuple[Item, ...] = request.items
    if plan.cut:
        old, short = set(plan.pruned), None if memo is None else memo.pruned
        items = tuple(pruned(items[at], dialect, short) if at in old else items[at] for at in plan.kept)
    items = (*items, *arranged.notes) if arranged.notes else items
    if not policy.developer_role and any(item.role == "developer" for item in items):
        items = tuple(dialect.with_role(item, "system") if item.role == "developer" else item for item in items)
    if items is not request.items:
        request = request.with_items(items)
    request = edits.shrunk(edits.spelled(request, policy), plan.after, policy)
    runway = admission.runway(policy, request)
    after = plan.after + max(0, _tokens(edits.size(request), costs) - _tokens(_most(arranged.request, policy), costs))
    if runway.limit_tokens is not None and after >= runway.limit_tokens:
        return Refused(required_tokens=after, runway=runway)
    body = request.body()
    segments = _segments(arranged, plan, costs)
    return Prompt(request=request, body=body, digest=digest(body), segments=segments, tail=len(arranged.notes))


def _most(request: Request, policy: Policy) -> int:
    """Return the bytes of the envelope that `fit` has paid for: as it came, or as the target wants it if that is longer."""
    return max(edits.size(request), edits.size(edits.spelled(request, policy)))


def _added(request: Request, policy: Policy, costs: Costs) -> int:
    return _tokens(_most(request, policy) - edits.size(request), costs)


def _tokens(size_bytes: int, costs: Costs) -> int:
    """Return what bytes that nobody counted may cost at most: two of them a token."""
    return math.ceil(size_bytes / 2 * max(1.0, costs.safety))


def _segments(arranged: Arranged, plan: Plan, costs: Costs) -> Segments:
    """Return the sizes: tools and leading run; what was given before the first question; and all that follows."""
    stable = sum(costs.items[: arranged.head]) + costs.envelope
    question = _first_question(arranged)
    semi = sum(costs.items[at] for at in plan.kept if arranged.head <= at < question)
    return Segments(stable=stable, semi=semi, dynamic=max(0, plan.after - stable - semi), moved=costs.notes)


def _first_question(arranged: Arranged) -> int:
    """Return the index of the user's turn just before the first answer: what stands before it is context, not conversation."""
    at = arranged.head
    for index in range(arranged.head, len(arranged.request.items)):
        kind = arranged.request.items[index].kind
        if kind is Kind.ASSISTANT:
            break
        at = index if kind is Kind.USER else at
    return at
