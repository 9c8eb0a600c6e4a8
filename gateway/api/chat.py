"""The planned endpoints: raw ASGI, since this is the hot path. Turns HTTP into a `Call` and an `Answer` into HTTP."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gateway.api.access import Caller, Key, allows, authorise
from gateway.api.errors import envelope
from gateway.dialects.base import Dialect
from gateway.dialects.chat import CHAT
from gateway.errors import GatewayError, InvalidRequest, Overloaded, RequestTooLarge
from gateway.pipeline import Answer, Call, Gateway

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

LOG = logging.getLogger("gateway.api")
Pairs = list[tuple[bytes, bytes]]
STREAM_HEADERS: Pairs = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]


class ClientLeft(Exception):
    """The client closed its connection: nobody is left to answer."""


async def read_body(scope: "Scope", receive: "Receive", limit_bytes: int) -> bytes:
    """Return the request's body. RequestTooLarge as soon as it is known to be; InvalidRequest for an encoding we do not read."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > limit_bytes:
            raise RequestTooLarge(f"the body has {int(value)} bytes, at most {limit_bytes} are taken (server.max_body_bytes)")
        if name == b"content-encoding" and value.lower() not in (b"", b"identity"):
            raise InvalidRequest("the body is compressed; send it without content-encoding")
    message = await receive()
    parts, size = [], 0
    while True:
        if message["type"] == "http.disconnect":
            raise ClientLeft
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit_bytes:
            raise RequestTooLarge(f"the body has more than {limit_bytes} bytes (server.max_body_bytes)")
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)
        message = await receive()


async def until_left(receive: "Receive") -> None:
    """Return when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Watch:
    """Cancels the current task when the client leaves, and tells that cancellation from the server's own."""

    def __init__(self, receive: "Receive") -> None:
        self._task = asyncio.current_task()
        self.left = False
        self.answering = False  # whether the answer's head is out: from then on nothing can be refused
        self._watcher = asyncio.get_running_loop().create_task(until_left(receive))
        self._watcher.add_done_callback(self._done)

    def _done(self, watcher: "asyncio.Task[None]") -> None:
        if not watcher.cancelled() and self._task is not None and watcher.exception() is None:
            self.left = True
            self._task.cancel()

    def stop(self) -> None:
        """Stop watching. A cancellation that was already asked for is taken back by the one who catches it."""
        self._watcher.remove_done_callback(self._done)
        self._watcher.cancel()

    def forgive(self) -> None:
        """The cancellation was ours and is dealt with: the task goes on."""
        if self._task is not None:
            self._task.uncancel()


def facts_of(facts: dict[str, str]) -> Pairs:
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in facts.items()]


class ChatCompletions:
    """The endpoint of one dialect's calls. `keys` are the stored key hashes, empty when everyone on this machine may call."""

    dialect: Dialect = CHAT

    def __init__(self, gateway: Gateway, keys: Sequence[Key], max_body_bytes: int, new_id: Callable[[], str]) -> None:
        self._gateway, self._keys, self._limit, self._new_id = gateway, keys, max_body_bytes, new_id

    async def complete(self, call: Call, facts: dict[str, str]) -> Answer:
        """Return the answer to one call."""
        return await self._gateway.complete(call, facts)

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        facts = {"x-request-id": self._new_id()}
        arrived = time.perf_counter()
        self._gateway.meter.request_began()
        watch: Watch | None = None
        try:
            caller = authorise(scope["headers"], self._keys)
            call = self._call(scope, caller, facts, arrived, await read_body(scope, receive, self._limit))
            watch = Watch(receive)
            try:
                answer = await self.complete(call, facts)
                await self._answer(answer, facts, watch, send)
            except asyncio.CancelledError:
                if not watch.left:
                    await self._cut(watch, facts, send)
                    raise
                watch.forgive()
            finally:
                watch.stop()
        except ClientLeft:
            LOG.debug("the client left before its request was read")
        except GatewayError as error:
            await self._refuse(error, facts, send)
        except Exception:
            if watch is not None and watch.answering:
                LOG.info("request %s: its answer could not be sent whole", facts["x-request-id"], exc_info=True)
                return
            LOG.exception("request %s failed", facts["x-request-id"])
            await self._refuse(GatewayError("the gateway failed; its log has the cause under this x-request-id"), facts, send)
        finally:
            self._gateway.meter.request_ended()

    def _call(self, scope: "Scope", caller: Caller, facts: dict[str, str], arrived: float, body: bytes) -> Call:
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
        named = dict(headers)
        return Call(
            body=body,
            dialect=self.dialect,
            request_id=facts["x-request-id"],
            arrived=arrived,
            tenant=caller.tenant,
            key=caller.name,
            allows=lambda route: allows(caller, route),
            headers=headers,
            query=scope["query_string"].decode("latin-1"),
            route=named.get("x-gateway-route"),
            observe=named.get("x-gateway-layout") == "observe",
            session=named.get("x-session-id"),
        )

    async def _answer(self, answer: Answer, facts: dict[str, str], watch: Watch, send: "Send") -> None:
        headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in answer.headers]
        names = {name for name, _ in headers}
        headers += [pair for pair in facts_of(facts) if pair[0] not in names]
        headers += [(b"content-length", b"%d" % len(answer.body))] if answer.body is not None else STREAM_HEADERS
        start = {"type": "http.response.start", "status": answer.status, "headers": headers}
        watch.answering = True
        if answer.stream is None:
            await send(start)
            await send({"type": "http.response.body", "body": answer.body})
            return
        try:
            await send(start)
            async for chunk in answer.stream:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            await answer.stream.aclose()
        await send({"type": "http.response.body", "body": b""})

    async def _cut(self, watch: Watch, facts: dict[str, str], send: "Send") -> None:
        """The server stops and its grace time is over: say so, rather than leave what looks like a whole answer."""
        stopping = Overloaded("the gateway is stopping; send the request again", retry_after_s=1)
        if not watch.answering:
            await self._refuse(stopping, facts, send)
            return
        event = self.dialect.error_event(stopping.message, code=stopping.code, type=stopping.type)
        await send({"type": "http.response.body", "body": event})

    async def _refuse(self, error: GatewayError, facts: dict[str, str], send: "Send") -> None:
        status, body, headers = envelope(error, dialect=self.dialect.name)
        names = {name for name, _ in headers}
        headers = headers + [pair for pair in facts_of(facts) if pair[0] not in names]
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
