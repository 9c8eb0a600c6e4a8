import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from gateway.api.access import Key
from gateway.api.errors import NotFound
from gateway.api.passthrough import PassThrough, tail
from gateway.errors import InvalidRequest
from gateway.providers.base import AttemptFailed, Failure
from tests.api.test_chat import KEYS, Client
from tests.test_pipeline import BROKEN, HANG, ScriptedReply, ScriptedUpstream, World, refusal

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def call(
    world: World,
    client: Client,
    *script: ScriptedReply | AttemptFailed | None,
    path: str = "/v1/embeddings",
    keys: Sequence[Key] = (),
    method: str = "POST",
    configured: bool = True,
) -> ScriptedUpstream:
    upstream = ScriptedUpstream("up", world.log, script)
    point = PassThrough(world.gateway, "up", upstream if configured else None, keys, 1_000, world.new_id)
    app = Starlette(routes=[Route("/{path:path}", point.answer, methods=["GET", "POST", "DELETE"])])
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "method": method,
        "path": path.replace("%2F", "/"),
        "raw_path": path.encode(),
        "root_path": "",
        "headers": list(client.headers),
        "query_string": b"b=2&a=%31",
    }
    await app(scope, client.receive, client.send)
    await world.gateway.recorder.drain(5)
    return upstream


async def test_bytes_path_query_and_method_go_through_as_they_came() -> None:
    world, client = World([]), Client([b"\x00\xff", b"{ }"], [(b"x-own", b"1")])
    reply = ScriptedReply(b"\x1f\x8b", b"\xff", status=201, headers=(("content-type", "audio/mp3"), ("x-a", "1"), ("x-a", "2")))

    upstream = await call(world, client, reply, path="/v1/files/a%2Fb%20c", method="DELETE")

    sent = upstream.sent[0]
    assert (sent.path, sent.query, sent.method, sent.body) == ("files/a%2Fb%20c", "b=2&a=%31", "DELETE", b"\x00\xff{ }")
    assert ("x-own", "1") in sent.headers
    assert (client.status, client.body) == (201, b"\x1f\x8b\xff")
    assert [pair for pair in client.told[0]["headers"] if pair[0] == b"x-a"] == [(b"x-a", b"1"), (b"x-a", b"2")]
    assert (client.answered["x-gateway-target"], len(client.answered["x-request-id"])) == ("up", 32)
    assert world.log == ["send up", "close up", "finished up/files/a%2Fb%20c completed"]


async def test_a_providers_error_goes_through_and_is_recorded_as_one() -> None:
    world, client = World([]), Client()

    await call(world, client, refusal(404, b"no such file"))

    assert (client.status, client.body) == (404, b"no such file")
    assert (world.log[-1], world.ends()[0].status) == ("finished up/embeddings upstream_error", 404)


@pytest.mark.parametrize(
    ("failure", "status", "outcome"), [(Failure.TIMEOUT, 504, "upstream_timeout"), (Failure.CONNECT, 502, "upstream_error")]
)
async def test_a_provider_that_does_not_answer_is_an_error_of_ours(failure: Failure, status: int, outcome: str) -> None:
    world, client = World([]), Client()

    await call(world, client, AttemptFailed(failure, "it did not answer"))

    assert (client.status, client.error["message"]) == (status, "it did not answer")
    assert world.log == ["send up", f"finished up/embeddings {outcome}"]


async def test_an_answer_that_breaks_off_is_never_ended_as_if_it_were_whole() -> None:
    world, client = World([]), Client()

    with pytest.raises(AttemptFailed):
        await call(world, client, ScriptedReply(b"half", BROKEN))
    await world.gateway.recorder.drain(5)

    assert [each.get("more_body") for each in client.told[1:]] == [True]
    assert world.log == ["send up", "close up", "finished up/embeddings upstream_error"]


async def test_without_a_provider_these_paths_are_not_there() -> None:
    world, client = World([]), Client()

    await call(world, client, configured=False)

    assert (client.status, client.error["code"], world.log) == (404, "model_not_found", [])
    assert "/v1/embeddings" in client.error["message"]


async def test_a_caller_without_a_key_is_refused_before_its_body_is_read() -> None:
    world, client = World([]), Client()

    await call(world, client, keys=KEYS)

    assert (client.status, client.asked, world.log) == (401, 0, [])


async def test_a_body_that_is_too_large_is_413() -> None:
    world, client = World([]), Client([b"x" * 1_001])

    await call(world, client)

    assert (client.status, world.log) == (413, [])


@pytest.mark.parametrize("said", [HANG, ScriptedReply(HANG), ScriptedReply(b"some", HANG)])
async def test_a_client_that_leaves_stops_the_provider_and_is_recorded(said: ScriptedReply | None) -> None:
    reply = None if said is None else ScriptedReply(*said.script)
    world, client = World([]), Client()
    calling = asyncio.create_task(call(world, client, reply))
    await asyncio.sleep(0.05)

    client.gone.set()
    await calling
    await world.gateway.recorder.drain(5)

    assert world.log[-1] == "finished up/embeddings client_closed"
    assert reply is None or reply.closed


async def test_a_client_that_left_while_it_was_sending_is_not_forwarded() -> None:
    world, client = World([]), Client([])
    client.gone.set()

    await call(world, client)

    assert world.log == []


@pytest.mark.parametrize(
    ("path", "below"),
    [
        ("/v1/embeddings", "embeddings"),
        ("//v1//files/x/", "files/x"),
        ("/v1/v1/embeddings", "embeddings"),
        ("/embeddings", "embeddings"),
        ("/v1/models/a..b", "models/a..b"),
        ("/v1/files/%2e%2ehidden", "files/%2e%2ehidden"),
        ("/v1/v1beta/x", "v1beta/x"),
    ],
)
def test_a_path_is_forwarded_below_the_providers_address(path: str, below: str) -> None:
    assert tail(path) == below


@pytest.mark.parametrize("part", ["..", ".", "%2e%2e", "%2E.", ".%2e", "a%2F..%2fb", "..%5cb", "..\\b"])
def test_a_path_that_climbs_is_refused(part: str) -> None:
    with pytest.raises(InvalidRequest):
        tail(f"/v1/files/{part}/x")


async def test_a_climbing_path_reaches_no_provider() -> None:
    world, client = World([]), Client()

    await call(world, client, path="/v1/%2e%2e/admin")

    assert (client.status, world.log) == (400, [])


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages/count_tokens", "/v1/Chat/completions", "/v1/ch%61t/completions"])
def test_a_prompt_is_not_passed_through_unplanned(path: str) -> None:
    with pytest.raises(NotFound):
        tail(path)


def test_any_other_path_is_passed_through() -> None:
    assert tail("/v1/files/file-1/content") == "files/file-1/content"


async def test_a_keys_routes_bind_here_too() -> None:
    """The route's name for keys is `passthrough`; a key for other routes does not reach the provider."""
    world = World([[ScriptedReply(b"{}")]])
    client = Client([b"{}"], headers=[(b"authorization", b"Bearer secret")])
    await call(world, client, keys=KEYS)

    assert (client.status, client.error["code"]) == (403, "route_not_allowed")
    assert world.log == []
