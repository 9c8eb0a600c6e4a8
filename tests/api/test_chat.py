import asyncio
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.api.access import Key
from gateway.api.chat import ChatCompletions
from gateway.settings import Key as ConfiguredKey
from tests.test_pipeline import ASKED, HANG, REPLY, STOP, TEXT, ScriptedReply, World, body, refusal, stream

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Client:
    """One HTTP client by hand: what it sends, and all that it is told. Once `gone` is set its connection is closed."""

    parts: list[bytes] = field(default_factory=lambda: [body()])
    headers: Sequence[tuple[bytes, bytes]] = ()
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    told: list[Any] = field(default_factory=list)
    asked: int = 0

    async def receive(self) -> Any:
        self.asked += 1
        if self.parts:
            part = self.parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self.parts)}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.told.append(message)

    @property
    def status(self) -> int:
        return int(self.told[0]["status"])

    @property
    def answered(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.told[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(each["body"] for each in self.told[1:])

    @property
    def error(self) -> Any:
        return json.loads(self.body)["error"]


KEYS: Sequence[Key] = [ConfiguredKey(name="k", sha256=hashlib.sha256(b"secret").hexdigest(), routes=("other*",), tenant="t")]


async def post(
    world: World,
    client: Client,
    keys: Sequence[Key] = (),
    limit: int = 10_000,
    endpoint: type[ChatCompletions] = ChatCompletions,
) -> Client:
    scope = {"type": "http", "method": "POST", "headers": list(client.headers), "query_string": b"a=1"}
    await endpoint(world.gateway, keys, limit, world.new_id)(scope, client.receive, client.send)
    await world.gateway.recorder.drain(5)
    return client


async def test_a_plain_answer_has_the_providers_bytes_and_our_headers() -> None:
    world = World([[ScriptedReply(REPLY)]])

    client = await post(world, Client([body()[:10], body()[10:]]))

    assert (client.status, client.body) == (200, REPLY)
    assert client.answered["content-length"] == str(len(REPLY))
    assert client.answered["content-type"] == "application/json"
    assert (client.answered["x-gateway-route"], client.answered["x-gateway-target"]) == ("r", "a/m")
    assert len(client.answered["x-request-id"]) == len(client.answered["x-gateway-snapshot-id"]) == 32
    assert (world.upstreams["a/m"].bodies, world.upstreams["a/m"].sent[0].query) == ([body()], "a=1")


async def test_a_stream_is_sent_event_by_event() -> None:
    world = World([[stream(TEXT, STOP[:9], STOP[9:])]])

    client = await post(world, Client([ASKED]))

    assert [each["body"] for each in client.told[1:]] == [TEXT, STOP, b""]
    assert [each.get("more_body", False) for each in client.told[1:]] == [True, True, False]
    assert client.answered["content-type"] == "text/event-stream"
    assert (client.answered["cache-control"], client.answered["x-gateway-attempts"]) == ("no-cache", "1")
    assert "content-length" not in client.answered


async def test_a_providers_refusal_keeps_its_body_and_status_and_has_our_headers() -> None:
    said = b'{"error":{"message":"slow down"},"more":1}'
    world = World([[refusal(429, said, ("retry-after", "7"))]])

    client = await post(world, Client())

    assert (client.status, client.body) == (429, said)
    assert (client.answered["retry-after"], client.answered["x-should-retry"]) == ("7", "false")
    assert (client.answered["x-gateway-target"], client.answered["x-gateway-attempts"]) == ("a/m", "1")


async def test_no_record_is_503_and_nothing_is_sent() -> None:
    world = World([[]], fails="a/m")

    client = await post(world, Client())

    assert (client.status, client.error["code"]) == (503, "snapshot_unavailable")
    assert "retry-after" in client.answered
    assert world.log == ["lost a/m"]


async def test_a_prompt_that_fits_nowhere_is_400_with_its_sums() -> None:
    client = await post(World([[]], windows=[60]), Client([body("word " * 500)]))

    assert (client.status, client.error["code"]) == (400, "context_length_exceeded")
    assert "window 60" in client.error["message"]
    assert client.answered["x-gateway-route"] == "r"


@pytest.mark.parametrize("headers", [[(b"content-length", b"10001")], []])
async def test_a_body_that_is_too_large_is_413(headers: list[tuple[bytes, bytes]]) -> None:
    for parts in ([b"x" * 10_001], [b"x" * 5_000] * 3):
        client = await post(World([[]]), Client(list(parts), headers))
        assert (client.status, client.error["code"]) == (413, "request_too_large")
        assert not (headers and client.asked)


async def test_a_compressed_body_is_refused() -> None:
    client = await post(World([[]]), Client(headers=[(b"content-encoding", b"gzip")]))

    assert (client.status, client.error["code"], client.asked) == (400, "invalid_request", 0)


async def test_a_caller_without_a_key_is_refused_before_its_body_is_read() -> None:
    client = await post(World([[]]), Client(headers=[(b"content-length", b"99999")]), KEYS)

    assert (client.status, client.error["code"], client.asked) == (401, "invalid_api_key", 0)


async def test_a_key_is_held_to_its_routes() -> None:
    world = World([[]])

    client = await post(world, Client(headers=[(b"authorization", b"Bearer secret")]), KEYS)

    assert (client.status, client.error["code"], world.log) == (403, "route_not_allowed", [])


@pytest.mark.parametrize(("sent", "code"), [(b"{", "invalid_json"), (b"[]", "invalid_request"), (b"", "invalid_json")])
async def test_a_body_that_is_no_request_is_400(sent: bytes, code: str) -> None:
    client = await post(World([[]]), Client([sent]))

    assert (client.status, client.error["code"]) == (400, code)


async def test_a_route_that_is_not_there_is_404() -> None:
    client = await post(World([[]]), Client(headers=[(b"x-gateway-route", b"none")]))

    assert (client.status, client.error["code"]) == (404, "model_not_found")


async def test_a_client_that_leaves_mid_stream_stops_the_provider_and_is_recorded() -> None:
    world, client = World([[stream(TEXT, HANG)]]), Client([ASKED])
    asking = asyncio.create_task(post(world, client))
    await asyncio.sleep(0.05)
    assert client.body == TEXT

    client.gone.set()
    await asking

    assert world.log == ["append a/m", "send a/m", "close a/m", "finished a/m client_closed"]
    assert client.body == TEXT


@pytest.mark.parametrize("said", [HANG, stream(HANG)])
async def test_a_client_that_leaves_before_the_first_byte_stops_the_provider(said: ScriptedReply | None) -> None:
    world, client = World([[said], [ScriptedReply(REPLY)]]), Client([ASKED])
    asking = asyncio.create_task(post(world, client))
    await asyncio.sleep(0.05)

    client.gone.set()
    await asking

    assert [each for each in world.log if not each.startswith("close")] == ["append a/m", "send a/m", "finished a/m client_closed"]
    assert said is None or said.closed
    assert client.told == []


async def test_a_client_that_leaves_while_it_sends_leaves_nothing_behind() -> None:
    world, client = World([[]]), Client([])
    client.gone.set()

    await post(world, client)

    assert (world.log, client.told) == ([], [])


async def test_a_server_that_stops_cancels_for_real() -> None:
    world = World([[HANG]])
    asking = asyncio.create_task(post(world, Client()))
    await asyncio.sleep(0.05)

    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await world.gateway.recorder.drain(5)

    assert world.log[-1] == "finished a/m client_closed"


async def eventually(holds: Callable[[], bool]) -> None:
    """Let the other tasks go on until this holds; fails when it does not soon."""
    for _ in range(1_000):
        if holds():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never came to be")


async def test_an_answer_that_the_servers_stop_cuts_says_so() -> None:
    world = World([[stream(TEXT, HANG)]])
    client = Client([body(stream=True)])
    serving = asyncio.create_task(post(world, client))
    await eventually(lambda: bool(client.told[1:]))
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    await world.gateway.recorder.drain(5)

    event = client.body.split(b"data: ")[-1]
    assert json.loads(event)["error"]["code"] == "overloaded"
    assert "finished a/m client_closed" in world.log


async def test_a_call_that_the_servers_stop_cuts_before_its_answer_is_refused() -> None:
    world = World([[HANG]])
    client = Client()
    serving = asyncio.create_task(post(world, client))
    await eventually(lambda: "send a/m" in world.log)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving

    assert (client.status, client.error["code"]) == (503, "overloaded")
    assert client.answered["retry-after"] == "1"
