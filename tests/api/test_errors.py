import json

import pytest

from gateway.api import errors
from gateway.errors import (
    ContextLengthExceeded,
    GatewayError,
    InvalidKey,
    ModelNotFound,
    Overloaded,
    SnapshotUnavailable,
    UpstreamError,
    UpstreamRefused,
    UpstreamTimeout,
)


def answered(error: Exception, dialect: str = "chat") -> tuple[int, dict[str, object], dict[str, str]]:
    status, body, headers = errors.envelope(error, dialect=dialect)
    return status, json.loads(body), {name.decode(): value.decode() for name, value in headers}


def refused(body: bytes, status: int = 400, headers: dict[str, str] | None = None) -> UpstreamRefused:
    return UpstreamRefused(status=status, body=body, target="openai/m", headers=headers or {})


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ContextLengthExceeded("too long"), 400, "context_length_exceeded"),
        (InvalidKey("no"), 401, "invalid_api_key"),
        (ModelNotFound("no such model"), 404, "model_not_found"),
        (errors.NotFound("no"), 404, "not_found"),
        (UpstreamError("all failed"), 502, "upstream_error"),
        (UpstreamTimeout("all stalled"), 504, "upstream_timeout"),
        (SnapshotUnavailable("no ledger"), 503, "snapshot_unavailable"),
    ],
)
def test_envelope_is_openais(error: GatewayError, status: int, code: str) -> None:
    got, body, headers = answered(error)

    assert (status, {"error": {"message": error.message, "type": error.type, "param": None, "code": code}}) == (got, body)
    assert headers["content-type"] == "application/json"


def test_envelope_names_the_parameter() -> None:
    assert json.loads(errors.envelope(ModelNotFound("no", param="model"))[1])["error"]["param"] == "model"


def test_anthropic_envelope_on_messages() -> None:
    _, body, _ = answered(InvalidKey("no"), "messages")

    assert body == {"type": "error", "error": {"type": "authentication_error", "message": "no"}}


def test_unknown_exceptions_tell_nothing_of_themselves() -> None:
    status, body, _ = answered(RuntimeError("key sk-secret in /home/someone"))

    assert status == 500
    assert "secret" not in json.dumps(body)
    assert "internal_error" in json.dumps(body)


@pytest.mark.parametrize("error", [SnapshotUnavailable("no"), Overloaded("full")])
def test_our_own_503_may_be_tried_again_later(error: GatewayError) -> None:
    headers = answered(error)[2]

    assert headers["retry-after"] == "1"
    assert "x-should-retry" not in headers


def test_a_known_wait_is_told() -> None:
    assert answered(Overloaded("full", retry_after_s=7))[2]["retry-after"] == "7"


@pytest.mark.parametrize(
    "error", [ContextLengthExceeded("x"), UpstreamError("x"), UpstreamTimeout("x"), refused(b"", 429), refused(b"", 400)]
)
def test_sdks_do_not_multiply_tries_that_cannot_help(error: GatewayError) -> None:
    headers = answered(error)[2]

    assert headers["x-should-retry"] == "false"
    assert "retry-after" not in headers


def test_a_refusal_keeps_status_body_and_headers() -> None:
    body = b'{ "error" : {"message":"slow","type":"rate_limit_error","code":"rate_limit_exceeded"}, "n": 1e0 }'
    given = {"retry-after": "17", "X-RateLimit-Remaining-Requests": "0", "Content-Length": "9", "Content-Type": "text/html"}

    status, got, headers = errors.envelope(refused(body, 429, given))

    assert (429, body) == (status, got)
    assert headers == [
        (b"content-type", b"application/json"),
        (b"retry-after", b"17"),
        (b"x-ratelimit-remaining-requests", b"0"),
        (b"x-should-retry", b"false"),
    ]


def test_a_refusals_own_word_on_retries_stands() -> None:
    assert answered(refused(b"", 409, {"x-should-retry": "true"}))[2]["x-should-retry"] == "true"


@pytest.mark.parametrize("body", [b"plain words", b'"error"', b'{"detail": "no"}', b"[" * 50_000, b'{"error": null}', b"\xff\xfe"])
def test_a_refusal_in_another_shape_is_wrapped(body: bytes) -> None:
    status, got, _ = answered(refused(body, 422))

    assert status == 422
    assert isinstance(got["error"], dict)
    assert body.decode("utf-8", "replace") == got["error"]["message"]


def test_a_giant_refusal_is_bounded() -> None:
    _, body, _ = errors.envelope(refused(b"validation failed " * 300_000))

    assert len(body) < 1_100_000


def test_an_empty_refusal_says_who_refused() -> None:
    assert "openai/m answered 403 without a body" in errors.envelope(refused(b"", 403))[1].decode()


def test_response_adds_headers() -> None:
    answer = errors.response(InvalidKey("no"), headers=[(b"www-authenticate", b"Basic")])

    assert (
        answer.status_code,
        answer.headers["www-authenticate"],
        answer.headers["content-type"],
    ) == (401, "Basic", "application/json")
    assert len(answer.body) == int(answer.headers["content-length"])
