"""Every row of the reference's tables for OpenAI-shaped providers, as it comes over the wire."""

# ruff: noqa: E501 - a body is one line, as it comes over the wire

import json
import os
import subprocess
import sys
from email.utils import formatdate
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.providers.base import Failure, Headers
from gateway.providers.failures import classify, classify_event, retry_after_s


def openai(message: str, type: str | None = "invalid_request_error", code: object = None, **more: object) -> dict[str, object]:
    return {"error": {"message": message, "type": type, "param": None, "code": code, **more}}


OVERFLOWS: list[tuple[int, object]] = [
    (400, openai("This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.", code="context_length_exceeded")),
    (400, openai("Your input exceeds the context window of this model. Please adjust your input and try again.", code="context_length_exceeded")),
    (400, openai("Your input exceeds the context window of this model. Please adjust your input and try again.")),
    (400, openai("Input tokens exceed the configured limit of 922000 tokens. Your messages resulted in 922001 tokens.")),
    (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"}}),
    (400, openai("input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000")),
    (400, {"message": "Input is too long for requested model."}),
    (400, {"error": {"code": 400, "message": "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).", "status": "INVALID_ARGUMENT"}}),
    (400, {"code": "Client specified an invalid argument", "error": "This model's maximum prompt length is 256000 but the request contains 300000 tokens."}),
    (400, {"object": "error", "message": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", "type": "invalid_request_error", "code": "3051"}),
    (413, openai("Please reduce the length of the messages or completion.", code=None)),
    (400, openai("Your request exceeded model token limit: 262144 (requested: 270000)")),
    (400, openai("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 258048]")),
    (400, {"code": "InvalidParameter", "message": "Range of input length should be [1, 30720]", "request_id": "x"}),
    (400, {"error": {"code": 400, "message": "too much", "metadata": {"error_type": "context_length_exceeded", "provider_code": 400}}}),
    (400, {"error": {"message": "This model's maximum context length is 4096 tokens. However, you requested 5000.", "type": "BadRequestError", "param": "input_tokens", "code": 400}}),
    (400, {"object": "error", "message": "The input (9000 tokens) is longer than the model's context length (8192 tokens).", "type": "BadRequestError", "code": 400}),
    (400, openai("Requested token count exceeds the model's maximum context length of 8192 tokens. You requested 9000.")),
    (400, {"error": {"code": 400, "message": "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 5000, "n_ctx": 4096}}),
    (400, {"error": {"message": "prompt too long; exceeded max context length by 12 tokens", "type": "api_error"}}),
    (400, {"error": "The number of tokens to keep from the initial prompt is greater than the context length."}),
    (400, {"message": "Current length is 9000 while limit is 8192", "type": "invalid_request_error", "code": "wrong"}),
    (400, openai("invalid params, context window exceeds limit (2013)")),
    (400, openai("prompt token count of 130000 exceeds the limit of 128000", code="model_max_prompt_tokens_exceeded")),
    (422, {"detail": [{"loc": ["body"], "msg": "prompt is too long", "type": "value_error"}]}),
    (500, openai("internal", code="context_length_exceeded")),
]  # fmt: skip

OTHERS: list[tuple[int, object, Failure]] = [
    # rate limits: never an overflow, whatever they say
    (429, openai("Rate limit reached for gpt-6 on tokens per min", "tokens", "rate_limit_exceeded"), Failure.RATE_LIMIT),
    (429, openai("Too many tokens, please wait before trying again."), Failure.RATE_LIMIT),
    (429, openai("maximum context length", code="context_length_exceeded"), Failure.RATE_LIMIT),
    (429, openai("slow", "rate_limit_error", "slow_down"), Failure.RATE_LIMIT),
    (429, {"error": {"code": "429", "message": "Requests have exceeded the call rate limit"}}, Failure.RATE_LIMIT),
    (429, openai("slow", "rate_limit_reached_error"), Failure.RATE_LIMIT),
    (429, openai("busy", "engine_overloaded_error"), Failure.OVERLOADED),
    (429, openai("Request too large for gpt-6 on tokens per min (TPM): Limit 30000, Requested 40000.", "tokens", "rate_limit_exceeded"), Failure.TOO_LARGE),
    (400, openai("Too many tokens, please wait: context window"), Failure.REQUEST),
    # out of money
    (429, openai("You exceeded your current quota", "insufficient_quota", "insufficient_quota"), Failure.OUT_OF_MONEY),
    (429, openai("x", "insufficient_quota", "credit_balance_exhausted"), Failure.OUT_OF_MONEY),
    (429, openai("x", None, "organization_spend_limit_exceeded"), Failure.OUT_OF_MONEY),
    (429, openai("x", None, "project_spend_limit_exceeded"), Failure.OUT_OF_MONEY),
    (429, openai("x", None, "organization_usage_limit_exceeded"), Failure.OUT_OF_MONEY),
    (429, {"type": "error", "error": {"type": "rate_limit_error", "message": "x", "details": {"error_code": "enforced_spend_limit_reached"}}}, Failure.OUT_OF_MONEY),
    (429, openai("x", "exceeded_current_quota_error"), Failure.OUT_OF_MONEY),
    (402, openai("Insufficient Balance", "unknown_error", "invalid_request_error"), Failure.OUT_OF_MONEY),
    (402, {"error": {"code": 402, "message": "x", "metadata": {"error_type": "payment_required"}}}, Failure.OUT_OF_MONEY),
    (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access the API."}}, Failure.OUT_OF_MONEY),
    (429, {"error": {"code": 429, "message": "You exceeded your current quota", "status": "RESOURCE_EXHAUSTED"}}, Failure.RATE_LIMIT),
    (429, [{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}]}]}}], Failure.OUT_OF_MONEY),
    # keys and access
    (400, {"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}, Failure.AUTH),
    (400, {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***. "}, Failure.AUTH),
    (401, openai("Incorrect API key provided", code="invalid_api_key"), Failure.AUTH),
    (401, {"error": {"code": "401", "message": "Access denied"}}, Failure.AUTH),
    (403, openai("no access", "permission_error"), Failure.AUTH),
    (403, {"error": {"code": 403, "message": "flagged", "metadata": {"reasons": ["x"], "flagged_input": "…"}}}, Failure.REQUEST),
    # models
    (404, openai("The model `x` does not exist", code="model_not_found"), Failure.MODEL),
    (404, {"error": {"code": "DeploymentNotFound", "message": "x"}}, Failure.MODEL),
    (403, openai("Project does not have access to model", code="model_not_found"), Failure.MODEL),
    (400, openai("decommissioned", code="model_decommissioned"), Failure.MODEL),
    # size, load, faults
    (413, openai("too large", "request_too_large"), Failure.TOO_LARGE),
    (413, "<html>413 Request Entity Too Large</html>", Failure.TOO_LARGE),
    (503, openai("busy", code="server_is_overloaded"), Failure.OVERLOADED),
    (503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, Failure.OVERLOADED),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, Failure.OVERLOADED),
    (498, openai("flex capacity"), Failure.OVERLOADED),
    (500, openai("x", "server_error"), Failure.SERVER),
    (502, "<html>bad gateway</html>", Failure.SERVER),
    (504, {"error": {"code": 504, "status": "DEADLINE_EXCEEDED"}}, Failure.SERVER),
    (424, openai("model error"), Failure.SERVER),
    (408, "", Failure.SERVER),
    (409, "", Failure.SERVER),
    # the request's own fault
    (400, "", Failure.REQUEST),
    (422, {"detail": [{"loc": ["body", "temperature"], "msg": "too high"}]}, Failure.REQUEST),
    (422, {"detail": [{"loc": ["body"], "msg": "missing", "input": {"messages": [{"content": "why is the prompt is too long error sent?"}]}}]}, Failure.REQUEST),
    (400, openai("Invalid 'user': string too long. Expected at most 64. This is no maximum context length", code="string_above_max_length"), Failure.REQUEST),
    (400, openai("The response was filtered", None, "content_filter", innererror={"code": "ResponsibleAIPolicyViolation"}), Failure.REQUEST),
    (400, openai("blocked", code="content_policy_violation"), Failure.REQUEST),
    (400, openai("max_tokens is too large: 500000. This model supports at most 16384 completion tokens"), Failure.REQUEST),
    (400, openai("Unrecognized request argument supplied: foo"), Failure.REQUEST),
    (400, openai("the number of tools exceeds the limit of 128"), Failure.REQUEST),
    (400, "not json at all", Failure.REQUEST),
    (418, "teapot", Failure.REQUEST),
    # an error inside a 200
    (200, {"error": {"code": 503, "message": "no capacity"}}, Failure.OVERLOADED),
    (200, {"error": {"code": 400, "message": "maximum context length"}}, Failure.OVERFLOW),
]  # fmt: skip


def wire(body: object) -> bytes:
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


@pytest.mark.parametrize(("status", "body"), OVERFLOWS)
def test_an_overflow_is_known_by_code_or_shape(status: int, body: object) -> None:
    assert classify(status, (), wire(body)) == Failure.OVERFLOW


@pytest.mark.parametrize(("status", "body", "expected"), OTHERS)
def test_each_failure_has_its_meaning(status: int, body: object, expected: Failure) -> None:
    assert expected == classify(status, (), wire(body))


def test_a_failure_named_in_a_header_counts() -> None:
    assert classify(400, [("X-Amzn-Errortype", "ServiceQuotaExceededException:http://x")], b"{}") == Failure.OUT_OF_MONEY


def test_a_body_cut_before_its_end_still_shows_its_code() -> None:
    echoed = "x" * 100_000
    body = wire(openai("too long", code="context_length_exceeded", echo=echoed))

    assert classify(400, (), body) == Failure.OVERFLOW
    assert classify(400, (), wire(openai("prompt is too long", echo=echoed))) == Failure.OVERFLOW
    assert classify(422, (), wire({"detail": [{"msg": "bad", "input": "prompt is too long " * 5000}]})) == Failure.REQUEST


@pytest.mark.parametrize("unit", ["validation failed ", '{"message":"', '"message":"\\', "[" * 20, "token count of 1,1"])
def test_a_giant_body_costs_little(unit: str) -> None:
    body = (unit * (4_000_000 // len(unit))).encode()
    began = perf_counter()
    failure = classify(400, (), body)

    assert failure == Failure.REQUEST
    assert perf_counter() - began < 0.1


EVENTS = [
    (b'data: {"choices":[{"delta":{"content":"an error"}}]}\n\n', None),
    (b': OPENROUTER PROCESSING\n\ndata: {"choices":[],"error":null}\n\n', None),
    (b"data: [DONE]\n\n", None),
    (b"", None),
    (b'{"id":"x","choices":[{"message":{"content":"\\"error\\""}}]}', None),
    (b'{"error":null,"status":"completed","output":[]}', None),
    (b'data: {"error":{"message":"boom","type":"server_error","code":null}}\n\n', Failure.SERVER),
    (b'data: {"error":{"message":"x","code":"context_length_exceeded"}}\r\n\r\n', Failure.OVERFLOW),
    (b'data: {"error":{"message":"prompt is too long"}}\n\n', Failure.OVERFLOW),
    (b'data: {"error":"Rate limit exceeded"}\n\n', Failure.RATE_LIMIT),
    (b'data: {"id":"g","error":{"code":429,"message":"x"},"choices":[{"finish_reason":"error"}]}\n\n', Failure.RATE_LIMIT),
    (b'data: {"error":{"code":"502","message":"x"}}\n\n', Failure.SERVER),
    (b'data: {"error":{"message":"x","type":"invalid_request_error"}}\n\n', Failure.REQUEST),
    (b'data: {"error":{"message":"x","code":"invalid_api_key","type":"invalid_request_error"}}\n\n', Failure.AUTH),
    (b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n', Failure.OVERLOADED),
    (
        b'event: message_start\ndata: {"type":"message_start"}\n\nevent: error\n'
        b'data: {"type":"error","error":{"type":"rate_limit_error","message":"x"}}\n\n',
        Failure.RATE_LIMIT,
    ),
    (b'event: error\ndata: {"type":"error","code":"context_length_exceeded","message":"x","param":null}\n\n', Failure.OVERFLOW),
    (b'data: {"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"x"}}}\n\n', Failure.RATE_LIMIT),
    (b'data: {"choices":[],"x_groq":{"error":"over capacity"}}\n\n', Failure.SERVER),
    (b"data: error: kv cache full\n\n", Failure.SERVER),
    (b"event: error\ndata: something else\n\n", Failure.SERVER),
    (b'{\n  "error": {\n    "message": "x",\n    "code": 503\n  }\n}', Failure.OVERLOADED),
    (b'[{"error":{"code":400,"status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}]', Failure.AUTH),
]


@pytest.mark.parametrize(("data", "expected"), EVENTS)
def test_an_error_inside_a_200_is_seen(data: bytes, expected: Failure | None) -> None:
    assert expected == classify_event(data)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.integers(100, 599))
def test_no_body_makes_it_raise(body: bytes, status: int) -> None:
    for each in (body, b'{"error":' + body, b"data: " + body, json.dumps({"error": body.decode("latin-1")}).encode()):
        assert isinstance(classify(status, (), each), Failure)
        classify_event(each)


NOW = 1_800_000_000.0
WAITS: list[tuple[Headers, float | None]] = [
    ([], None),
    ([("retry-after", "17")], 17.0),
    ([("Retry-After", " 1.5 ")], 1.5),
    ([("retry-after", "17"), ("retry-after-ms", "250")], 0.25),
    ([("retry-after", "17"), ("retry-after-ms", "soon")], 17.0),
    ([("retry-after", formatdate(NOW + 2, usegmt=True))], 2.0),
    ([("retry-after", formatdate(NOW - 60, usegmt=True))], 0.0),
    ([("retry-after", "-5")], None),
    ([("retry-after", "inf")], None),
    ([("retry-after", "")], None),
    ([("retry-after", "Mon, 99 Foo 2026")], None),
]


@pytest.mark.parametrize(("headers", "expected"), WAITS)
def test_the_wait_is_read_in_each_form(headers: Headers, expected: float | None) -> None:
    assert expected == retry_after_s(headers, NOW)


def test_a_date_without_a_zone_is_utc_wherever_this_runs() -> None:
    code = f"from gateway.providers.failures import retry_after_s; print(retry_after_s([('retry-after', {formatdate(NOW + 2)!r})], {NOW}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "TZ": "Asia/Tokyo"}
    )

    assert done.stdout.strip() == "2.0"
