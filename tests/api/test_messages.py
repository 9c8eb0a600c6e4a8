import json

import pytest

from gateway.api.messages import CountTokens, Messages
from gateway.ledger.records import CallFinished, PromptComposed
from gateway.replay import Replay, Shelf
from tests.api.test_chat import KEYS, Client, post
from tests.dialects.test_messages_answers import REPLY, STREAM, events
from tests.test_pipeline import ScriptedReply as Reply
from tests.test_pipeline import World, refusal, stream

pytestmark = pytest.mark.anyio
ANSWER = json.dumps(REPLY).encode()
ASKED = b'{ "model":"m" ,"max_tokens":64,"system":[{"type":"text","text":"S"}], "messages":[{"role":"user","content":"Hi"}]}'
STREAMED = ASKED[:-1] + b',"stream":true}'
START = events({"type": "message_start", "message": {"usage": {"input_tokens": 5}}})
BUSY = events({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})


def native(*scripts: Reply) -> World:
    return World([[each] for each in scripts], speaks=("messages",))


async def test_a_call_and_its_answer_pass_byte_for_byte_and_are_recorded() -> None:
    world = native(Reply(ANSWER))

    client = await post(world, Client([ASKED]), endpoint=Messages)

    assert (client.status, client.body, world.upstreams["a/m"].bodies) == (200, ANSWER, [ASKED])
    assert world.upstreams["a/m"].sent[0].path == "messages"
    composed, finished = [record async for record in world.ledger.read()]
    assert isinstance(composed, PromptComposed)
    assert isinstance(finished, CallFinished)
    assert finished.usage is not None
    assert (composed.dialect, finished.usage.input_tokens) == ("messages", 35)
    assert Replay().check(composed, await Shelf(world.ledger).of([composed])).problem is None


async def test_a_stream_passes_byte_for_byte() -> None:
    client = await post(native(stream(STREAM[:40], STREAM[40:])), Client([STREAMED]), endpoint=Messages)

    assert client.body == STREAM


async def test_while_only_the_start_came_another_target_answers() -> None:
    client = await post(native(stream(START, BUSY), stream(STREAM)), Client([STREAMED]), endpoint=Messages)

    assert (client.body, client.answered["x-gateway-target"]) == (STREAM, "b/m")


async def test_a_stream_that_breaks_off_ends_in_an_error_event() -> None:
    client = await post(native(stream(STREAM[:-200])), Client([STREAMED]), endpoint=Messages)

    assert b"event: error\ndata: " in client.body
    assert b"message_stop" not in client.body


async def test_refusals_have_anthropics_envelope() -> None:
    client = await post(native(), Client([b"{"]), endpoint=Messages)
    unknown = await post(native(), Client([ASKED]), KEYS, endpoint=Messages)

    assert json.loads(client.body)["type"] == "error"
    assert (client.status, client.error["type"]) == (400, "invalid_request_error")
    assert (unknown.status, unknown.error["type"]) == (401, "authentication_error")


@pytest.mark.parametrize("name", [b"x-api-key", b"authorization"])
async def test_both_styles_of_keys_are_taken(name: bytes) -> None:
    value = b"Bearer secret" if name == b"authorization" else b"secret"
    client = await post(
        native(Reply(ANSWER)), Client([ASKED], headers=[(name, value), (b"x-gateway-route", b"r")]), KEYS, endpoint=Messages
    )

    assert client.status == 403  # the key is known; the route is not its own


async def test_tokens_are_counted_by_the_provider_where_it_counts() -> None:
    world = native(Reply(b'{"input_tokens":7}'))

    client = await post(world, Client([ASKED]), endpoint=CountTokens)

    assert (client.status, client.body) == (200, b'{"input_tokens":7}')
    assert world.upstreams["a/m"].sent[0].path == "messages/count_tokens"


async def test_tokens_are_counted_here_where_it_does_not() -> None:
    for world in (native(refusal(500)), World([[]])):
        client = await post(world, Client([ASKED]), endpoint=CountTokens)

        assert (client.status, json.loads(client.body)["input_tokens"] > 10) == (200, True)
