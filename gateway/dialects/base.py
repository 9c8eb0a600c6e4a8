"""What the request path may ask of a dialect beyond what the core asks: bytes in and out, errors, how an answer ends.

All pure. One value of this type for each wire format; `table` holds them all.
"""

from collections.abc import Mapping
from typing import Protocol

from gateway.context import items
from gateway.context.items import Request
from gateway.dialects.answers import Answer
from gateway.dialects.memo import Memo
from gateway.errors import GatewayError


class Dialect(items.Dialect, Protocol):
    """One wire format. A new one is a module with a class of these methods, and a line in `table`."""

    path: str
    """Where its requests go, relative to a provider's base URL."""

    def parse(self, body: bytes, memo: Memo) -> Request:
        """Return the request that a body holds; `request.body()` gives the very bytes again.

        The memo is this dialect's own; it changes how long this takes, never the result. Raises InvalidJSON and
        InvalidRequest; messages say what and where, never content.
        """
        ...

    def hint(self, request: Request) -> str | None:
        """Return the client's own name for the session, None when it gives none. A hint, never an identity."""
        ...

    def without_gateway(self, request: Request) -> tuple[Request, Mapping[str, object] | None]:
        """Return the request without its `gateway` field, and that field's value; InvalidRequest when that is no object."""
        ...

    def read_reply(self, body: bytes) -> Answer:
        """Return what a plain reply says. Never raises."""
        ...

    def read_stream(self, data: bytes) -> Answer:
        """Return what the bytes of a whole stream say. Never raises."""
        ...

    def silent(self, payload: bytes) -> bool:
        """Whether an event of a stream says nothing yet: while only such came, another target may still answer."""
        ...

    def ended(self, answer: Answer) -> bool:
        """Whether a stream that was closed cleanly after this much was a whole answer, rather than one that broke off."""
        ...

    def without_usage(self, block: bytes) -> bytes:
        """Return whole events without the usage that only the gateway asked for; every other byte stays."""
        ...

    def error_body(self, error: GatewayError) -> bytes:
        """Return the error as the body that the dialect's SDKs read."""
        ...

    def error_event(self, message: str, *, code: str, type: str) -> bytes:
        """Return the event that ends a broken stream, such that SDKs raise on it."""
        ...
