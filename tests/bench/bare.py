"""The rival named "bare": starlette + uvicorn + aiohttp, forwarding and nothing else.

`python -m tests.bench.bare PORT UPSTREAM_PORT` serves until it is ended.
"""

import sys
from collections.abc import AsyncIterator

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route


def app(upstream: str) -> Starlette:
    sessions: list[aiohttp.ClientSession] = []

    async def forward(request: Request) -> Response:
        if not sessions:
            sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        body = await request.body()
        reply = await sessions[0].post(
            upstream, data=body, headers={"content-type": "application/json", "authorization": "Bearer k"}
        )
        if reply.headers["content-type"].startswith("text/event-stream"):

            async def chunks() -> AsyncIterator[bytes]:
                async for each in reply.content.iter_any():
                    yield each
                reply.release()

            return StreamingResponse(chunks(), reply.status, media_type="text/event-stream")
        return Response(await reply.read(), reply.status, media_type="application/json")

    return Starlette(routes=[Route("/v1/chat/completions", forward, methods=["POST"])])


if __name__ == "__main__":
    uvicorn.run(
        app(f"http://127.0.0.1:{sys.argv[2]}/v1/chat/completions"),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
    )
