"""Recorded traffic through another configuration, on a simulated cache: what it would have cost, before and after.

Both sides are planned anew by the pure functions of the request path, counted by the same tokenizer, and priced on the same
simulated cache, whose clock is the recorded one: so the difference is the configuration's, and a second run gives the same
figures. Nothing is sent. Calls that were refused before anything was recorded have no body, and are only counted.
"""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from gateway import planning, replay, routing
from gateway.cache.cost import Prices, parts_usd
from gateway.cache.expect import Expectations
from gateway.cache.usage import Usage
from gateway.context import lineage
from gateway.context.admission import Refused
from gateway.context.items import Request
from gateway.context.layout import Arranged
from gateway.context.policy import LayoutPolicy, Policy
from gateway.errors import GatewayError, LedgerError, ModelNotFound
from gateway.ledger.base import Ledger
from gateway.ledger.records import CallFinished, Outcome, PromptComposed
from gateway.planning import Planned
from gateway.routing import Route

WAITING = 50_000  # calls whose answer has not been read yet; what an answer cost is added when it comes


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """One target of a route in a configuration: its name, what the core is told of it, and its prices, None: not known."""

    target: str
    policy: Policy
    prices: Prices | None


@dataclass(slots=True, kw_only=True)
class Side:
    """Sums over the calls of one route under one configuration. Tokens are estimated; `unpriced` calls are in no cost."""

    calls: int = 0
    refused: int = 0
    compacted: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0

    @property
    def hit_ratio(self) -> float | None:
        """The share of the input that the simulated cache held; None when there was no input."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else None

    def add(self, other: "Side") -> None:
        """Add the sums of another side."""
        for name in ("calls", "refused", "compacted", "input_tokens", "cached_tokens", "output_tokens", "cost_usd", "unpriced"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Compared:
    """Both sides of one route. `unreadable`: calls whose records could not be rebuilt, and are on neither side."""

    before: Side = field(default_factory=Side)
    after: Side = field(default_factory=Side)
    unreadable: int = 0

    def add(self, other: "Compared") -> None:
        """Add the sums of another route."""
        self.before.add(other.before)
        self.after.add(other.after)
        self.unreadable += other.unreadable


@dataclass(frozen=True, slots=True)
class _Sent:
    """A prompt that a side would have sent: what the answer's cost still hangs on."""

    input_tokens: int
    prices: Prices | None


@dataclass(frozen=True, slots=True)
class _Owed:
    """Where the cost of an answer goes when its length is read. None: that side refused the call."""

    compared: Compared
    before: _Sent | None
    after: _Sent | None


class WhatIf:
    """One comparison. `routes` and `aims` are of the new configuration; `prices` gives those of a target of the old one."""

    def __init__(
        self,
        routes: tuple[Route, ...],
        aims: Mapping[tuple[str, str], Aim],
        prices: Callable[[str], Prices | None],
    ) -> None:
        self._routes, self._aims, self._prices = routes, aims, prices
        self._replay = replay.Replay()
        self._caches = (Expectations(), Expectations())
        self._owed: OrderedDict[str, _Owed] = OrderedDict()
        self.compared: dict[str, Compared] = {}

    async def run(self, ledger: Ledger, since: datetime | None = None) -> AsyncGenerator[int, None]:
        """Read the ledger once, oldest first; yield how many calls were compared, now and then. Raises as `replay.verify`."""
        count, batch, shelf = 0, replay.Batch(), replay.Shelf(ledger)
        async for record in ledger.read(since=since):
            if isinstance(record, PromptComposed):
                if record.attempt == 1:
                    batch.add(record)
            elif isinstance(record, CallFinished):
                batch.ends.append(record)
            if batch.full:
                count += await self._take(shelf, batch)
                batch = replay.Batch()
                yield count
        yield count + await self._take(shelf, batch)

    async def _take(self, shelf: replay.Shelf, batch: replay.Batch) -> int:
        for record, bodies in await shelf.each(batch.records):
            compared = self.compared.setdefault(record.route, Compared())
            if isinstance(bodies, LedgerError):
                compared.unreadable += 1
                continue
            try:
                self._compare(record, bodies, compared)
            except GatewayError:  # a damaged record: `gateway verify` says which and why
                compared.unreadable += 1
        for end in batch.ends:
            self._answered(end)
        return len(batch.records)

    def _compare(self, record: PromptComposed, bodies: Mapping[bytes, bytes], compared: Compared) -> None:
        request, policy = self._replay.request(record, bodies), self._replay.policy(record, bodies)
        recorded = Aim(target=record.target, policy=policy, prices=self._prices(record.target))
        arranged: dict[LayoutPolicy, Arranged] = {}  # both sides mostly share one layout

        def laid_out(layout: LayoutPolicy) -> Arranged:
            if layout not in arranged:
                arranged[layout] = self._replay.arranged(record, request, layout)
            return arranged[layout]

        before = self._side(0, record, laid_out, [recorded], compared.before)
        after = self._side(1, record, laid_out, self._targets(record, request), compared.after)
        self._owed[record.snapshot_id or record.id] = _Owed(compared, before, after)
        if len(self._owed) > WAITING:
            self._owed.popitem(last=False)

    def _targets(self, record: PromptComposed, request: Request) -> Sequence[Aim]:
        """Return the targets that the new configuration would try; a model unknown to it goes where its old route's name does."""
        try:
            route: Route | None = routing.resolve(self._routes, request.model, named=None)
        except ModelNotFound:
            route = next((each for each in self._routes if each.name == record.route), None)
        return [self._aims[route.name, target.name] for target in route.targets] if route else ()

    def _side(
        self, which: int, record: PromptComposed, laid_out: Callable[[LayoutPolicy], Arranged], aims: Sequence[Aim], side: Side
    ) -> _Sent | None:
        """Add one call to a side: the first target that holds it answers. A side whose targets all refuse returns None."""
        for aim in aims:
            planned = self._replay.plan(laid_out(aim.policy.layout), aim.policy)
            if isinstance(planned, Refused):
                continue
            total, cached = self._cached(which, record, aim, planned)
            side.calls += 1
            side.compacted += planned.plan.cut
            side.input_tokens += total
            side.cached_tokens += cached
            side.unpriced += aim.prices is None
            written = total - cached if aim.prices and aim.prices.cache_write is not None else 0  # what is new is kept
            usage = Usage(input_tokens=total, cached_tokens=cached, written_tokens=written, output_tokens=0)
            side.cost_usd += sum(parts_usd(usage, aim.prices).values())
            return _Sent(total, aim.prices)
        side.refused += 1
        return None

    def _cached(self, which: int, record: PromptComposed, aim: Aim, planned: Planned) -> tuple[int, int]:
        """Return the tokens of a prompt and how many of them the simulated cache holds; then note that it was sent."""
        prompt = planned.prompt
        costs = self._replay.counted(record, prompt.request, replace(aim.policy, safety=1.0))
        end = len(prompt.request.items) - prompt.tail
        links = lineage.links(lineage.seed(record.tenant), prompt.request.items[:end])
        head, now = planning.head_digest(prompt.request), record.at.timestamp()
        cache = self._caches[which]
        cached = cache.expected(aim.target, head, links, costs.items[:end], costs.envelope, now)
        cache.sent(aim.target, head, links, now)
        return costs.total, min(cached, costs.total)

    def _answered(self, end: CallFinished) -> None:
        """Add what an answer cost to both sides, or a refusal that left no body."""
        if not end.snapshot_id:
            if end.outcome is Outcome.REFUSED:
                self.compared.setdefault(end.route, Compared()).before.refused += 1
            return
        owed = self._owed.pop(end.snapshot_id, None)
        if owed is None or end.usage is None or end.usage.output_tokens is None:
            return
        for side, sent in ((owed.compared.before, owed.before), (owed.compared.after, owed.after)):
            if sent is not None:
                usage = Usage(input_tokens=sent.input_tokens, output_tokens=end.usage.output_tokens)
                side.output_tokens += end.usage.output_tokens
                side.cost_usd += parts_usd(usage, sent.prices).get("output", 0.0)
