"""From a parsed request to a planned prompt and the entry that records it: the part of the path before anything is sent.

Pure but for the counting, which may leave the event loop; the clock and ids are arguments.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gateway.context import admission, fitting, lineage, tokens
from gateway.context.admission import Overrun, Refused, Runway
from gateway.context.compaction import sliding_window
from gateway.context.compaction.plan import Plan
from gateway.context.digest import EMPTY, digest
from gateway.context.items import Prompt, Request
from gateway.context.layout import Arranged
from gateway.context.policy import Policy
from gateway.context.prefixes import Prefixes
from gateway.context.tokens import Costs
from gateway.ledger import codec
from gateway.ledger.records import CompactionApplied, Entry, PromptComposed, Record
from gateway.providers.tokenizers import Counter

LINEAGES = 100_000  # chain ends remembered by one process


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A prompt that fits its target, with the sums that say so."""

    prompt: Prompt
    plan: Plan
    costs: Costs
    runway: Runway

    @property
    def estimate(self) -> int:
        """Tokens of the whole prompt, as admitted."""
        return self.plan.after

    @property
    def sizes(self) -> list[int]:
        """Tokens of each item of the prompt's growing prefix, in order."""
        return [self.costs.items[at] for at in self.plan.kept]


@dataclass(frozen=True, slots=True)
class Memo:
    """What earlier requests already proved. It changes how long planning takes, never what is planned."""

    sizes: Prefixes[tuple[int, ...]] = field(default_factory=Prefixes)
    cuts: sliding_window.Memo = field(default_factory=sliding_window.Memo)


async def plan(arranged: Arranged, policy: Policy, counter: Counter, memo: Memo | None = None) -> Planned | Refused:
    """Return the prompt for one target, or why there is none. Tokens are counted only when the byte estimate does not settle it."""
    memo = memo or Memo()
    costs = tokens.by_bytes(arranged, arranged.dialect, memo.sizes)
    fit = fitting.fit(arranged, costs, policy)
    if isinstance(fit, Overrun):
        costs = await counter.costs(arranged, policy)
        fit = fitting.fit(arranged, costs, policy, memo.cuts)
    return sealed(arranged, fit, costs, policy, memo)


def plan_now(arranged: Arranged, policy: Policy, counter: Counter, memo: Memo | None = None) -> Planned | Refused:
    """Return the same, counted here and now: what a replay runs."""
    memo = memo or Memo()
    costs = tokens.by_bytes(arranged, arranged.dialect, memo.sizes)
    fit = fitting.fit(arranged, costs, policy)
    if isinstance(fit, Overrun):
        costs = counter.costs_now(arranged, policy)
        fit = fitting.fit(arranged, costs, policy, memo.cuts)
    return sealed(arranged, fit, costs, policy, memo)


def sealed(arranged: Arranged, fit: Plan | Overrun | Refused, costs: Costs, policy: Policy, memo: Memo) -> Planned | Refused:
    """Return the finished prompt of a fit that was settled by counted costs, or its refusal."""
    if isinstance(fit, Overrun):
        raise AssertionError("counted costs settle every fit")
    if isinstance(fit, Refused):
        return fit
    prompt = fitting.finish(arranged, fit, costs, policy, arranged.dialect, memo.cuts)
    if isinstance(prompt, Refused):
        return prompt
    return Planned(prompt=prompt, plan=fit, costs=costs, runway=admission.runway(policy, arranged.request))


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the shell knows about one attempt: ids, names, the dialect that the client spoke, and when it was composed."""

    id: str
    at: datetime
    route: str
    session: str
    lineage: str
    tenant: str
    key: str = ""
    request_id: str
    attempt: int
    target: str
    dialect: str = "chat"
    observe: bool
    expected: int

    @property
    def names(self) -> dict[str, Any]:
        """What every record of this attempt is called by, by field."""
        return {
            "snapshot_id": self.id,
            "route": self.route,
            "session": self.session,
            "lineage": self.lineage,
            "tenant": self.tenant,
            "key": self.key,
            "request_id": self.request_id,
        }


class Lineages:
    """Which lineage an earlier request of this process belongs to, by the chain digest at its end; bounded, oldest first out."""

    def __init__(self) -> None:
        self._ends: OrderedDict[bytes, str] = OrderedDict()

    def find(self, links: Sequence[bytes], new: str) -> str:
        """Return the lineage of the deepest earlier request that this one continues, or `new`; then remember this one's end."""
        depth = lineage.continues(links, self._ends.__contains__)
        found = self._ends[links[depth - 1]] if depth else new
        if links:
            self._ends[links[-1]] = found
            if len(self._ends) > LINEAGES:
                self._ends.popitem(last=False)
        return found


def prompt_links(planned: Planned, request: Request, request_links: list[bytes], start: bytes) -> list[bytes]:
    """Return the chain over the prompt's growing prefix (without the notes at its tail), begun from `start`.

    `request` is the arranged one and `request_links` its chain: they serve as they are where nothing else was changed.
    """
    prompt = planned.prompt
    if prompt.request.items is request.items:
        return request_links
    items = prompt.request.items[: len(prompt.request.items) - prompt.tail]
    return request_links if items == request.items else lineage.links(start, items)


def head_digest(request: Request) -> bytes:
    """Return the digest of what a provider renders before the items: the tools."""
    tools = request.value("tools")
    return EMPTY if tools is None else digest(tools)


def sums(planned: Planned) -> dict[str, int | None]:
    """Return the figures that decided the admission, in tokens."""
    runway = planned.runway
    return {
        "estimate": planned.estimate,
        "limit": runway.limit_tokens,
        "window": runway.window_tokens,
        "reserve": runway.reserve_tokens,
    }


def refused_sums(refused: Refused) -> dict[str, int | None]:
    """Return the same figures for a prompt that does not fit: its estimate is what would be required."""
    runway = refused.runway
    return {
        "estimate": refused.required_tokens,
        "limit": runway.limit_tokens,
        "window": runway.window_tokens,
        "reserve": runway.reserve_tokens,
    }


def runway_header(figures: Mapping[str, int | None]) -> str:
    """Return the figures as the response header spells them."""
    return ";".join(f"{name}={'unknown' if value is None else value}" for name, value in figures.items())


def compaction(plan: Plan) -> str:
    """Return the word for the header and the record: `none`, or the strategy with its counts of items."""
    if not plan.cut:
        return "none"
    return f"{plan.strategy};kept={len(plan.kept)};dropped={plan.dropped};pruned={len(plan.pruned)}"


def segments(prompt: Prompt) -> dict[str, int]:
    """Return the estimated tokens of each segment."""
    each = prompt.segments
    return {"stable": each.stable, "semi": each.semi, "dynamic": each.dynamic, "moved": each.moved}


def facts(snapshot: Snapshot, planned: Planned) -> dict[str, str]:
    """Return the response headers that tell of one attempt."""
    return {
        "x-gateway-snapshot-id": snapshot.id,
        "x-gateway-target": snapshot.target,
        "x-gateway-attempts": str(snapshot.attempt),
        "x-gateway-runway": runway_header(sums(planned)),
        "x-gateway-compaction": compaction(planned.plan),
        "x-gateway-layout": ";".join(f"{name}={value}" for name, value in segments(planned.prompt).items()),
        "x-gateway-cache-expected": str(snapshot.expected),
    }


def entry(snapshot: Snapshot, request: Request, planned: Planned, policy_record: tuple[bytes, bytes]) -> Entry:
    """Return what must be acknowledged before the prompt leaves: the snapshot, the cut if there is one, and all their bodies."""
    manifest, bodies = codec.manifest(request)
    sent = manifest
    if planned.prompt.request is not request:
        sent, more = codec.manifest(planned.prompt.request)
        bodies = bodies | more
    policy_digest, policy_body = policy_record
    common: dict[str, Any] = {"at": snapshot.at, **snapshot.names}
    composed = PromptComposed(
        **common,
        id=snapshot.id,
        attempt=snapshot.attempt,
        target=snapshot.target,
        dialect=snapshot.dialect,
        request=manifest,
        prompt=sent,
        prompt_digest=planned.prompt.digest,
        prompt_bytes=len(planned.prompt.body),
        policy=policy_digest,
        evidence={"observe": True} if snapshot.observe else {},
        runway=sums(planned),
        counted=planned.costs.counted,
        compaction=compaction(planned.plan),
        layout=segments(planned.prompt),
        cache_expected_tokens=snapshot.expected,
    )
    records: tuple[Record, ...] = (composed,)
    if planned.plan.cut:
        records += (_cut(snapshot, planned.plan, common),)
    return codec.entry(records, bodies | {policy_digest: policy_body})


def _cut(snapshot: Snapshot, made: Plan, common: Mapping[str, Any]) -> CompactionApplied:
    return CompactionApplied(
        **common,
        id=f"{snapshot.id}-cut",
        scope=f"target:{snapshot.target}",
        strategy=made.strategy,
        kept=len(made.kept),
        dropped=made.dropped,
        pruned=len(made.pruned),
        boundary=made.boundary,
        before_tokens=made.before,
        after_tokens=made.after,
    )


def explanation(planned: Planned | Refused) -> dict[str, object]:
    """Return what `explain` says of one target: the sums, the verdict, the segments, and what would be cut."""
    if isinstance(planned, Refused):
        return {"verdict": "refused", "runway": refused_sums(planned), "reason": planned.sums()}
    cut = planned.plan
    return {
        "verdict": "fits",
        "runway": sums(planned),
        "counted": planned.costs.counted,
        "compaction": compaction(cut),
        "cut": {"kept": len(cut.kept), "dropped": cut.dropped, "pruned": len(cut.pruned), "before": cut.before, "after": cut.after},
        "segments": segments(planned.prompt),
        "cache_marks": [],
        "prompt_bytes": len(planned.prompt.body),
    }
