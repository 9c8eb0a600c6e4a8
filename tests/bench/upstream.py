"""A provider that costs next to nothing: answers every POST with the same chat completion, plain or streamed.

`python -m tests.bench.upstream PORT` serves until it is ended.
"""

import asyncio
import json
import sys
from typing import cast

PLAIN = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "It is done."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 4, "total_tokens": 24, "prompt_tokens_details": {"cached_tokens": 0}},
    }
).encode()
CHUNKS = 200


def chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


STREAM = [chunk({"content": f"word {n} "}) for n in range(CHUNKS)] + [chunk({}, "stop"), b"data: [DONE]\n\n"]


class Provider(asyncio.Protocol):
    """Parses just enough HTTP/1.1: a head, a content-length, keep-alive."""

    def __init__(self) -> None:
        self.buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by class

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.buffer[:end]).lower()
            start = head.find(b"content-length:")
            length = int(head[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0
            if len(self.buffer) < end + 4 + length:
                return
            body = bytes(self.buffer[end + 4 : end + 4 + length])
            del self.buffer[: end + 4 + length]
            self.answer(b'"stream":true' in body[:400] or b'"stream":true' in body[-400:])

    def answer(self, stream: bool) -> None:
        if not stream:
            self.transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(PLAIN) + PLAIN
            )
            return
        self.task = asyncio.get_running_loop().create_task(self.stream())

    async def stream(self) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for each in STREAM:
            self.transport.write(b"%x\r\n%s\r\n" % (len(each), each))
            await asyncio.sleep(0)  # each event is its own write, as providers do
        self.transport.write(b"0\r\n\r\n")


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Provider, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(int(sys.argv[1])))
