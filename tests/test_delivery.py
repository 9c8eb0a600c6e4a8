import time

import pytest

from gateway.attempts import Attempts
from gateway.delivery import Call, Delivery, is_stream
from gateway.ledger.memory import MemoryLedger
from gateway.ledger.records import CallFinished, Outcome
from gateway.providers.base import AttemptFailed, Failure
from gateway.recorder import Recorder
from gateway.routing import Retry
from gateway.telemetry import Metrics
from tests.test_attempts import attempt
from tests.test_pipeline import DONE, REPLY, STOP, TEXT, USAGE, Chunk, ScriptedReply, ScriptedUpstream, stream

pytestmark = pytest.mark.anyio
CALL = Call(body=b"{}", request_id="r", arrived=time.perf_counter())


class World:
    """One delivery from one scripted provider."""

    def __init__(self, script: ScriptedReply | AttemptFailed) -> None:
        self.ledger = MemoryLedger()
        meter = Metrics()
        self.recorder = Recorder(self.ledger, meter)
        self.delivery = Delivery(recorder=self.recorder, meter=meter, new_id=lambda: "x")
        self.upstream = ScriptedUpstream("p", [], [script])

    async def ends(self) -> list[CallFinished]:
        await self.recorder.drain(5)
        return [record async for record in self.ledger.read() if isinstance(record, CallFinished)]


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        (ScriptedReply(REPLY), None),
        (ScriptedReply(b"<html>"), Failure.BROKEN),
        (AttemptFailed(Failure.TIMEOUT, "late"), Failure.TIMEOUT),
    ],
)
async def test_what_came_is_an_answer_or_says_why_not(script: ScriptedReply | AttemptFailed, failure: Failure | None) -> None:
    world = World(script)

    delivered = await world.delivery.send(CALL, attempt(status=None), world.upstream, Attempts(Retry()))

    assert failure == delivered.failure
    assert [call.path for call in world.upstream.sent] == ["chat/completions"]


@pytest.mark.parametrize(
    ("chunks", "outcome", "last"),
    [
        ((TEXT, STOP, USAGE, DONE), Outcome.COMPLETED, DONE),
        ((TEXT, STOP), Outcome.COMPLETED, STOP),
        ((TEXT,), Outcome.UPSTREAM_TRUNCATED, b'"code":"upstream_truncated"}}\n\n'),
        ((TEXT, AttemptFailed(Failure.TIMEOUT, "stalled")), Outcome.UPSTREAM_TIMEOUT, b'"code":"upstream_timeout"}}\n\n'),
    ],
)
async def test_a_stream_is_seen_to_its_end(chunks: tuple[Chunk, ...], outcome: Outcome, last: bytes) -> None:
    world, made, attempts = World(stream(*chunks)), attempt(status=None, stream=True), Attempts(Retry())
    delivered = await world.delivery.send(CALL, made, world.upstream, attempts)
    answer = await world.delivery.answer(CALL, made, delivered, attempts, {})
    assert answer.stream is not None

    said = b"".join([chunk async for chunk in answer.stream])

    assert said.endswith(last)
    assert [outcome] == [record.outcome for record in await world.ends()]


def test_an_event_stream_is_told_by_its_content_type() -> None:
    assert is_stream((("content-type", "text/event-stream; charset=utf-8"),))
    assert not is_stream((("content-type", "application/json"),))
