"""Every error that leaves the path, named for whose fault it is.

    GatewayError                      status, code, retryable; message never holds content or keys
    ├── RequestError                  the client's request
    │   ├── InvalidJSON               400 invalid_json
    │   ├── InvalidRequest            400 invalid_request
    │   ├── ContextLengthExceeded     400 context_length_exceeded (the sums are in the message)
    │   ├── InvalidKey                401 invalid_api_key
    │   ├── RouteNotAllowed           403 route_not_allowed
    │   ├── ModelNotFound             404 model_not_found
    │   ├── RequestTimeout            408 request_timeout: the request itself did not come in time
    │   └── RequestTooLarge           413 request_too_large
    ├── ConfigurationError            ours: a settings file that cannot be used; never reaches a client
    ├── LedgerError                   our storage
    │   └── SnapshotUnavailable       503 snapshot_unavailable, nothing was sent
    ├── Overloaded                    503 overloaded
    ├── LimitsUnavailable             503 limits_unavailable: budgets cannot be counted, nothing was sent
    ├── LimitExceeded                 429 rate_limit_exceeded: a rate of ours, or too many calls at once
    │   └── QuotaExceeded             429 insufficient_quota: a budget over an hour, a day or a month
    └── UpstreamError                 502 upstream_error: every attempt failed
        ├── UpstreamTimeout           504 upstream_timeout
        └── UpstreamRefused           the provider's own client error, status and body kept

Expected outcomes of planning (`Refused`, `Overrun`) are values in `context`, not exceptions.
"""

from collections.abc import Mapping
from typing import ClassVar


class GatewayError(Exception):
    """Base. `message` says what was wrong, what was allowed and what to change; it is safe to show."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    type: ClassVar[str] = "server_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


class RequestError(GatewayError):
    status = 400
    code = "invalid_request"
    type = "invalid_request_error"


class InvalidJSON(RequestError):
    code = "invalid_json"


class InvalidRequest(RequestError):
    code = "invalid_request"


class ContextLengthExceeded(RequestError):
    code = "context_length_exceeded"


class InvalidKey(RequestError):
    status = 401
    code = "invalid_api_key"


class RouteNotAllowed(RequestError):
    status = 403
    code = "route_not_allowed"


class ModelNotFound(RequestError):
    status = 404
    code = "model_not_found"


class RequestTimeout(RequestError):
    status = 408
    code = "request_timeout"


class RequestTooLarge(RequestError):
    status = 413
    code = "request_too_large"


class ConfigurationError(GatewayError):
    code = "configuration_error"


class LedgerError(GatewayError):
    status = 503
    code = "snapshot_unavailable"
    retryable = True


class SnapshotUnavailable(LedgerError):
    """The record could not be acknowledged in time, so nothing was sent."""


class Overloaded(GatewayError):
    status = 503
    code = "overloaded"
    retryable = True


class LimitsUnavailable(GatewayError):
    """The store of budgets did not answer in time. A call that a budget covers is refused: it could overspend unseen."""

    status = 503
    code = "limits_unavailable"
    retryable = True


class LimitExceeded(GatewayError):
    """A budget of ours would be passed; nothing was sent. `headers` tell how it stands."""

    status = 429
    code = "rate_limit_exceeded"
    type = "rate_limit_error"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: int = 1, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.headers = dict(headers or {})


class QuotaExceeded(LimitExceeded):
    """The same for a budget over an hour, a day or a month: trying again at once is of no use."""

    code = "insufficient_quota"
    type = "insufficient_quota"
    retryable = False


class UpstreamError(GatewayError):
    """Every attempt failed. `target` is the last one tried, `headers` those of its answer worth passing on."""

    status = 502
    code = "upstream_error"
    type = "upstream_error"
    retryable = True

    def __init__(self, message: str, *, target: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.target = target
        self.headers = dict(headers or {})


class UpstreamTimeout(UpstreamError):
    status = 504
    code = "upstream_timeout"


class UpstreamRefused(UpstreamError):
    """The provider answered with a client error: its status and body are the client's answer."""

    def __init__(self, *, status: int, body: bytes, target: str, headers: Mapping[str, str]) -> None:
        super().__init__(f"{target} answered {status}", target=target, headers=headers)
        self.upstream_status = status
        self.body = body
