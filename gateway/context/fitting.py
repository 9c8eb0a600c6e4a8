"""Fits an arranged request to one target, and seals it: the two pure steps that a replay runs again."""

import json
from dataclasses import replace

from gateway.context import admission
from gateway.context.admission import UNSETTLED, Overrun, Refused
from gateway.context.compaction.plan import Plan
from gateway.context.compaction.pruning import pruned
from gateway.context.compaction.sliding_window import slide
from gateway.context.digest import digest
from gateway.context.items import Dialect, Item, Prompt, Request, Segments
from gateway.context.layout import Arranged
from gateway.context.policy import Policy, Strategy
from gateway.context.tokens import Costs


def fit(arranged: Arranged, costs: Costs, policy: Policy) -> Plan | Overrun | Refused:
    """Return what stays of the conversation at this target; Overrun when it must be counted first; Refused when it cannot fit.

    A byte estimate is believed only under two thirds of the limit: hex, digits and emoji have fewer than three bytes a token.
    """
    runway = admission.runway(policy, arranged.request)
    limit, placing = runway.limit_tokens, admission.placing_limit(policy, arranged.request)
    everything = Plan(kept=tuple(range(len(arranged.request.items))), before=costs.total, after=costs.total)
    if limit is None or placing is None:
        return everything
    if not costs.counted:
        settled = costs.total * UNSETTLED < min(limit, placing)
        return everything if settled else Overrun()
    off = policy.compaction.strategy is Strategy.OFF
    if costs.total < (limit if off else min(limit, placing)):
        return everything
    if off:
        return Refused(required_tokens=costs.total, runway=runway, reason="compaction is off and the prompt does not fit")
    items, sizes = arranged.request.items, costs.items
    fixed = costs.envelope + costs.notes
    plan = slide(items, sizes, arranged.head, fixed, placing, policy.compaction)
    if plan.after >= limit > 0:
        plan = slide(items, sizes, arranged.head, fixed, limit, policy.compaction)
    return plan if plan.after < limit else Refused(required_tokens=plan.after, runway=runway)


def finish(arranged: Arranged, plan: Plan, costs: Costs, policy: Policy, dialect: Dialect) -> Prompt | Refused:
    """Return the sealed prompt: the plan applied, notes at the tail, the target's edits in their fixed order."""
    request = arranged.request
    items: tuple[Item, ...] = request.items
    if plan.cut:
        old = set(plan.pruned)
        items = tuple(pruned(items[at], dialect) if at in old else items[at] for at in plan.kept)
    items = (*items, *arranged.notes) if arranged.notes else items
    if not policy.developer_role and any(item.role == "developer" for item in items):
        items = tuple(dialect.with_role(item, "system") if item.role == "developer" else item for item in items)
    if items is not request.items:
        request = request.with_items(items)
    request = _edited(request, plan, policy)
    body = request.body()
    segments = _segments(arranged, plan, costs)
    return Prompt(request=request, body=body, digest=digest(body), segments=segments, tail=len(arranged.notes))


def _segments(arranged: Arranged, plan: Plan, costs: Costs) -> Segments:
    stable = sum(costs.items[: arranged.head]) + costs.envelope
    return Segments(stable=stable, dynamic=max(0, plan.after - stable), moved=costs.notes)


def _edited(request: Request, plan: Plan, policy: Policy) -> Request:
    if request.model != policy.model:
        request = replace(request.with_value("model", json.dumps(policy.model).encode()), model=policy.model)
    if policy.shrink_output:
        request = _shrunk(request, plan, policy)
    for old, new in policy.rename_fields:
        request = request.renamed(old, new)
    for name in policy.drop_fields:
        request = request.without(name)
    if request.stream and not request.include_usage and policy.ask_usage and "stream_options" not in policy.drop_fields:
        request = _asking_usage(request)
    return request


def _shrunk(request: Request, plan: Plan, policy: Policy) -> Request:
    if request.output_limit is None or request.output_limit_field is None:
        return request
    allowed = request.output_limit
    if policy.window.output_limit is not None:
        allowed = min(allowed, policy.window.output_limit)
    if policy.window.tokens is not None:
        kept_free = admission.kept_free(policy)
        allowed = min(allowed, policy.window.tokens - kept_free - plan.after)
    if allowed >= request.output_limit:
        return request
    return replace(request.with_value(request.output_limit_field, b"%d" % allowed), output_limit=allowed)


def _asking_usage(request: Request) -> Request:
    """Ask for the usage of a stream, the other options as they are; the answer's extra chunk is kept from the client."""
    options = json.loads(request.value("stream_options") or b"null")
    asked = {**options, "include_usage": True} if isinstance(options, dict) else {"include_usage": True}
    return request.with_value("stream_options", json.dumps(asked, separators=(",", ":")).encode())
