"""Cross-origin answers for browsers: only for the origins that the configuration names, and for none by default."""

from collections.abc import Callable, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

METHODS = b"GET, POST, PUT, PATCH, DELETE, OPTIONS"
MAX_AGE_S = b"600"  # Chromium keeps a preflight two hours at most; ten minutes let a changed configuration through soon
DEFAULT_HEADERS = b"authorization, content-type"  # when the browser asks for none

# Browsers show a page only the headers named here; a prefix cannot be named, so each of the contract's is.
EXPOSED = (
    b"x-request-id, x-gateway-snapshot-id, x-gateway-route, x-gateway-target, x-gateway-attempts, x-gateway-runway, "
    b"x-gateway-compaction, x-gateway-layout, x-gateway-cache-expected, x-gateway-overhead-ms, retry-after, retry-after-ms"
)


class Cors:
    """ASGI: answers preflights of configured origins without asking for a key, and marks the answers of all others' calls.

    `origins` is asked at each request, since a reload may change it; `*` in it stands for every origin. Credentials are
    never allowed: keys travel in headers that a page sets itself. An origin that is not configured sees no CORS header at
    all, whatever the answer; its preflight goes on to `app`, or ends in 405 where any origin is configured.
    """

    def __init__(self, app: ASGIApp, origins: Callable[[], Sequence[str]]) -> None:
        self.app = app
        self.origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        origin: bytes = headers.get(b"origin", b"")
        allowed = self._allowed(origin)
        if scope["method"] == "OPTIONS" and origin and b"access-control-request-method" in headers:
            await _preflight(send, origin if allowed else None, headers.get(b"access-control-request-headers", b""))
            return
        if not self.origins():
            await self.app(scope, receive, send)
            return
        await self.app(scope, receive, _marking(send, origin if allowed else None))

    def _allowed(self, origin: bytes) -> bool:
        origins = self.origins()
        return bool(origin) and ("*" in origins or origin.decode("latin-1") in origins)


async def _preflight(send: Send, origin: bytes | None, asked: bytes) -> None:
    """Answer a preflight: 204 for an allowed origin, 405 for any other. A preflight holds no key and costs nothing."""
    headers = [(b"vary", b"origin, access-control-request-headers"), (b"content-length", b"0")]
    if origin is None:
        headers.append((b"allow", b"GET, POST"))
    else:
        headers += [
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", asked or DEFAULT_HEADERS),
            (b"access-control-max-age", MAX_AGE_S),
        ]
    await send({"type": "http.response.start", "status": 405 if origin is None else 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _marking(send: Send, origin: bytes | None) -> Send:
    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [pair for pair in message["headers"] if not pair[0].lower().startswith(b"access-control-")]
            headers.append((b"vary", b"origin"))
            if origin is not None:
                headers += [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", EXPOSED)]
            message = {**message, "headers": headers}
        await send(message)

    return marked
