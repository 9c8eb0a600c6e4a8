"""From a recorded prompt to an answer seen to its end: sending, streaming, and the record that closes each attempt.

Knows the ports to providers and to the ledger's writer; which target is asked, and what is asked next, is `pipeline`'s.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from gateway.attempts import Attempt, Attempts, Delivered, answer_of, finished
from gateway.dialects.answers import Answer as Said
from gateway.dialects.base import Dialect
from gateway.dialects.chat import CHAT
from gateway.dialects.sse import Splitter, events
from gateway.ledger.records import CallFinished, Outcome
from gateway.providers.base import AttemptFailed, Failure, Headers, Outgoing, Reply, Upstream
from gateway.providers.failures import classify, classify_event
from gateway.recorder import LedgerMeter, Recorder

ERROR_BODY_BYTES = 1_000_000  # of a provider's error answer; one of 114 MB was seen
REPLY_BYTES = 64 << 20
OFF_LOOP_BYTES = 256 << 10  # longer answers are read in a thread


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
    dialect: Dialect = CHAT
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


@dataclass(slots=True, kw_only=True)
class Delivery:
    """What all calls share on their way out and back."""

    recorder: Recorder
    meter: Meter
    new_id: Callable[[], str]

    async def send(self, call: Call, attempt: Attempt, upstream: Upstream, attempts: Attempts) -> Delivered:
        """Send one recorded prompt and return what came, up to the first whole event of a stream."""
        reply: Reply | None = None
        prompt, began = attempt.prompt, time.perf_counter()
        outgoing = Outgoing(
            path=attempt.dialect.path, body=prompt.body, query=call.query, headers=call.headers, stream=prompt.request.stream
        )
        attempt.sent = True
        try:
            reply = await upstream.send(outgoing)
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
            self.recorder.spawn(self.close(attempt, reply, Outcome.CLIENT_CLOSED))
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
        """Read a stream up to its first whole event that says something: until then another target may still answer.

        An error that comes first is no answer, nor is a stream of nothing; comments, which keep connections alive, are held.
        """
        chunks, splitter, block, silent = reply.chunks(), Splitter(), b"", attempt.dialect.silent
        async for chunk in chunks:
            attempt.keep(chunk)
            block += splitter.feed(chunk)
            if any(not silent(event) for event in events(block)):
                break
        first = block + splitter.rest
        said = any(not silent(event) for event in events(first))
        failure = (classify_event(first) if b"error" in first else None) or (None if said else Failure.TRUNCATED)
        return Delivered(failure, reply, block, chunks=chunks, splitter=splitter)

    async def answer(self, call: Call, attempt: Attempt, delivered: Delivered, attempts: Attempts, facts: dict[str, str]) -> Answer:
        """Return the answer for the client; a plain one is over with this, a stream when its generator ends."""
        reply = delivered.reply
        assert reply is not None
        attempt.first_token_s = round(time.perf_counter() - call.arrived, 6)
        facts["x-gateway-overhead-ms"] = f"{(time.perf_counter() - call.arrived - attempts.waited) * 1e3:.2f}"
        if delivered.splitter is not None:
            stream = self._forward(call, attempt, delivered, attempts)
            await anext(stream)  # begun, so that closing it records its end even when nobody reads it
            return Answer(reply.status, reply.headers, stream=stream)
        self.recorder.spawn(self.close(attempt, reply, Outcome.COMPLETED))
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
                yield attempt.dialect.without_usage(opened.body) if strip else opened.body
            broken: AttemptFailed | None = None
            try:
                async for chunk in opened.chunks:
                    attempt.keep(chunk)
                    block = splitter.feed(chunk)
                    if block:
                        yield attempt.dialect.without_usage(block) if strip else block
            except AttemptFailed as error:
                broken = error
            ended, owed = await self._ending(call, attempt, broken, splitter.rest)
            if owed:
                yield owed
            outcome = ended
        finally:
            self.recorder.spawn(self.close(attempt, opened.reply, outcome))
            self._metered(call, attempt, outcome, attempts)

    async def _ending(self, call: Call, attempt: Attempt, broken: AttemptFailed | None, rest: bytes) -> tuple[Outcome, bytes]:
        """Say how a stream ended and what is still owed to the client: its last event made whole, or an explicit error event.

        A clean end before the dialect's own is a broken answer that would look complete. After an error event of the
        provider's own nothing is added.
        """
        answer = await self._read(attempt)
        failed = answer.error is not None
        if failed and rest and classify_event(rest) is None:  # half an event is no error of the provider's, and not for the client
            whole = b"".join(attempt.kept).removesuffix(rest)
            failed = answer_of(whole, attempt.prompt.request.stream, attempt.dialect).error is not None
            rest = b""
        if failed:
            attempt.reason = "the provider sent an error in its stream"
            return Outcome.UPSTREAM_ERROR, rest and rest + b"\n\n"
        if broken is None and attempt.dialect.ended(answer):
            return Outcome.COMPLETED, rest and rest + b"\n\n"
        outcome = Outcome.UPSTREAM_TRUNCATED
        if broken is not None:
            outcome = Outcome.UPSTREAM_TIMEOUT if broken.failure is Failure.TIMEOUT else Outcome.UPSTREAM_ERROR
        attempt.reason = "the stream ended without a finish reason" if broken is None else broken.message
        return outcome, call.dialect.error_event(
            f"the answer broke off: {attempt.reason}", code=outcome.value, type="upstream_error"
        )

    async def _read(self, attempt: Attempt) -> Said:
        """Return what the kept bytes say, read once; long ones off the loop."""
        if attempt.answer is None:
            data, stream = b"".join(attempt.kept), attempt.prompt.request.stream
            if len(data) > OFF_LOOP_BYTES:
                attempt.answer = await asyncio.to_thread(answer_of, data, stream, attempt.dialect)
            else:
                attempt.answer = answer_of(data, stream, attempt.dialect)
        return attempt.answer

    async def close(self, attempt: Attempt, reply: Reply | None, outcome: Outcome) -> None:
        """Let go of the reply, append `CallFinished` and settle what it cost, whatever happened."""
        record = None
        try:
            if reply is not None:
                await reply.close()
            entry, record = finished(attempt, await self._read(attempt), outcome, self.new_id(), datetime.now(UTC))
            self.meter.attempt_finished(record.route, record)
            self.recorder.append_late(entry)
        finally:
            attempt.settle(record)

    def _metered(self, call: Call, attempt: Attempt, outcome: Outcome, attempts: Attempts) -> None:
        seconds = time.perf_counter() - call.arrived
        self.meter.request_finished(attempt.snapshot.route, attempt.target, outcome, seconds, seconds - attempts.waited)


def is_stream(headers: Headers) -> bool:
    """Whether an answer is an event stream, by its content type."""
    return any(name == "content-type" and value.startswith("text/event-stream") for name, value in headers)
