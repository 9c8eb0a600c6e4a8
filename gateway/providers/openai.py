"""`kind: openai`: any OpenAI-shaped server, byte-exact, over aiohttp. The only module that calls a provider over HTTP.

Header hygiene is by allow list, both ways: what is not known to be harmless and useful stays here. Nothing of the client's
identity travels (keys, cookies, organisation, project), unless the provider is told to take the client's own key.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from yarl import URL

from gateway.providers.base import AttemptFailed, Endpoint, Failure, Headers, Outgoing

# Request headers that travel on. Each describes the body or the client's software, or is asked for by a provider.
SENT = frozenset(
    ("accept", "anthropic-beta", "anthropic-version", "content-type", "idempotency-key", "openai-beta", "traceparent", "tracestate", "user-agent")
)  # fmt: skip
SENT_PREFIXES = ("x-stainless-",)
# Answer headers that travel back. Framing, hop-by-hop, cookies and server software do not.
RETURNED = frozenset(
    ("content-type", "content-disposition", "request-id", "retry-after", "retry-after-ms", "x-request-id", "x-should-retry")
)
RETURNED_PREFIXES = ("openai-", "anthropic-", "x-ratelimit-")
CHUNK_BYTES = 1 << 16


class OpenAIReply:
    """One answer whose head has come. See `gateway.providers.base.Reply`."""

    __slots__ = ("_deadline", "_idle_s", "_name", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, name: str, idle_s: float, deadline: float) -> None:
        self._response, self._name, self._idle_s, self._deadline = response, name, idle_s, deadline
        self.status = response.status
        self.headers: Headers = [(low, value) for key, value in response.headers.items() if _returned(low := key.lower())]

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            chunk = await self._within(self._response.content.readany())
            if not chunk:
                return
            yield chunk

    async def read(self, limit_bytes: int) -> bytes:
        parts, size = [], 0
        async for chunk in self.chunks():
            parts.append(chunk)
            size += len(chunk)
            if size >= limit_bytes:
                await self.close()
                break
        return parts[0] if len(parts) == 1 and size <= limit_bytes else b"".join(parts)[:limit_bytes]

    async def _within(self, work: Any) -> bytes:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(min(loop.time() + self._idle_s, self._deadline)):
                data: bytes = await work
                return data
        except TimeoutError:
            raise AttemptFailed(Failure.TIMEOUT, f"{self._name} sent nothing more in time") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise AttemptFailed(Failure.BROKEN, f"the answer of {self._name} broke off ({type(error).__name__})") from None

    async def close(self) -> None:
        if not self._response.content.at_eof():
            self._response.close()  # cut: the provider sees it and stops generating
        else:
            self._response.release()


class OpenAIUpstream:
    """A provider that speaks OpenAI's HTTP. Its session opens with the first call and is kept alive."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._base = endpoint.base_url.rstrip("/") + "/"
        self._own = {"accept-encoding": "identity", **{name.lower(): value for name, value in endpoint.headers}}
        if endpoint.key is not None:
            self._own["authorization"] = f"Bearer {endpoint.key}"
        self._query = "&".join(f"{name}={value}" for name, value in endpoint.query)
        self._urls: dict[tuple[str, str], URL] = {}
        self._session: aiohttp.ClientSession | None = None

    async def send(self, call: Outgoing) -> OpenAIReply:
        endpoint, loop = self._endpoint, asyncio.get_running_loop()
        deadline = loop.time() + endpoint.total_s
        try:
            async with asyncio.timeout_at(min(loop.time() + endpoint.connect_s + endpoint.first_byte_s, deadline)):
                response = await self._open().request(
                    call.method, self._url(call), data=call.body or None, headers=self._headers(call), allow_redirects=False
                )
        except TimeoutError as error:
            connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
            what = "did not take the connection in time" if connecting else "did not answer in time"
            raise AttemptFailed(Failure.TIMEOUT, f"{endpoint.name} {what}") from None
        except aiohttp.ClientConnectorError:
            raise AttemptFailed(Failure.CONNECT, f"no connection to {endpoint.name}") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise AttemptFailed(Failure.BROKEN, f"{endpoint.name} broke the exchange ({type(error).__name__})") from None
        return OpenAIReply(response, endpoint.name, endpoint.idle_s, deadline)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            limits = aiohttp.ClientTimeout(total=None, sock_connect=self._endpoint.connect_s)
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=limits,
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
            query = "&".join(part for part in (call.query, self._query) if part)
            url = URL(self._base + call.path + (f"?{query}" if query else ""), encoded=True)
            if len(self._urls) < 256:
                self._urls[key] = url
        return url

    def _headers(self, call: Outgoing) -> dict[str, str]:
        sent = {}
        for key, value in call.headers:
            name = key.lower()
            if name in SENT or name.startswith(SENT_PREFIXES) or (name == "authorization" and self._endpoint.client_key):
                sent[name] = value
        sent.update(self._own)
        return sent

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _returned(name: str) -> bool:
    return name in RETURNED or name.startswith(RETURNED_PREFIXES)
