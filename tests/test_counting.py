import time

import pytest

from gateway.counting import count_tokens
from gateway.delivery import Call
from gateway.dialects.messages import MESSAGES
from gateway.ledger.records import CallFinished, Outcome
from gateway.providers.base import AttemptFailed, Failure
from tests.test_pipeline import REPLY, ScriptedReply, World

pytestmark = pytest.mark.anyio
ASKED = b'{"model":"alias","messages":[{"role":"user","content":"Hi"}],"gateway":{"session":"s"}}'
CALL = Call(body=ASKED, request_id="q", arrived=time.perf_counter(), dialect=MESSAGES)


@pytest.mark.parametrize(
    ("said", "outcome"),
    [(ScriptedReply(REPLY), Outcome.COMPLETED), (AttemptFailed(Failure.CONNECT, "away"), Outcome.UPSTREAM_ERROR)],
)
async def test_that_it_was_asked_is_recorded_and_only_the_model_and_our_object_change(
    said: ScriptedReply | AttemptFailed, outcome: Outcome
) -> None:
    world = World([[said]], speaks=("messages",))

    answer = await count_tokens(world.gateway, CALL, world.facts)
    await world.gateway.recorder.drain(5)

    assert answer.status == 200
    assert world.upstreams["a/m"].bodies == [b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}']
    assert [outcome] == [record.outcome async for record in world.ledger.read() if isinstance(record, CallFinished)]


async def test_counted_here_nothing_is_sent_and_nothing_recorded() -> None:
    world = World([[]])

    answer = await count_tokens(world.gateway, CALL, world.facts)

    assert answer.body is not None
    assert answer.body.startswith(b'{"input_tokens": ')
    assert [record async for record in world.ledger.read()] == []
