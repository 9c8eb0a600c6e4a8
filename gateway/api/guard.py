"""What keeps other sites' pages away from ours in a browser: no foreign posts, no script that is not ours, no framing."""

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.api import errors
from gateway.api.hosts import is_loopback
from gateway.errors import RouteNotAllowed

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
UNASKED = "a web page asked for this, and its origin is not named under server.cors_origins"
FOREIGN = "a page of another site asked for this; open it from the gateway's own pages, or send the key from a program"

# No inline script, no eval, nothing from elsewhere: what a prompt holds can never run, even if an escape were forgotten.
# Images may be data: (marks in a style sheet, charts).
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# Answers that are not pages, such as a provider's own bytes: should a browser show one, it runs nothing and owns no origin.
SANDBOX = b"default-src 'none'; sandbox"
COMMON = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
PAGES = (
    (b"content-security-policy", POLICY),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    *COMMON,
)
DATA = ((b"content-security-policy", SANDBOX), (b"x-content-type-options", b"nosniff"))


def is_foreign(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether a browser says that a page of another origin made this request.

    `Sec-Fetch-Site` where it is sent, else whether `Origin` names our own host. A request with neither comes from a
    program, or from a browser too old to send either with a POST: none since 2020. Source: Fetch Metadata; Go's
    CrossOriginProtection takes the same decisions.
    """
    found = dict(headers)
    site = found.get(b"sec-fetch-site")
    if site is not None:
        return site not in (b"same-origin", b"none")
    origin = found.get(b"origin")
    return origin is not None and origin.partition(b"://")[2].lower() != found.get(b"host", b"").lower()


def is_unasked(headers: Iterable[tuple[bytes, bytes]], origins: Sequence[str]) -> bool:
    """Return whether a browser's page calls here that no one let in, for a gateway without keys.

    Any page could post a plain text to a port of this machine and spend its owner's money, without reading the answer; and a
    page whose own name was made to mean 127.0.0.1 (DNS rebinding) is not even foreign. Programs send no `Origin`.
    """
    headers = tuple(headers)
    origin = next((value.decode("latin-1") for name, value in headers if name == b"origin"), None)
    if origin is None or origin in origins or "*" in origins:
        return False
    try:
        host = urlsplit(origin).hostname
    except ValueError:
        return True
    return is_foreign(headers) or not is_loopback(host)


class SameOrigin:
    """ASGI: refuses what a page of another site posts to `app`. Cookies, Basic passwords and loopback go with such a post."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in SAFE and is_foreign(scope["headers"]):
            await errors.response(RouteNotAllowed(FOREIGN))(scope, receive, send)
            return
        await self.app(scope, receive, send)


class Marked:
    """ASGI: gives every answer of `app` these headers, where it does not have its own."""

    def __init__(self, app: ASGIApp, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.app = app
        self._headers = tuple(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = list(message.get("headers", ()))
                names = {name.lower() for name, _ in own}
                message = {**message, "headers": own + [pair for pair in self._headers if pair[0] not in names]}
            await send(message)

        await self.app(scope, receive, marked)
