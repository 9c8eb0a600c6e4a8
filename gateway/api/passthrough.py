"""Every `/v1/*` path that is not planned: forwarded byte for byte to one provider, authorised, recorded without a plan."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from gateway.api import errors
from gateway.api.access import Caller, Key, allows, authorise
from gateway.api.chat import ClientLeft, Watch, read_body
from gateway.delivery import ERROR_BODY_BYTES
from gateway.errors import (
    GatewayError,
    InvalidRequest,
    ModelNotFound,
    RouteNotAllowed,
    UpstreamError,
    UpstreamTimeout,
)
from gateway.ledger.records import CallFinished, Entry, Outcome
from gateway.pipeline import Gateway
from gateway.providers.base import AttemptFailed, Failure, Outgoing, Reply, Upstream

LOG = logging.getLogger("gateway.api")
ROUTE = "passthrough"  # the name under which keys are allowed these paths, and records name them
# Prompts: never forwarded without a plan and a record, in no spelling of their path. Chat completions have their endpoint.
PLANNED = ("chat/completions", "responses", "messages")


class PassThrough:
    """The endpoint. `upstream` None: no `passthrough` is configured, and these paths are not there."""

    def __init__(
        self,
        gateway: Gateway,
        name: str,
        upstream: Upstream | None,
        keys: Sequence[Key],
        limit_bytes: int,
        new_id: Callable[[], str],
    ) -> None:
        self._gateway, self._name, self._upstream = gateway, name, upstream
        self._keys, self._limit, self._new_id = keys, limit_bytes, new_id

    async def answer(self, request: Request) -> Response:
        """Forward one request, or refuse it in the OpenAI envelope."""
        request_id = self._new_id()
        try:
            caller = authorise(request.scope["headers"], self._keys)
            return await self._forward(request, caller, request_id)
        except GatewayError as error:
            return errors.response(error, headers=[(b"x-request-id", request_id.encode())])
        except ClientLeft:
            return Response(status_code=499)  # nobody reads it

    async def _forward(self, request: Request, caller: Caller, request_id: str) -> Response:
        path = tail(request.scope["raw_path"].decode("latin-1"))
        if not allows(caller, ROUTE):
            raise RouteNotAllowed(f"this key may not use pass-through; name {ROUTE!r} in its auth.keys[].routes")
        if self._upstream is None:
            raise ModelNotFound(f"/v1/{path} is not served here; name a provider under `passthrough` to have it forwarded")
        began = time.perf_counter()
        body = await read_body(request.scope, request.receive, self._limit)
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.scope["headers"])
        query = request.scope["query_string"].decode("latin-1")
        outgoing = Outgoing(path=path, body=body, method=request.method, query=query, headers=headers)
        watch = Watch(request.receive)
        try:
            reply = await self._upstream.send(outgoing)
        except asyncio.CancelledError:
            self._record(caller, request_id, path, None, began, Outcome.CLIENT_CLOSED)
            if not watch.left:
                raise
            watch.forgive()
            raise ClientLeft from None
        except AttemptFailed as error:
            timed_out = error.failure is Failure.TIMEOUT
            self._record(caller, request_id, path, None, began, Outcome.UPSTREAM_TIMEOUT if timed_out else Outcome.UPSTREAM_ERROR)
            raise (UpstreamTimeout if timed_out else UpstreamError)(error.message, target=self._name) from error
        finally:
            watch.stop()
        if not 100 <= reply.status <= 599:  # some send 999: no status that a client could be given
            self._gateway.recorder.spawn(reply.close())
            self._record(caller, request_id, path, reply.status, began, Outcome.UPSTREAM_ERROR)
            raise UpstreamError(f"{self._name} answered {reply.status}, which is no HTTP status", target=self._name)
        chunks = self._chunks(reply, caller, request_id, path, began)
        await anext(chunks)  # begun, so that its end is recorded even when nobody reads it
        answer = StreamingResponse(chunks, status_code=reply.status)
        answer.raw_headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in reply.headers]
        if "x-request-id" not in dict(reply.headers):
            answer.raw_headers.append((b"x-request-id", request_id.encode()))
        answer.raw_headers.append((b"x-gateway-target", self._name.encode()))
        return answer

    async def _chunks(self, reply: Reply, caller: Caller, request_id: str, path: str, began: float) -> AsyncIterator[bytes]:
        outcome = Outcome.CLIENT_CLOSED
        try:
            yield b""
            if reply.status >= 400:
                yield await reply.read(ERROR_BODY_BYTES)
            else:
                async for chunk in reply.chunks():
                    yield chunk
            outcome = Outcome.COMPLETED if reply.status < 400 else Outcome.UPSTREAM_ERROR
        except AttemptFailed as error:
            outcome = Outcome.UPSTREAM_ERROR
            LOG.warning("a passed-through answer broke off: %s", error.message)
            raise
        finally:
            self._gateway.recorder.spawn(reply.close())  # a task of its own: this one may be cancelled again and again
            self._record(caller, request_id, path, reply.status, began, outcome)

    def _record(self, caller: Caller, request_id: str, path: str, status: int | None, began: float, outcome: Outcome) -> None:
        record = CallFinished(
            id=self._new_id(),
            at=datetime.now(UTC),
            route=ROUTE,
            tenant=caller.tenant,
            key=caller.name,
            request_id=request_id,
            outcome=outcome,
            target=f"{self._name}/{path}",
            status=status,
            latency_s=round(time.perf_counter() - began, 6),
        )
        self._gateway.meter.attempt_finished(record.route, record)
        self._gateway.recorder.append_late(Entry(records=(record,)))


def tail(raw_path: str) -> str:
    """Return the path below `/v1/`, still percent-encoded. InvalidRequest for one that climbs out of it."""
    path = raw_path.split("?", 1)[0].lstrip("/")
    while path.startswith("v1/"):  # as `canonical` serves it
        path = path.removeprefix("v1/").lstrip("/")
    for part in re.split(r"/|\\|%2f|%5c", path, flags=re.IGNORECASE):
        if re.sub("%2e", ".", part, flags=re.IGNORECASE) in (".", ".."):
            raise InvalidRequest("the path holds a dot segment; give it in its plain form")
    plain = unquote(path).casefold()
    if any(plain == each or plain.startswith(f"{each}/") for each in PLANNED):
        raise errors.NotFound(f"/v1/{path} is not in this version, and prompts are not passed through unplanned")
    return path.rstrip("/")
