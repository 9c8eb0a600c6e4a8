"""Our errors as HTTP answers, in the envelope of the dialect that was spoken, so that SDKs raise the right class.

The only place where an exception becomes a status and a body. An exception that is not ours says nothing of itself.
"""

import json
from collections.abc import Iterable

from starlette.responses import Response

from gateway.dialects import messages
from gateway.dialects.messages import MESSAGES
from gateway.errors import GatewayError, LimitExceeded, RequestError, UpstreamError, UpstreamRefused

RawHeaders = list[tuple[bytes, bytes]]

REFUSAL_BYTES = 1_000_000  # of a provider's error text that are passed on; one answered with 114 MB
RETRY_AFTER_S = 1  # when nothing better is known: a store or a queue that is full is often free again soon

# What describes the provider's own framing is not true of our answer.
FRAMING = frozenset({"content-type", "content-length", "content-encoding", "transfer-encoding", "connection", "keep-alive"})


class NotFound(RequestError):
    """404 `not_found`: an address or a record that is not there (a model that is not there is `ModelNotFound`)."""

    status = 404
    code = "not_found"


class HeadTooLarge(RequestError):
    """431 `head_too_large`: request line and headers together."""

    status = 431
    code = "head_too_large"


class UpgradeRefused(RequestError):
    """426 `upgrade_refused`: the client asked for another protocol on this connection."""

    status = 426
    code = "upgrade_refused"


def envelope(error: Exception, *, dialect: str = "chat") -> tuple[int, bytes, RawHeaders]:
    """Return status, JSON body and headers of the answer for an error. Never raises.

    A provider's refusal keeps its status, and its body byte for byte where that is a JSON object with `error`; any other
    body becomes the message, at most `REFUSAL_BYTES` of it. `x-should-retry: false` stands on all that another try by the
    client's SDK would not mend: what we have retried ourselves, and the client's own faults. Source: reference,
    context-window-errors ("any error after its own retries") and openai-wire (SDKs obey it).
    """
    if isinstance(error, UpstreamRefused):
        return error.upstream_status, _refusal(error, dialect), _headers(error, error.upstream_status)
    if not isinstance(error, GatewayError):
        error = GatewayError("the gateway failed on this request; its log says more under this x-request-id")
    return error.status, _body(error, error.message, error.status, dialect), _headers(error, error.status)


def response(error: Exception, *, dialect: str = "chat", headers: Iterable[tuple[bytes, bytes]] = ()) -> Response:
    """Return the whole answer for an error, with these headers beside its own."""
    status, body, own = envelope(error, dialect=dialect)
    answer = Response(body, status)
    answer.raw_headers.extend([*own, *headers])
    return answer


def _refusal(error: UpstreamRefused, dialect: str) -> bytes:
    if len(error.body) <= REFUSAL_BYTES and _is_error_object(error.body):
        return error.body
    text = error.body[:REFUSAL_BYTES].decode("utf-8", "replace").strip()
    return _body(error, text or f"{error.message} without a body", error.upstream_status, dialect)


def _is_error_object(body: bytes) -> bool:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):  # not JSON, or JSON made to break parsers
        return False
    return isinstance(value, dict) and bool(value.get("error"))


def _body(error: GatewayError, message: str, status: int, dialect: str) -> bytes:
    if dialect == MESSAGES.name:
        return messages.envelope(status, message)
    value = {"error": {"message": message, "type": error.type, "param": error.param, "code": error.code}}
    return json.dumps(value).encode()


def _headers(error: GatewayError, status: int) -> RawHeaders:
    headers = [(b"content-type", b"application/json")]
    given = error.headers if isinstance(error, UpstreamError | LimitExceeded) else {}
    for name, value in given.items():
        if name.lower() not in FRAMING:
            headers.append((name.lower().encode("latin-1"), value.encode("utf-8", "surrogateescape")))
    names = {name for name, _ in headers}
    waits = status in (429, 503) and not isinstance(error, UpstreamError)
    if b"retry-after" not in names and (waits or error.retry_after_s is not None):
        headers.append((b"retry-after", str(error.retry_after_s or RETRY_AFTER_S).encode()))
    final = isinstance(error, UpstreamError) or (400 <= status < 500 and not error.retryable and not waits)
    if final and b"x-should-retry" not in names:
        headers.append((b"x-should-retry", b"false"))
    return headers
