"""Who calls, and what that caller may use. Knows the hashes of keys, never a key; what it raises never holds one."""

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.api import errors, sessions
from gateway.api.hosts import asks_for_loopback, is_loopback
from gateway.errors import InvalidKey

RawHeaders = Iterable[tuple[bytes, bytes]]  # names in lower case, as ASGI gives them

# Bearer, not Basic: a browser would ask for a password in a window of its own, and then send it with other sites' posts too.
CHALLENGE = (b"www-authenticate", b'Bearer realm="contextplane"')


class Key(Protocol):
    """A configured key: what `gateway.settings.Key` offers. `sha256` is the hex digest of the key's UTF-8 bytes."""

    @property
    def name(self) -> str: ...
    @property
    def sha256(self) -> str: ...
    @property
    def routes(self) -> Sequence[str]: ...
    @property
    def tenant(self) -> str: ...
    @property
    def audience(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who was let in. `routes` are globs over route names; a caller without a name came where no keys are configured."""

    name: str = ""
    tenant: str = ""
    routes: tuple[str, ...] = ("*",)
    audience: tuple[str, ...] = ()


def authorise(headers: RawHeaders, keys: Sequence[Key]) -> Caller:
    """Return the caller whose key the headers hold; one that may use everything where no keys are configured.

    Every key given is tried, since an SDK may send its own placeholder in one header and the user's key in another.
    Raises InvalidKey when none of them is known.
    """
    if not keys:
        return Caller()
    for given in _given(headers):
        digest = hashlib.sha256(given).hexdigest()
        # No early end: how long it takes says nothing on which key it was.
        found = [key for key in keys if hmac.compare_digest(digest, key.sha256.lower())]
        if found:
            key = found[0]
            return Caller(name=key.name, tenant=key.tenant, routes=tuple(key.routes), audience=tuple(key.audience))
    raise InvalidKey("no key that this gateway knows; send one as Authorization: Bearer, x-api-key or api-key")


def allows(caller: Caller, route_name: str) -> bool:
    """Return whether the caller's key may use the route (a key's routes are globs)."""
    return any(fnmatchcase(route_name, pattern) for pattern in caller.routes)


def admin(headers: RawHeaders, admin_key: str | None, client_host: str | None) -> None:
    """Return when the caller may see the admin pages; InvalidKey, which says what is missing, otherwise.

    With an admin key: that key as Bearer, x-api-key, api-key, or as password of HTTP Basic (any user), from anywhere.
    Without one: a loopback peer that asks for a loopback host. The host is checked since a page of a foreign site can make
    a browser on this machine ask here under its own name (DNS rebinding), and a proxy's visitors are not local at all.
    """
    headers = tuple(headers)
    if admin_key:
        wanted = hashlib.sha256(admin_key.encode()).digest()
        given = (*_given(headers), *_passwords(headers))
        if not any(hmac.compare_digest(hashlib.sha256(each).digest(), wanted) for each in given):
            raise InvalidKey("this page needs the admin key, as Authorization: Bearer, x-api-key, or as password of HTTP Basic")
        return
    if not (is_loopback(client_host) and asks_for_loopback(headers)):
        raise InvalidKey("without auth.admin_key this page answers on loopback only; set one to open it to others")


class AdminOnly:
    """ASGI: lets only the admin through to `app`, by key or by the session cookie; a browser without either gets the login form.

    `admin_key` is asked each time, since a reload may change it.
    """

    def __init__(self, app: ASGIApp, admin_key: Callable[[], str | None], *, clock: Callable[[], float] = time.time) -> None:
        self.app = app
        self.admin_key = admin_key
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, client, key = scope["headers"], scope.get("client"), self.admin_key()
        if key and any(sessions.holds(token, key, self._clock()) for token in sessions.tokens(headers)):
            await self.app(scope, receive, send)
            return
        try:
            admin(headers, key, client[0] if client else None)
        except InvalidKey as error:
            if key and scope["method"] == "GET" and any(name == b"accept" and b"text/html" in value for name, value in headers):
                answer = sessions.to_login(scope["path"], scope["query_string"])
            else:
                answer = errors.response(error, headers=[CHALLENGE] if key else [])
            await answer(scope, receive, send)
            return
        await self.app(scope, receive, send)


def _given(headers: RawHeaders) -> Iterator[bytes]:
    for name, value in headers:
        if name == b"authorization":
            scheme, _, token = value.strip().partition(b" ")
            if scheme.lower() == b"bearer":
                yield token.strip()
        elif name in (b"x-api-key", b"api-key"):
            yield value.strip()


def _passwords(headers: RawHeaders) -> Iterator[bytes]:
    for name, value in headers:
        scheme, _, token = value.strip().partition(b" ")
        if name == b"authorization" and scheme.lower() == b"basic":
            try:
                yield base64.b64decode(token.strip(), validate=True).partition(b":")[2]
            except binascii.Error:
                continue  # not base64: no password was given
