"""The request path: plan for each target, record, send, and go on from the draft when a target gives way.

Knows ports and values; which adapters stand behind the ports is the composition root's business.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gateway import charges, planning, routing
from gateway.attempts import Attempt, Attempts, Delivered
from gateway.cache.expect import Expectations
from gateway.cache.rules import TABLE, Rule
from gateway.context import layout, lineage
from gateway.context.admission import Refused
from gateway.context.items import Request
from gateway.context.layout import Arranged
from gateway.context.policy import Policy
from gateway.delivery import OFF_LOOP_BYTES, Answer, Call, Delivery, Meter
from gateway.dialects import table
from gateway.dialects.memo import Memo
from gateway.errors import ContextLengthExceeded, InvalidRequest, LimitExceeded, LimitsUnavailable, RouteNotAllowed
from gateway.ledger.base import Ledger
from gateway.ledger.records import CallFinished, Entry, Outcome
from gateway.limits.reservations import Reservation, Reservations
from gateway.planning import Lineages, Planned, Snapshot
from gateway.providers.base import Upstream
from gateway.providers.failures import retry_after_s
from gateway.providers.tokenizers import Counter
from gateway.recorder import Recorder
from gateway.routing import Cooldowns, Route, Target

__all__ = ["Aim", "Answer", "Call", "Gateway", "Meter", "Thread"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """One target of one route, with what was resolved for it at start. `policy_record` is the policy's digest and bytes."""

    target: Target
    policy: Policy
    policy_record: tuple[bytes, bytes]
    upstream: Upstream
    prices: routing.Prices | None = None
    rule: Rule = TABLE["prefix"]


@dataclass(slots=True, kw_only=True)
class Gateway:
    """Everything that requests share, and the path they take."""

    routes: tuple[Route, ...]
    aims: Mapping[tuple[str, str], Aim]  # by route name and target name
    ledger: Ledger
    counter: Counter
    new_id: Callable[[], str]
    meter: Meter
    memos: Mapping[str, Memo] = field(default_factory=table.memos)  # by dialect
    scans: layout.Scans = field(default_factory=dict)
    plans: planning.Memo = field(default_factory=planning.Memo)
    expectations: Expectations = field(default_factory=Expectations)
    lineages: Lineages = field(default_factory=Lineages)
    cooldowns: Cooldowns = field(default_factory=Cooldowns)
    reservations: Reservations = field(default_factory=Reservations)
    recorder: Recorder = field(init=False)
    delivery: Delivery = field(init=False)

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.ledger, self.meter)
        self.delivery = Delivery(recorder=self.recorder, meter=self.meter, new_id=self.new_id)

    async def complete(self, call: Call, facts: dict[str, str]) -> Answer:
        """Answer one call. `facts` fills with what the response headers say, for errors too.

        Raises GatewayError: nothing was sent, or every attempt failed. SnapshotUnavailable: the record could not be made,
        so the prompt was not sent. Cancelling it (the client left) cuts the provider's call and still records its end.
        """
        request, session = await self._parse(call)
        route = self._route(call, request)
        facts["x-gateway-route"] = route.name
        arranged = layout.arrange(request, route.layout, call.dialect, observe=call.observe, memo=self.scans)
        thread = self._thread(call, route, arranged.request, call.session or session)
        try:
            return await self._attempt(call, route, request, arranged, thread, facts)
        finally:
            thread.reservation.close()  # no claim follows; each is settled when its attempt has ended

    async def _attempt(
        self, call: Call, route: Route, request: Request, arranged: Arranged, thread: "Thread", facts: dict[str, str]
    ) -> Answer:
        """Go from target to target until one answers; see `complete`."""
        attempts = Attempts(route.retry)
        for target in routing.order(route.targets, self.cooldowns.cooling(time.monotonic())):
            aim = self.aims[route.name, target.name]
            if call.dialect.name not in aim.policy.speaks:
                spoken = " or ".join(aim.policy.speaks)
                raise InvalidRequest(f"{target.name} speaks {spoken} and is not sent {call.dialect.name}; use another route")
            planned = await planning.plan(arranged, aim.policy, self.counter, self.plans)
            if isinstance(planned, Refused):
                attempts.refused(target.name, planned)
                facts["x-gateway-runway"] = planning.runway_header(planning.refused_sums(planned))
                self.meter.refused(route.name, target.name)
                continue
            while attempts.left(target.name):
                attempt = await self._record(call, route, aim, request, planned, thread, attempts, facts)
                delivered = await self.delivery.send(call, attempt, aim.upstream, attempts)
                if delivered.failure is None:
                    self.cooldowns.succeeded(attempt.target)
                    self.expectations.sent(attempt.target, *attempt.prefix, time.monotonic())
                    return await self.delivery.answer(call, attempt, delivered, attempts, facts)
                self._gave_way(attempt, delivered, route, attempts)
                if not await attempts.again(target.name):
                    break
            if attempts.final:
                break
        raise self._failed(call, route, thread, attempts)

    async def routed(self, call: Call) -> tuple[Request, Route]:
        """Return the request and its route, for what is no completion."""
        request, _ = await self._parse(call)
        return request, self._route(call, request)

    async def _parse(self, call: Call) -> tuple[Request, str | None]:
        """Return the request as targets may see it, and the session that its `gateway` object names."""
        dialect, memo = call.dialect, self.memos[call.dialect.name]
        if len(call.body) > OFF_LOOP_BYTES and not memo.knows(call.body):
            request = await asyncio.to_thread(dialect.parse, call.body, memo)
        else:
            request = dialect.parse(call.body, memo)
        if request.value("gateway") is None:
            return request, None
        request, extras = dialect.without_gateway(request)
        if unknown := sorted(set(extras or {}) - {"session"}):
            named = ", ".join(unknown)
            raise InvalidRequest(f"the body's gateway object holds {named}: not in this version; leave it out", param="gateway")
        session = (extras or {}).get("session")
        if session is not None and not isinstance(session, str):
            raise InvalidRequest("gateway.session must be a string", param="gateway.session")
        return request, session

    def _route(self, call: Call, request: Request) -> Route:
        route = routing.resolve(self.routes, request.model, named=call.route)
        if not call.allows(route.name):
            raise RouteNotAllowed(
                f"this key may not use the route {route.name!r}; auth.keys[].routes says which it may", param="model"
            )
        return route

    def _thread(self, call: Call, route: Route, request: Request, named: str | None) -> "Thread":
        """Return where the request stands. Its items are the arranged ones: a clock that moves on begins no new lineage."""
        links = lineage.links(lineage.seed(call.tenant), request.items)
        names = {
            "route": route.name,
            "session": named or call.dialect.hint(request) or "",
            "lineage": self.lineages.find(links, self.new_id()),
            "tenant": call.tenant,
            "key": call.key,
            "request_id": call.request_id,
        }
        return Thread(request=request, links=links, names=names, reservation=self.reservations.open(call.key))

    async def _record(
        self,
        call: Call,
        route: Route,
        aim: Aim,
        request: Request,
        planned: Planned,
        thread: "Thread",
        attempts: Attempts,
        facts: dict[str, str],
    ) -> Attempt:
        """Reserve, append the snapshot and return the attempt that they allow. A failure escapes: no record, no call."""
        target, now = aim.target.name, time.monotonic()
        links = planning.prompt_links(planned, thread.request, thread.links, lineage.seed(call.tenant))
        head = planning.head_digest(planned.prompt.request)
        snapshot = Snapshot(
            id=self.new_id(),
            at=datetime.now(UTC),
            **thread.names,
            attempt=attempts.begin(target),
            target=target,
            dialect=call.dialect.name,
            observe=call.observe,
            expected=self.expectations.expected(target, head, links, planned.sizes, planned.costs.envelope, now),
        )
        self.meter.planned(route.name, target, planned.estimate, planned.runway.limit_tokens, planned.plan.cut)
        attempt = Attempt(
            snapshot=snapshot,
            prompt=planned.prompt,
            estimate=planned.estimate,
            prices=aim.prices,
            strip_usage=request.stream and not request.include_usage,
            dialect=call.dialect,
            prefix=(head, links),
        )
        await self._claim(call, attempt, planned, thread, attempts, facts)
        try:
            await self.recorder.append(planning.entry(snapshot, request, planned, aim.policy_record))
        except asyncio.CancelledError:  # the client left while the record was being made: it may stand, so it gets its end
            self.recorder.spawn(self.delivery.close(attempt, None, Outcome.CLIENT_CLOSED))
            raise
        except Exception:
            attempt.settle(None)
            raise
        facts.update(planning.facts(snapshot, planned))
        return attempt

    async def _claim(
        self, call: Call, attempt: Attempt, planned: Planned, thread: "Thread", attempts: Attempts, facts: dict[str, str]
    ) -> None:
        """Reserve the attempt's worst case in every budget of its route and key. A refusal is recorded, and escapes."""
        worst = charges.worst(planned, attempt.prices)
        try:
            facts.update(await thread.reservation.claim(attempt.snapshot.route, worst.amounts))
        except (LimitExceeded, LimitsUnavailable) as error:
            facts.pop("x-gateway-target", None)  # by its absence a client tells our limits from a provider's
            self._unsent(call, thread, attempts, Outcome.BUDGET, error.message)
            raise
        attempt.reservation, attempt.worst = thread.reservation, worst

    def _gave_way(self, attempt: Attempt, delivered: Delivered, route: Route, attempts: Attempts) -> None:
        """Note a failed attempt: its cause, the target's health, and its end in the ledger."""
        assert delivered.failure is not None
        wait_s = retry_after_s(delivered.headers, time.time())
        attempts.failed(attempt.target, delivered, wait_s)
        attempt.reason = delivered.reason
        if delivered.failure.unhealthy:
            self.cooldowns.failed(attempt.target, route.cooldown, time.monotonic(), wait_s)
        self.recorder.spawn(self.delivery.close(attempt, delivered.reply, delivered.outcome))

    def _failed(self, call: Call, route: Route, thread: "Thread", attempts: Attempts) -> Exception:
        """Return the error that stands for the whole request; one that was never sent gets its record here."""
        error = attempts.error()
        outcome = Outcome.REFUSED if isinstance(error, ContextLengthExceeded) else Outcome.UPSTREAM_ERROR
        if attempts.count == 0:
            self._unsent(call, thread, attempts, outcome, error.message)
        else:
            seconds = time.perf_counter() - call.arrived
            self.meter.request_finished(route.name, attempts.target, outcome, seconds, seconds - attempts.waited)
        return error

    def _unsent(self, call: Call, thread: "Thread", attempts: Attempts, outcome: Outcome, reason: str) -> None:
        """Count and record a request that ends without another attempt."""
        seconds = time.perf_counter() - call.arrived
        self.meter.request_finished(thread.names["route"], attempts.target, outcome, seconds, seconds - attempts.waited)
        record = CallFinished(
            id=self.new_id(),
            at=datetime.now(UTC),
            **thread.names,
            outcome=outcome,
            latency_s=round(seconds, 6),
            reason=reason,
        )
        self.recorder.append_late(Entry(records=(record,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """Where a request stands among those before it: its arranged items and the chain over them.

    `names` are the fields that name it in each of its records: route, session (a hint), lineage, tenant, key, request_id.
    """

    request: Request
    links: list[bytes]
    names: dict[str, Any]
    reservation: Reservation
