"""What is no HTTP, against a server that runs."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.responses import PlainTextResponse

from gateway.protocol import HEAD_BYTES, Protocol
from tests.acceptance.harness import free_port


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    found = free_port()
    config = uvicorn.Config(
        PlainTextResponse("ok"), host="127.0.0.1", port=found, http=Protocol, log_config=None, lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield found
    server.should_exit = True
    thread.join(10)


def said(port: int, raw: bytes) -> bytes:
    async def exchange() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(raw)
        answer = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        return answer

    return asyncio.run(exchange())


POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        POST + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        POST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
        POST + b"content-length: +2\r\n\r\n{}",
        POST + b"content-length: -1\r\n\r\n{}",
        POST + b"content-length: 2, 2\r\n\r\n{}",
        POST + b"x y: 1\r\n\r\n",
        POST + b"x: a\x00b\r\n\r\n",
        POST + b"transfer-encoding: chunked, identity\r\n\r\n",
        POST + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_no_http_gets_an_error_that_sdks_read(port: int, raw: bytes) -> None:
    head, _, body = said(port, raw).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 400 Bad Request")
    assert json.loads(body)["error"]["code"] == "invalid_request"


def test_the_error_is_in_the_dialect_that_was_spoken(port: int) -> None:
    raw = POST.replace(b"chat/completions", b"messages") + b"content-length: 1\r\ncontent-length: 2\r\n\r\n"

    assert json.loads(said(port, raw).partition(b"\r\n\r\n")[2])["type"] == "error"


def test_a_head_without_end_is_refused(port: int) -> None:
    head, _, body = said(port, POST + b"x: " + b"a" * (HEAD_BYTES + 1)).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 431")
    assert json.loads(body)["error"]["code"] == "head_too_large"


def test_a_good_request_is_served(port: int) -> None:
    assert said(port, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").endswith(b"ok")
