"""The port to a provider, and what its failures mean. Adapters translate their library's errors into `AttemptFailed`."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

Headers = Sequence[tuple[str, str]]


class Failure(StrEnum):
    """Why an attempt failed. Source: reference, context-window-errors, section 3."""

    OVERFLOW = "overflow"  # the prompt was too long for that model
    RATE_LIMIT = "rate_limit"
    OUT_OF_MONEY = "out_of_money"
    OVERLOADED = "overloaded"
    SERVER = "server"
    TIMEOUT = "timeout"
    CONNECT = "connect"
    BROKEN = "broken"  # the connection or its framing broke
    TOO_LARGE = "too_large"
    AUTH = "auth"
    MODEL = "model"  # that provider has no such model
    REQUEST = "request"  # any other client error: the same everywhere
    TRUNCATED = "truncated"  # a stream ended without its end

    @property
    def retry_same(self) -> bool:
        """Whether the same target is worth another try."""
        return self in (Failure.RATE_LIMIT, Failure.OVERLOADED, Failure.SERVER, Failure.TIMEOUT, Failure.CONNECT, Failure.BROKEN)

    @property
    def try_other(self) -> bool:
        """Whether another target may succeed where this one did not."""
        return self is not Failure.REQUEST

    @property
    def unhealthy(self) -> bool:
        """Whether it counts towards the target's cooldown. An overflow does not: it is no failure of the target's health."""
        return self.retry_same or self in (Failure.OUT_OF_MONEY, Failure.AUTH, Failure.MODEL)


class AttemptFailed(Exception):
    """One attempt did not bring an answer. `message` is safe to show: no key, no address with a query, no content."""

    def __init__(self, failure: Failure, message: str) -> None:
        super().__init__(message)
        self.failure = failure
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a provider is and what it is sent beside the call. Never shown: it holds the key in clear.

    `client_key`: the caller's own Authorization goes on to it. Times in seconds, each a bound of its own.
    """

    name: str
    base_url: str = field(repr=False)
    key: str | None = field(default=None, repr=False)
    client_key: bool = False
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    query: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    connect_s: float = 5
    first_byte_s: float = 120
    idle_s: float = 120
    total_s: float = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One HTTP request to a provider. `path` is relative to its base URL and has no query; `query` is raw, may be "".

    `headers` are the client's, as they came: the adapter keeps what may travel and adds its own key.
    """

    path: str
    body: bytes | AsyncIterator[bytes] = b""
    method: str = "POST"
    query: str = ""
    headers: Headers = ()
    stream: bool = False


class Reply(Protocol):
    """An answer whose head has come. The body is read through `chunks` once; `close` is always called, and is idempotent."""

    status: int
    headers: Headers  # only those that may travel on to the client

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the decoded body as it arrives; AttemptFailed when it breaks or stalls beyond the time limits."""
        ...

    async def read(self, limit_bytes: int) -> bytes:
        """Return the rest of the body, at most `limit_bytes` of it."""
        ...

    async def close(self) -> None:
        """Let go of the connection; one that was not read to its end is cut, so that the provider stops generating."""
        ...


class Upstream(Protocol):
    """A provider that can be called."""

    async def send(self, call: Outgoing) -> Reply:
        """Return the answer once its head is there, whatever its status; AttemptFailed when none came in time."""
        ...

    async def close(self) -> None: ...
