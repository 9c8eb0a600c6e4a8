"""The adapter against real servers on this machine: what goes out, what comes back, and what breaks on the way."""

# ruff: noqa: E501 - a header block is easier read in few lines

import asyncio
import gzip
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gateway.providers.base import AttemptFailed, Endpoint, Failure, Outgoing
from gateway.providers.openai import OpenAIUpstream

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """A server that reads one request after the other and lets a script answer; `left` is set when the other side goes."""

    script: Script
    port: int = 0
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.tasks.append(asyncio.ensure_future(self.serve(reader, writer)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                self.heads.append(head)
                self.bodies.append(await read_body(reader, head))
                await self.script(reader, writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left.set()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    @property
    def line(self) -> str:
        return self.heads[-1].split("\r\n")[0]

    def header(self, name: str) -> list[str]:
        pairs = [line.split(": ", 1) for line in self.heads[-1].split("\r\n")[1:] if line]
        return [value for key, value in pairs if key.lower() == name]


async def read_body(reader: asyncio.StreamReader, head: str) -> bytes:
    low = head.lower()
    if "transfer-encoding: chunked" in low:
        parts = []
        while size := int(await reader.readline(), 16):
            parts.append((await reader.readexactly(size + 2))[:-2])
        await reader.readline()
        return b"".join(parts)
    length = next((line.split(":")[1] for line in low.split("\r\n") if line.startswith("content-length:")), "0")
    return await reader.readexactly(int(length))


def answers(data: bytes) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return script


def run(script: Script | bytes, test: Callable[[OpenAIUpstream, Server], Coroutine[Any, Any, None]], **endpoint: Any) -> Server:
    make = endpoint.pop("make", OpenAIUpstream)

    async def main() -> Server:
        server = Server(answers(script) if isinstance(script, bytes) else script)
        listening = await asyncio.start_server(server.accept, "127.0.0.1", 0)
        server.port = listening.sockets[0].getsockname()[1]
        base = endpoint.pop("base", "/v1")
        plain = Endpoint(name="up1", base_url=f"http://127.0.0.1:{server.port}{base}", key="UPKEY-1", first_byte_s=5, idle_s=5)
        upstream: OpenAIUpstream = make(replace(plain, **endpoint))
        try:
            await test(upstream, server)
        finally:
            await upstream.close()
            listening.close()
            for task in server.tasks:
                task.cancel()
            await asyncio.gather(*server.tasks, return_exceptions=True)
        return server

    return asyncio.run(asyncio.wait_for(main(), 15))


def call(body: bytes | AsyncIterator[bytes] = b'{"a":1}', *, path: str = "chat/completions", **more: Any) -> Outgoing:
    return Outgoing(path=path, body=body, **more)


async def ask(upstream: OpenAIUpstream, outgoing: Outgoing, limit: int = 1 << 20) -> bytes:
    reply = await upstream.send(outgoing)
    try:
        return await reply.read(limit)
    finally:
        await reply.close()


def sends(outgoing: Outgoing, **endpoint: Any) -> Server:
    async def test(upstream: OpenAIUpstream, server: Server) -> None:
        assert await ask(upstream, outgoing) == b"{}"

    return run(OK, test, **endpoint)


@pytest.mark.parametrize(
    "body", [b"", b'{ "a" : 1.0,\r\n "b":"\\u00e9\xc3\xa9" }\n', b"\x00\xff\xfe" * 1000, b"[" + b"123456789," * 350_000 + b"1]"]
)
def test_the_body_goes_out_as_it_is(body: bytes) -> None:
    server = sends(call(body))

    assert server.bodies == [body]
    assert server.header("content-length") == [str(len(body))]
    assert server.header("transfer-encoding") == []


def test_a_streamed_body_goes_out_as_it_is() -> None:
    async def parts() -> AsyncIterator[bytes]:
        for part in (b"--x\r\n", b"\x00\x01", b"\r\n--x--"):
            yield part

    server = sends(call(parts(), path="files", headers=[("Content-Type", "multipart/form-data; boundary=x")]))

    assert server.bodies == [b"--x\r\n\x00\x01\r\n--x--"]
    assert server.header("content-type") == ["multipart/form-data; boundary=x"]


@pytest.mark.parametrize(
    ("base", "path", "query", "line"),
    [
        ("/v1", "chat/completions", "", "POST /v1/chat/completions"),
        ("/api/v1/", "chat/completions", "", "POST /api/v1/chat/completions"),
        ("/api/paas/v4", "embeddings", "", "POST /api/paas/v4/embeddings"),
        ("", "chat/completions", "", "POST /chat/completions"),
        ("/v1", "models", "limit=2&after=m%2F1", "POST /v1/models?limit=2&after=m%2F1"),
        ("/v1", "a%2Fb", "q=%zz&x=a+b&x=", "POST /v1/a%2Fb?q=%zz&x=a+b&x="),
        ("/v1", "a?b#c", "d#e\xe9", "POST /v1/a%3Fb%23c?d%23e%E9"),
        ("/v1?key=UPKEY-ONE", "chat/completions", "a=1&key=theirs", "POST /v1/chat/completions?a=1&key=UPKEY-ONE"),
    ],
)
def test_the_address_is_the_base_and_the_path(base: str, path: str, query: str, line: str) -> None:
    assert sends(call(path=path, query=query), base=base).line == line + " HTTP/1.1"


def test_our_query_is_added_and_wins() -> None:
    server = sends(call(query="beta=true&api-version=1"), query=(("api-version", "2025-01 a&b"),))

    assert server.line == "POST /v1/chat/completions?beta=true&api-version=2025-01%20a%26b HTTP/1.1"


def test_only_known_headers_travel() -> None:
    client = {
        "Host": "gw", "Content-Length": "4", "Accept-Encoding": "gzip, br", "Authorization": "Bearer cl-1", "X-Api-Key": "cl-2",
        "Api-Key": "cl-3", "X-Goog-Api-Key": "cl-4", "Cookie": "s=cl-5", "OpenAI-Organization": "cl-6", "OpenAI-Project": "cl-7",
        "X-Gateway-Route": "cl-8", "X-Session-Id": "cl-9", "X-Forwarded-For": "cl-10", "Forwarded": "cl-11", "Proxy-Authorization": "cl-12",
        "Via": "cl-13", "Connection": "keep-alive, X-Stainless-Os", "X-Stainless-Os": "cl-14", "TE": "trailers", "Upgrade": "cl-15",
        "User-Agent": "agent/1", "Accept": "text/event-stream", "X-Stainless-Lang": "python", "OpenAI-Beta": "x", "traceparent": "00-1",
        "Idempotency-Key": "i", "Content-Type": "application/json; charset=utf-8", "anthropic-version": "2023-06-01",
    }  # fmt: skip
    server = sends(call(headers=[*client.items(), ("anthropic-beta", "a"), ("Anthropic-Beta", "b")]), headers=(("X-Own", "1"),))
    names = sorted(line.split(":")[0].lower() for line in server.heads[0].split("\r\n")[1:] if line)

    assert "cl-" not in server.heads[0]
    assert server.header("authorization") == ["Bearer UPKEY-1"]
    assert server.header("accept-encoding") == ["identity"]
    assert server.header("content-type") == ["application/json; charset=utf-8"]
    assert server.header("user-agent") == ["agent/1"]
    assert server.header("anthropic-beta") == ["a, b"]
    assert server.header("x-own") == ["1"]
    assert server.header("content-length") == ["7"]
    assert names == sorted(
        ["accept", "accept-encoding", "anthropic-beta", "anthropic-version", "authorization", "content-length", "content-type", "host",
         "idempotency-key", "openai-beta", "traceparent", "user-agent", "x-own", "x-stainless-lang"]
    )  # fmt: skip


def test_nothing_is_made_up_for_the_client() -> None:
    server = sends(call(b"", path="models", method="GET"), key=None)

    assert server.heads[0].lower().split("\r\n") == [
        "get /v1/models http/1.1", f"host: 127.0.0.1:{server.port}", "accept-encoding: identity", "", "",
    ]  # fmt: skip


@pytest.mark.parametrize("headers", [(), (("content-type", "application/x-www-form-urlencoded"),)])
def test_json_that_was_not_called_so_is_called_json(headers: tuple[tuple[str, str], ...]) -> None:
    assert sends(call(headers=headers)).header("content-type") == ["application/json"]


def test_the_callers_own_key_goes_only_where_it_may() -> None:
    headers = (("Authorization", "Bearer cl-1"), ("x-api-key", "cl-2"))

    assert sends(call(headers=headers), key=None, client_key=True).header("authorization") == ["Bearer cl-1"]
    assert sends(call(headers=headers), key=None).header("authorization") == []


def test_connections_are_kept_and_cookies_are_not() -> None:
    async def test(upstream: OpenAIUpstream, server: Server) -> None:
        for _ in range(3):
            await ask(upstream, call())

    server = run(OK.replace(b"\r\n", b"\r\nSet-Cookie: a=b\r\n", 1), test)

    assert (server.connections, len(server.heads)) == (1, 3)
    assert "cookie" not in "".join(server.heads).lower()


def test_a_packed_answer_is_unpacked_and_says_so() -> None:
    data = gzip.compress(b'{"ok":true}' * 500)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(data)

    async def test(upstream: OpenAIUpstream, server: Server) -> None:
        reply = await upstream.send(call())

        assert reply.headers == [("content-type", "application/json")]
        assert await reply.read(1 << 20) == b'{"ok":true}' * 500
        await reply.close()

    run(head + data, test)


def test_only_known_answer_headers_come_back() -> None:
    head = (
        b"HTTP/1.1 429 Slow\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close, X-Hop, OpenAI-Hop\r\n"
        b"X-Hop: 1\r\nOpenAI-Hop: 1\r\nKeep-Alive: timeout=1\r\nServer: x\r\nSet-Cookie: a=b\r\nRetry-After: 17\r\nRetry-After-Ms: 17000\r\n"
        b"X-Request-Id: r\r\nOpenAI-Processing-Ms: 5\r\nAnthropic-Ratelimit-Requests-Limit: 1\r\nX-RateLimit-Remaining-Requests: 0\r\n"
        b"x-should-retry: true\r\nAccess-Control-Allow-Origin: *\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    )

    async def test(upstream: OpenAIUpstream, server: Server) -> None:
        reply = await upstream.send(call())

        assert reply.status == 429
        assert reply.headers == [
            ("content-type", "application/json"), ("retry-after", "17"), ("retry-after-ms", "17000"), ("x-request-id", "r"),
            ("openai-processing-ms", "5"), ("anthropic-ratelimit-requests-limit", "1"), ("x-ratelimit-remaining-requests", "0"),
            ("x-should-retry", "true"),
        ]  # fmt: skip
        assert await reply.read(100) == b"{}"
        await reply.close()

    run(head, test)


def test_chunks_come_as_they_arrive() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        for part in (b"data: 1\n\n", b"data: 2\n\n"):
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
            await writer.drain()
            await asyncio.sleep(0.1)
        writer.write(b"0\r\n\r\n")

    async def test(upstream: OpenAIUpstream, server: Server) -> None:
        reply = await upstream.send(call(stream=True))
        got = [(chunk, time.monotonic()) async for chunk in reply.chunks()]
        await reply.close()

        assert [chunk for chunk, _ in got] == [b"data: 1\n\n", b"data: 2\n\n"]
        assert got[1][1] - got[0][1] > 0.05

    run(script, test)


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await writer.drain()
    await reader.read()  # until the other side leaves


async def hang_in_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM + b"9\r\ndata: 1\n\n\r\n")
    await hang(reader, writer)


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM)
    while True:
        writer.write(b"9\r\ndata: 1\n\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)


async def reset_in_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM + b"9\r\ndata: 1\n\n\r\n")
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def closing(data: bytes) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return script


PACKED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope"
BREAKS: list[tuple[Script, Failure, dict[str, float]]] = [
    (hang, Failure.TIMEOUT, {"first_byte_s": 0.1, "connect_s": 0.1}),
    (hang, Failure.TIMEOUT, {"total_s": 0.2}),
    (hang_in_body, Failure.TIMEOUT, {"idle_s": 0.2}),
    (drip, Failure.TIMEOUT, {"total_s": 0.3}),
    (reset_in_body, Failure.BROKEN, {}),
    (closing(b""), Failure.BROKEN, {}),
    (closing(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), Failure.BROKEN, {}),
    (closing(STREAM + b"9\r\ndata: 1\n\n\r\n"), Failure.BROKEN, {}),
    (closing(STREAM + b"zz\r\nnonsense\r\n"), Failure.BROKEN, {}),
    (closing(b"garbage\r\n\r\n"), Failure.BROKEN, {}),
    (closing(b"HTTP/1.1 999999 X\r\n\r\n"), Failure.BROKEN, {}),
    (closing(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n"), Failure.BROKEN, {}),
    (closing(PACKED), Failure.BROKEN, {}),
]


@pytest.mark.parametrize(("script", "failure", "limits"), BREAKS)
def test_what_breaks_is_named_and_tells_no_secret(script: Script, failure: Failure, limits: dict[str, float]) -> None:
    async def test(upstream: OpenAIUpstream, server: Server) -> None:
        began = time.monotonic()
        with pytest.raises(AttemptFailed) as caught:
            await ask(upstream, call())
        error = caught.value

        assert error.failure is failure
        assert time.monotonic() - began < 2
        assert "up1" in error.message
        assert error.__suppress_context__
        for secret in ("UPKEY", "SECRET", "127.0.0.1", "http:", "garbage"):
            assert secret not in error.message

    run(script, test, query=(("key", "SECRET"),), **limits)


def test_a_flood_that_its_reader_cannot_keep_up_with_still_ends_in_time() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        while True:
            writer.write(b"9\r\ndata: 1\n\n\r\n" * 1000)
            await writer.drain()
            await asyncio.sleep(0)

    async def test(upstream: OpenAIUpstream, server: Server) -> None:
        reply = await upstream.send(call(stream=True))

        async def read_slowly() -> None:
            async for _ in reply.chunks():
                await asyncio.sleep(0.01)

        with pytest.raises(AttemptFailed) as caught:
            await asyncio.wait_for(read_slowly(), 2)
        await reply.close()

        assert caught.value.failure is Failure.TIMEOUT

    run(flood, test, total_s=0.3)


def test_no_connection_is_told_from_a_broken_one() -> None:
    async def main() -> None:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))  # nobody listens there
            upstream = OpenAIUpstream(Endpoint(name="up1", base_url=f"http://127.0.0.1:{bound.getsockname()[1]}/v1", key="UPKEY-1"))
            with pytest.raises(AttemptFailed) as caught:
                await upstream.send(call())
            await upstream.close()

        assert (caught.value.failure, caught.value.message) == (Failure.CONNECT, "no connection to up1")

    asyncio.run(main())


def test_a_redirect_is_not_followed() -> None:
    async def test(upstream: OpenAIUpstream, server: Server) -> None:
        with pytest.raises(AttemptFailed, match="answered 307: a redirect") as caught:
            await upstream.send(call())

        assert caught.value.failure is Failure.MODEL

    server = run(b"HTTP/1.1 307 Elsewhere\r\nLocation: /v1/other\r\nContent-Length: 0\r\n\r\n", test)

    assert len(server.heads) == 1


def test_a_giant_error_is_read_only_so_far_and_then_cut() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad\r\nContent-Type: text/plain\r\nContent-Length: 114000000\r\n\r\n")
        for _ in range(1800):
            writer.write(b"validation failed " * 3600)
            await writer.drain()

    async def test(upstream: OpenAIUpstream, server: Server) -> None:
        reply = await upstream.send(call())
        body = await reply.read(1_000_000)

        assert len(body) == 1_000_000
        await asyncio.wait_for(server.left.wait(), 1)

    run(script, test)


def test_a_caller_who_leaves_before_the_head_cuts_the_call() -> None:
    async def test(upstream: OpenAIUpstream, server: Server) -> None:
        task = asyncio.create_task(upstream.send(call()))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        await asyncio.wait_for(server.left.wait(), 1)

    run(hang, test)


@pytest.mark.parametrize("script", [hang_in_body, drip])
def test_a_caller_who_leaves_a_stream_cuts_the_call(script: Script) -> None:
    async def test(upstream: OpenAIUpstream, server: Server) -> None:
        reply = await upstream.send(call(stream=True))
        chunks = reply.chunks()
        assert await anext(chunks) == b"data: 1\n\n"
        waiting = asyncio.ensure_future(anext(chunks))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await reply.close()
        await reply.close()

        await asyncio.wait_for(server.left.wait(), 1)

    run(script, test)


def test_a_caller_who_leaves_while_a_large_body_goes_out_cuts_the_call() -> None:
    async def main() -> None:
        closed = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.3)  # takes nothing meanwhile
            with suppress(ConnectionError):
                while await reader.read(1 << 20):
                    pass
            closed.set()
            writer.close()

        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        upstream = OpenAIUpstream(Endpoint(name="up1", base_url=f"http://127.0.0.1:{port}/v1"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(upstream.send(call(b"x" * 30_000_000)), 0.2)
        await asyncio.wait_for(closed.wait(), 1)
        await upstream.close()
        listening.close()

    asyncio.run(main())


def test_a_refusal_that_repeats_our_key_does_not_show_it() -> None:
    said = b'{"error":{"message":"Incorrect API key provided: sk-upstream-secret"}}'
    head = b"HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"

    async def test(upstream: OpenAIUpstream, server: Server) -> None:
        assert await ask(upstream, call()) == said.replace(b"sk-upstream-secret", b"***")

    run(answers(head % len(said) + said), test, key="sk-upstream-secret")
