"""The request path: plan for each target, record, send, and go on from the draft when a target gives way.

Knows ports and values; which adapters stand behind the ports is the composition root's business.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from gateway import planning, routing
from gateway.attempts import Attempt, Attempts, Delivered, answer_of, finished
from gateway.cache.expect import Expectations
from gateway.context import layout, lineage
from gateway.context.admission import Refused
from gateway.context.items import Request
from gateway.context.policy import Policy
from gateway.dialects import chat
from gateway.dialects.sse import Splitter, events, strip_usage
from gateway.errors import ContextLengthExceeded, InvalidRequest, RouteNotAllowed
from gateway.ledger.base import Ledger
from gateway.ledger.records import CallFinished, Entry, Outcome
from gateway.planning import Lineages, Planned, Snapshot
from gateway.providers.base import AttemptFailed, Failure, Headers, Outgoing, Reply, Upstream
from gateway.providers.failures import classify, classify_event, retry_after_s
from gateway.providers.tokenizers import Counter
from gateway.recorder import LedgerMeter, Recorder
from gateway.routing import Cooldowns, Route, Target

LOG = logging.getLogger("gateway.pipeline")
ERROR_BODY_BYTES = 1_000_000  # of a provider's error answer; one of 114 MB was seen
REPLY_BYTES = 64 << 20
OFF_LOOP_BYTES = 256 << 10  # longer new text is parsed, and longer answers are read, in a thread


class Meter(LedgerMeter, Protocol):
    """Where figures go. All methods are cheap and never raise."""

    def request_began(self) -> None: ...

    def request_ended(self) -> None: ...

    def planned(self, route: str, target: str, estimate: int, limit: int | None, compacted: bool) -> None: ...

    def refused(self, route: str, target: str) -> None: ...

    def attempt_finished(self, route: str, record: CallFinished) -> None: ...

    def request_finished(self, route: str, target: str, outcome: str, seconds: float, overhead_s: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What came in: the body's bytes, the client's headers, who calls, and when it arrived (`time.perf_counter`)."""

    body: bytes
    request_id: str
    arrived: float
    tenant: str = ""
    key: str = ""
    allows: Callable[[str], bool] = lambda route: True
    headers: Headers = ()
    query: str = ""
    route: str | None = None
    observe: bool = False
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back: the provider's status and headers, and either a whole body or a stream, to be closed by who reads it."""

    status: int
    headers: Headers
    body: bytes | None = None
    stream: AsyncGenerator[bytes, None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """One target of one route, with what was resolved for it at start. `policy_record` is the policy's digest and bytes."""

    target: Target
    policy: Policy
    policy_record: tuple[bytes, bytes]
    upstream: Upstream
    prices: routing.Prices | None = None


@dataclass(slots=True, kw_only=True)
class Gateway:
    """Everything that requests share, and the path they take."""

    routes: tuple[Route, ...]
    aims: Mapping[tuple[str, str], Aim]  # by route name and target name
    ledger: Ledger
    counter: Counter
    new_id: Callable[[], str]
    meter: Meter
    memo: chat.Memo = field(default_factory=chat.Memo)
    scans: layout.Scans = field(default_factory=dict)
    plans: planning.Memo = field(default_factory=planning.Memo)
    expectations: Expectations = field(default_factory=Expectations)
    lineages: Lineages = field(default_factory=Lineages)
    cooldowns: Cooldowns = field(default_factory=Cooldowns)
    recorder: Recorder = field(init=False)

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.ledger, self.meter)

    async def complete(self, call: Call, facts: dict[str, str]) -> Answer:
        """Answer one chat completion. `facts` fills with what the response headers say, for errors too.

        Raises GatewayError: nothing was sent, or every attempt failed. SnapshotUnavailable: the record could not be made,
        so the prompt was not sent. Cancelling it (the client left) cuts the provider's call and still records its end.
        """
        request, session = await self._parse(call)
        route = self._route(call, request)
        facts["x-gateway-route"] = route.name
        arranged = layout.arrange(request, route.layout, chat.CHAT, observe=call.observe, memo=self.scans)
        thread = self._thread(call, route, arranged.request, call.session or session)
        attempts = Attempts(route.retry)
        for target in routing.order(route.targets, self.cooldowns.cooling(time.monotonic())):
            aim = self.aims[route.name, target.name]
            planned = await planning.plan(arranged, aim.policy, self.counter, self.plans)
            if isinstance(planned, Refused):
                attempts.refused(target.name, planned)
                facts["x-gateway-runway"] = planning.runway_header(planning.refused_sums(planned))
                self.meter.refused(route.name, target.name)
                continue
            while attempts.left(target.name):
                attempt = await self._record(call, route, aim, request, planned, thread, attempts.begin(target.name), facts)
                delivered = await self._send(call, attempt, aim, attempts)
                if delivered.failure is None:
                    return await self._answer(call, attempt, delivered, attempts, facts)
                self._gave_way(attempt, delivered, route, attempts)
                if not await attempts.again(target.name):
                    break
            if attempts.final:
                break
        raise self._failed(call, route, thread, attempts)

    async def _parse(self, call: Call) -> tuple[Request, str | None]:
        """Return the request as targets may see it, and the session that its `gateway` object names."""
        if len(call.body) > OFF_LOOP_BYTES and not self.memo.knows(call.body):
            request = await asyncio.to_thread(chat.parse, call.body, self.memo)
        else:
            request = chat.parse(call.body, self.memo)
        if request.value("gateway") is None:
            return request, None
        request, extras = chat.without_gateway(request)
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
            "session": named or chat.hint(request) or "",
            "lineage": self.lineages.find(links, self.new_id()),
            "tenant": call.tenant,
            "key": call.key,
            "request_id": call.request_id,
        }
        return Thread(request=request, links=links, names=names)

    async def _record(
        self,
        call: Call,
        route: Route,
        aim: Aim,
        request: Request,
        planned: Planned,
        thread: "Thread",
        number: int,
        facts: dict[str, str],
    ) -> Attempt:
        """Append the snapshot and return the attempt that it allows. A failure escapes: no record, no call."""
        target, now = aim.target.name, time.monotonic()
        links = planning.prompt_links(planned, thread.request, thread.links, lineage.seed(call.tenant))
        head = planning.head_digest(planned.prompt.request)
        snapshot = Snapshot(
            id=self.new_id(),
            at=datetime.now(UTC),
            **thread.names,
            attempt=number,
            target=target,
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
            prefix=(head, links),
        )
        try:
            await self.recorder.append(planning.entry(snapshot, request, planned, aim.policy_record))
        except asyncio.CancelledError:  # the client left while the record was being made: it may stand, so it gets its end
            self.recorder.spawn(self._close(attempt, None, Outcome.CLIENT_CLOSED))
            raise
        facts.update(planning.facts(snapshot, planned))
        return attempt

    async def _send(self, call: Call, attempt: Attempt, aim: Aim, attempts: Attempts) -> Delivered:
        """Send one recorded prompt and return what came, up to the first whole event of a stream."""
        reply: Reply | None = None
        prompt, began = attempt.prompt, time.perf_counter()
        outgoing = Outgoing(
            path="chat/completions", body=prompt.body, query=call.query, headers=call.headers, stream=prompt.request.stream
        )
        try:
            reply = await aim.upstream.send(outgoing)
            attempt.status = reply.status
            if reply.status >= 400:
                body = await reply.read(ERROR_BODY_BYTES)
                return Delivered(classify(reply.status, reply.headers, body), reply, body)
            if prompt.request.stream and is_stream(reply.headers):
                return await self._open(attempt, reply)
            return await self._whole(attempt, reply)
        except AttemptFailed as error:
            return Delivered(error.failure, reply, b"", error.message)
        except asyncio.CancelledError:  # the client left, or the server stops
            self.recorder.spawn(self._close(attempt, reply, Outcome.CLIENT_CLOSED))
            raise
        finally:
            attempts.waited += time.perf_counter() - began

    async def _whole(self, attempt: Attempt, reply: Reply) -> Delivered:
        """Read a plain reply to its end. One that is no JSON object, or is cut at our limit, is no answer."""
        body = await reply.read(REPLY_BYTES + 1)
        attempt.keep(body)
        if len(body) > REPLY_BYTES or not (await self._read(attempt)).readable:
            return Delivered(Failure.BROKEN, reply, body)
        return Delivered(classify_event(body) if b'"error"' in body[:4096] else None, reply, body)

    async def _open(self, attempt: Attempt, reply: Reply) -> Delivered:
        """Read a stream up to its first whole event with data: until then another target may still answer.

        An error that comes first is no answer, nor is a stream of nothing; comments, which keep connections alive, are held.
        """
        chunks, splitter, block = reply.chunks(), Splitter(), b""
        async for chunk in chunks:
            attempt.keep(chunk)
            block += splitter.feed(chunk)
            if any(events(block)):
                break
        first = block + splitter.rest
        failure = classify_event(first) if b"error" in first else None if any(events(first)) else Failure.TRUNCATED
        return Delivered(failure, reply, block, chunks=chunks, splitter=splitter)

    async def _answer(
        self, call: Call, attempt: Attempt, delivered: Delivered, attempts: Attempts, facts: dict[str, str]
    ) -> Answer:
        """Return the answer for the client; a plain one is over with this, a stream when its generator ends."""
        reply = delivered.reply
        assert reply is not None
        self.cooldowns.succeeded(attempt.target)
        self.expectations.sent(attempt.target, *attempt.prefix, time.monotonic())
        attempt.first_token_s = round(time.perf_counter() - call.arrived, 6)
        facts["x-gateway-overhead-ms"] = f"{(time.perf_counter() - call.arrived - attempts.waited) * 1e3:.2f}"
        if delivered.splitter is not None:
            stream = self._forward(call, attempt, delivered, attempts)
            await anext(stream)  # begun, so that closing it records its end even when nobody reads it
            return Answer(reply.status, reply.headers, stream=stream)
        self.recorder.spawn(self._close(attempt, reply, Outcome.COMPLETED))
        self._metered(call, attempt, Outcome.COMPLETED, attempts)
        return Answer(reply.status, reply.headers, body=delivered.body)

    async def _forward(self, call: Call, attempt: Attempt, opened: Delivered, attempts: Attempts) -> AsyncGenerator[bytes, None]:
        """Yield a stream's whole events as they come; however it ends, its end is recorded."""
        outcome, splitter, strip = Outcome.CLIENT_CLOSED, opened.splitter, attempt.strip_usage
        assert splitter is not None
        assert opened.chunks is not None
        try:
            yield b""
            if opened.body:
                yield strip_usage(opened.body) if strip else opened.body
            broken: AttemptFailed | None = None
            try:
                async for chunk in opened.chunks:
                    attempt.keep(chunk)
                    block = splitter.feed(chunk)
                    if block:
                        yield strip_usage(block) if strip else block
            except AttemptFailed as error:
                broken = error
            ended, owed = await self._ending(attempt, broken, splitter.rest)
            if owed:
                yield owed
            outcome = ended
        finally:
            self.recorder.spawn(self._close(attempt, opened.reply, outcome))
            self._metered(call, attempt, outcome, attempts)

    async def _ending(self, attempt: Attempt, broken: AttemptFailed | None, rest: bytes) -> tuple[Outcome, bytes]:
        """Say how a stream ended and what is still owed to the client: its last event made whole, or an explicit error event.

        A clean end without `[DONE]` is well when a finish reason came; an end without either is a broken answer that would
        look complete. After an error event of the provider's own nothing is added. Source: reference, openai-wire, section 5.
        """
        answer = await self._read(attempt)
        failed = answer.error is not None
        if failed and rest and classify_event(rest) is None:  # half an event is no error of the provider's, and not for the client
            failed = answer_of(b"".join(attempt.kept).removesuffix(rest), attempt.prompt.request.stream).error is not None
            rest = b""
        if failed:
            attempt.reason = "the provider sent an error in its stream"
            return Outcome.UPSTREAM_ERROR, rest and rest + b"\n\n"
        if broken is None and (answer.finished or answer.done):
            return Outcome.COMPLETED, rest and rest + b"\n\n"
        outcome = Outcome.UPSTREAM_TRUNCATED
        if broken is not None:
            outcome = Outcome.UPSTREAM_TIMEOUT if broken.failure is Failure.TIMEOUT else Outcome.UPSTREAM_ERROR
        attempt.reason = "the stream ended without a finish reason" if broken is None else broken.message
        return outcome, chat.error_event(f"the answer broke off: {attempt.reason}", code=outcome.value, type="upstream_error")

    async def _read(self, attempt: Attempt) -> chat.Answer:
        """Return what the kept bytes say, read once; long ones off the loop."""
        if attempt.answer is None:
            data, stream = b"".join(attempt.kept), attempt.prompt.request.stream
            if len(data) > OFF_LOOP_BYTES:
                attempt.answer = await asyncio.to_thread(answer_of, data, stream)
            else:
                attempt.answer = answer_of(data, stream)
        return attempt.answer

    async def _close(self, attempt: Attempt, reply: Reply | None, outcome: Outcome) -> None:
        """Let go of the reply and append `CallFinished`, whatever happened."""
        if reply is not None:
            await reply.close()
        entry, record = finished(attempt, await self._read(attempt), outcome, self.new_id(), datetime.now(UTC))
        self.meter.attempt_finished(record.route, record)
        self.recorder.append_late(entry)

    def _gave_way(self, attempt: Attempt, delivered: Delivered, route: Route, attempts: Attempts) -> None:
        """Note a failed attempt: its cause, the target's health, and its end in the ledger."""
        assert delivered.failure is not None
        wait_s = retry_after_s(delivered.headers, time.time())
        attempts.failed(attempt.target, delivered, wait_s)
        attempt.reason = delivered.reason
        if delivered.failure.unhealthy:
            self.cooldowns.failed(attempt.target, route.cooldown, time.monotonic(), wait_s)
        self.recorder.spawn(self._close(attempt, delivered.reply, delivered.outcome))

    def _failed(self, call: Call, route: Route, thread: "Thread", attempts: Attempts) -> Exception:
        """Return the error that stands for the whole request; one that was never sent gets its record here."""
        error = attempts.error()
        seconds = time.perf_counter() - call.arrived
        outcome = Outcome.REFUSED if isinstance(error, ContextLengthExceeded) else Outcome.UPSTREAM_ERROR
        self.meter.request_finished(route.name, attempts.target, outcome, seconds, seconds - attempts.waited)
        if attempts.count == 0:
            record = CallFinished(
                id=self.new_id(),
                at=datetime.now(UTC),
                **thread.names,
                outcome=outcome,
                latency_s=round(seconds, 6),
                reason=error.message,
            )
            self.recorder.append_late(Entry(records=(record,)))
        return error

    def _metered(self, call: Call, attempt: Attempt, outcome: Outcome, attempts: Attempts) -> None:
        seconds = time.perf_counter() - call.arrived
        self.meter.request_finished(attempt.snapshot.route, attempt.target, outcome, seconds, seconds - attempts.waited)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """Where a request stands among those before it: its arranged items and the chain over them.

    `names` are the fields that name it in each of its records: route, session (a hint), lineage, tenant, key, request_id.
    """

    request: Request
    links: list[bytes]
    names: dict[str, Any]


def is_stream(headers: Headers) -> bool:
    """Whether an answer is an event stream, by its content type."""
    return any(name == "content-type" and value.startswith("text/event-stream") for name, value in headers)
