"""`kind: openai`: any OpenAI-shaped server, byte-exact, over aiohttp. The only module that calls a provider over HTTP.

Header hygiene is by allow list, both ways: what is not known to be harmless and useful stays here. Nothing of the client's
identity travels (keys, cookies, organisation, project, addresses), unless the provider is told to take the client's own key.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from urllib.parse import quote, urlsplit, urlunsplit

import aiohttp
from aiohttp import payload
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from gateway.providers.base import AttemptFailed, Endpoint, Failure, Headers, Outgoing

# Request headers that travel on. Each describes the body or the client's software, traces the call, or is asked for by a provider.
SENT = frozenset(
    ("accept", "anthropic-beta", "anthropic-version", "content-type", "idempotency-key", "openai-beta", "traceparent", "tracestate",
     "user-agent", "x-client-request-id", "x-request-id")
)  # fmt: skip
SENT_PREFIXES = ("x-stainless-",)
# Answer headers that travel back. Framing, hop-by-hop, cookies and server software do not.
RETURNED = frozenset(
    ("content-type", "content-disposition", "request-id", "retry-after", "retry-after-ms", "x-request-id", "x-should-retry")
)
RETURNED_PREFIXES = ("openai-", "anthropic-", "x-ratelimit-")
WRITE_BYTES = 1 << 18  # of a large body at a time, so that the loop and its memory are not held by one write
LARGE_BYTES = 1 << 20  # aiohttp itself warns from here on
URLS = 256  # addresses kept ready
NAMES = 256  # header names whose fate is kept
_JSON = "application/json"
_QUERY_SAFE = "".join(map(chr, range(33, 127))).replace("#", "")


class _Large(payload.Payload):
    """A large body, written piece by piece."""

    _value: bytes

    def __init__(self, value: bytes) -> None:
        super().__init__(value, content_type=_JSON)
        self._size = len(value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        whole = memoryview(self._value)
        for start in range(0, len(whole), WRITE_BYTES):
            await writer.write(whole[start : start + WRITE_BYTES])


SECRET_CHARACTERS = 8  # shorter values are versions and switches, not keys


class OpenAIReply:
    """One answer whose head has come. See `gateway.providers.base.Reply`."""

    __slots__ = ("_deadline", "_idle_s", "_name", "_response", "_secrets", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, endpoint: Endpoint, deadline: float, secrets: tuple[bytes, ...]) -> None:
        self._response, self._name, self._idle_s, self._deadline = response, endpoint.name, endpoint.idle_s, deadline
        self._secrets = secrets
        self.status = response.status
        self.headers: Headers = _returned(response.headers.items())

    async def chunks(self) -> AsyncIterator[bytes]:
        content, clock = self._response.content, asyncio.get_running_loop().time
        while not content.at_eof():
            if clock() > self._deadline:  # a timer alone never fires on an answer that always has more ready
                raise AttemptFailed(Failure.TIMEOUT, f"{self._name} did not come to an end in time")
            # What is already here needs no timer; a broken stream is told by the call that waits.
            chunk = b"" if content.exception() else content.read_nowait()
            if chunk or (chunk := await self._within(content.readany())):
                yield chunk

    async def read(self, limit_bytes: int) -> bytes:
        parts, size = [], 0
        async for chunk in self.chunks():
            parts.append(chunk)
            size += len(chunk)
            if size >= limit_bytes:
                break
        await self.close()
        body = parts[0] if len(parts) == 1 and size <= limit_bytes else b"".join(parts)[:limit_bytes]
        if self.status >= 400:
            for secret in self._secrets:  # a refusal may repeat the key that it was sent: ours is not for the client
                body = body.replace(secret, b"***")
        return body

    async def _within(self, work: Awaitable[bytes]) -> bytes:
        now = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(min(now + self._idle_s, self._deadline)):
                return await work
        except TimeoutError:
            raise AttemptFailed(Failure.TIMEOUT, f"{self._name} sent nothing more in time") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise AttemptFailed(Failure.BROKEN, f"the answer of {self._name} broke off ({type(error).__name__})") from None

    async def close(self) -> None:
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()  # cut: the provider sees it and stops generating


class OpenAIUpstream:
    """A provider that speaks OpenAI's HTTP. Its session opens with the first call and is kept alive."""

    def __init__(self, endpoint: Endpoint, *, key_header: str = "authorization", defaults: Headers = ()) -> None:
        """`key_header` carries the provider's key, or the client's; `defaults` are sent where the client has none such."""
        self._endpoint, self._defaults = endpoint, tuple(defaults)
        given = (endpoint.key, *(value for _, value in (*endpoint.headers, *endpoint.query)))
        self._secrets = tuple(value.encode() for value in given if value and len(value) >= SECRET_CHARACTERS)
        parts = urlsplit(endpoint.base_url)
        self._base = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + "/", "", ""))
        own = [f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in endpoint.query]
        self._query = "&".join(part for part in (parts.query, *own) if part)  # an address may end in `?key=…`
        self._query_names = {part.partition("=")[0] for part in self._query.split("&") if part}
        self._own = {"accept-encoding": "identity", **{name.lower(): value for name, value in endpoint.headers}}
        if endpoint.key is not None:
            self._own[key_header] = f"Bearer {endpoint.key}" if key_header == "authorization" else endpoint.key
        self._sent = SENT | {"authorization", key_header} if endpoint.client_key else SENT
        self._names: dict[str, str] = {}
        self._urls: dict[tuple[str, str], URL] = {}
        self._session: aiohttp.ClientSession | None = None

    async def send(self, call: Outgoing) -> OpenAIReply:
        """Return the answer once its head is there; AttemptFailed when none came in time, or when it sends the call elsewhere.

        A redirect is not followed: it would carry the prompt to an address that nobody configured.
        """
        endpoint, now = self._endpoint, asyncio.get_running_loop().time()
        deadline = now + endpoint.total_s
        try:
            async with asyncio.timeout_at(min(now + endpoint.connect_s + endpoint.first_byte_s, deadline)):
                response = await self._open().request(
                    call.method, self._url(call), data=_data(call.body), headers=self._headers(call), allow_redirects=False
                )
        except TimeoutError as error:
            connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
            what = "did not take the connection in time" if connecting else "did not answer in time"
            raise AttemptFailed(Failure.TIMEOUT, f"{endpoint.name} {what}") from None
        except aiohttp.ClientConnectorError:
            raise AttemptFailed(Failure.CONNECT, f"no connection to {endpoint.name}") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise AttemptFailed(Failure.BROKEN, f"{endpoint.name} broke the exchange ({type(error).__name__})") from None
        if 300 <= response.status < 400:
            response.close()
            what = f"answered {response.status}: a redirect, which is not followed; correct its base_url"
            raise AttemptFailed(Failure.MODEL, f"{endpoint.name} {what}")
        return OpenAIReply(response, endpoint, deadline, self._secrets)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
                cookie_jar=aiohttp.DummyCookieJar(),
                # TCP and TLS, only where a connection is made; `connect` would add a timer to every call. Looking up a name
                # is bounded by the limit for the head.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._endpoint.connect_s),
                trust_env=False,
                skip_auto_headers=("user-agent", "accept", "accept-encoding", "content-type"),
                max_line_size=1 << 16,
                max_field_size=1 << 16,
            )
        return self._session

    def _url(self, call: Outgoing) -> URL:
        key = (call.path, call.query)
        url = self._urls.get(key)
        if url is None:
            query = "&".join(part for part in (self._theirs(call.query), self._query) if part)
            url = URL(self._base + _plain(call.path).replace("?", "%3F") + (f"?{query}" if query else ""), encoded=True)
            if len(self._urls) >= URLS:
                self._urls.clear()
            self._urls[key] = url
        return url

    def _theirs(self, query: str) -> str:
        """Return the client's query as it came, without what the settings file says about this provider: that wins."""
        if query and self._query_names:
            query = "&".join(part for part in query.split("&") if part.partition("=")[0] not in self._query_names)
        return _plain(query)

    def _headers(self, call: Outgoing) -> dict[str, str]:
        names, sent, hop = self._names, dict[str, str](), ""
        for key, value in call.headers:
            name = names.get(key)
            if name is None:
                name = self._named(key)
            if name == "connection":
                hop += "," + value.lower()
            elif name:
                sent[name] = f"{sent[name]}, {value}" if name in sent else value
        if hop and hop != ",keep-alive":  # "intermediaries MUST … remove … any header … with the same name": RFC 9110, 7.6.1
            for each in hop.split(","):
                sent.pop(each.strip(), None)
        if call.body and _is_unnamed_json(sent.get("content-type"), call.body):
            sent["content-type"] = _JSON
        for name, value in self._defaults:
            sent.setdefault(name, value)
        sent.update(self._own)
        return sent

    def _named(self, key: str) -> str:
        """Return the name under which a header travels, "" when it stays here; kept, since clients say the same names each time."""
        name = key.lower()
        known = name if name in self._sent or name.startswith(SENT_PREFIXES) or name == "connection" else ""
        if len(self._names) < NAMES:
            self._names[key] = known
        return known

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _data(body: bytes | AsyncIterator[bytes]) -> bytes | AsyncIterator[bytes] | _Large | None:
    if isinstance(body, bytes) and len(body) > LARGE_BYTES:
        return _Large(body)
    return body or None


def _is_unnamed_json(content_type: str | None, body: bytes | AsyncIterator[bytes]) -> bool:
    """Whether a body is JSON that its client did not call so: no type at all, or the one that curl gives to everything."""
    if content_type is None:
        return isinstance(body, bytes)
    return content_type == "application/x-www-form-urlencoded" and isinstance(body, bytes) and body.lstrip()[:1] == b"{"


def _plain(text: str) -> str:
    """Return a raw path or query with nothing in it that would end it; what was encoded stays as it is."""
    return text if text.isascii() and "#" not in text else quote(text.encode("latin-1", "replace"), safe=_QUERY_SAFE)


def _returned(headers: Iterable[tuple[str, str]]) -> Headers:
    kept, hop = [], ""
    for key, value in headers:
        name = key.lower()
        if name in RETURNED or name.startswith(RETURNED_PREFIXES):
            kept.append((name, value))
        elif name == "connection":
            hop += "," + value.lower()
    if hop:
        named = {each.strip() for each in hop.split(",")}
        kept = [pair for pair in kept if pair[0] not in named]
    return kept
