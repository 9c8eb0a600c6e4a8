"""The simulated provider as its clients see it: the openai SDK over real HTTP, and bare HTTP where the wire matters."""

import hashlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
import uvicorn
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel

from gateway.providers.simulated import Fault, SimulatedModel, SimulatedProvider, app, start_in_thread
from gateway.providers.simulated_rules import Refusal
from tests.acceptance.harness import free_port

MODELS = {
    "auto": SimulatedModel(window_tokens=8_000, output_limit=1_000),
    "marks": SimulatedModel(window_tokens=8_000, output_limit=1_000, cache="marks"),
    "blocks": SimulatedModel(window_tokens=8_000, output_limit=1_000, cache="blocks", ttl_s=10),
    "none": SimulatedModel(window_tokens=8_000, output_limit=1_000, cache="none"),
}
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]
LONG = "word " * 2_000
LOOK: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}},
}


class Weather(BaseModel):
    city: str
    degrees: int


def body(model: str = "auto", text: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


def ask(provider: SimulatedProvider, given: dict[str, Any]) -> Any:
    return provider.complete(json.dumps(given).encode())


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[SimulatedProvider, str]]:
    """One provider on a real server; tests leave no fault behind."""
    provider, port = SimulatedProvider(MODELS), free_port()
    config = uvicorn.Config(app(provider), port=port, log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    with httpx.Client(transport=httpx.HTTPTransport(retries=8), base_url=f"http://127.0.0.1:{port}") as client:
        client.get("/calls")
    yield provider, f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def provider(served: tuple[SimulatedProvider, str]) -> SimulatedProvider:
    served[0].faults.clear()
    return served[0]


@pytest.fixture
def client(served: tuple[SimulatedProvider, str]) -> Iterator[OpenAI]:
    with OpenAI(base_url=served[1] + "/v1", api_key="any", max_retries=0, timeout=5) as made:
        yield made


@pytest.fixture
def web(served: tuple[SimulatedProvider, str]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served[1], timeout=5) as made:
        yield made


def test_the_sdk_reads_a_plain_answer(client: OpenAI) -> None:
    reply = client.chat.completions.create(model="auto", messages=HELLO)

    assert reply.choices[0].message.content == "This is a simulated answer to 1 messages."
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_the_sdk_reads_a_stream_with_and_without_usage(client: OpenAI) -> None:
    plain = list(client.chat.completions.create(model="auto", messages=HELLO, stream=True))
    asked = list(client.chat.completions.create(model="auto", messages=HELLO, stream=True, stream_options={"include_usage": True}))

    assert "".join(chunk.choices[0].delta.content or "" for chunk in plain) == "This is a simulated answer to 1 messages."
    assert all(chunk.usage is None for chunk in plain)
    assert asked[-1].choices == []
    assert asked[-1].usage is not None


def test_the_sdk_reads_calls_plain_and_streamed(client: OpenAI) -> None:
    reply = client.chat.completions.create(model="auto", messages=HELLO, tools=[LOOK], tool_choice="required")
    with client.chat.completions.stream(model="auto", messages=HELLO, tools=[LOOK], tool_choice="required") as stream:
        streamed = stream.get_final_completion()

    for made in (reply, streamed):
        calls = made.choices[0].message.tool_calls
        assert calls is not None
        assert calls[0].type == "function"
        assert calls[0].function.arguments == '{"q": "simulated"}'
        assert made.choices[0].finish_reason == "tool_calls"


def test_the_sdk_parses_structured_output(client: OpenAI) -> None:
    reply = client.chat.completions.parse(model="auto", messages=HELLO, response_format=Weather)

    assert reply.choices[0].message.parsed == Weather(city="simulated", degrees=0)


def test_models_are_listed(client: OpenAI) -> None:
    assert [each.id for each in client.models.list()] == list(MODELS)
    assert client.models.retrieve("marks").id == "marks"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_errors_raise_the_right_class(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="other", messages=HELLO)
    with pytest.raises(openai.BadRequestError) as unpaired:
        client.chat.completions.create(model="auto", messages=[{"role": "tool", "tool_call_id": "x", "content": "y"}])

    assert unknown.value.code == "model_not_found"
    assert "preceeding" in unpaired.value.message


def test_an_overflow_says_the_sums(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model="auto", messages=[{"role": "user", "content": "word " * 8_000}], max_tokens=500)

    assert long.value.code == "context_length_exceeded"
    assert "maximum context length is 8000 tokens" in long.value.message
    assert "500 in the completion" in long.value.message


def test_prompt_and_output_share_the_window_to_the_token() -> None:
    provider = SimulatedProvider({"m": SimulatedModel(window_tokens=100, output_limit=90)}, count=len)
    used = ask(provider, body("m", "x", max_tokens=1)).usage["prompt_tokens"]

    assert ask(provider, body("m", "x", max_tokens=min(90, 100 - used)))
    fits = "x" * (1 + 100 - used - 1)
    assert ask(provider, body("m", fits)).finish_reason == "length"
    with pytest.raises(Refusal, match="maximum context length"):
        ask(provider, body("m", fits + "x"))
    with pytest.raises(Refusal, match="maximum context length"):
        ask(provider, body("m", fits, max_tokens=2))


def test_a_wrong_or_missing_key_is_refused_when_there_is_one() -> None:
    provider = SimulatedProvider(MODELS, api_key="right")

    provider.authorise({"authorization": "Bearer right"})
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer é"}):
        with pytest.raises(Refusal) as refused:
            provider.authorise(headers)
        assert refused.value.status == 401


@pytest.mark.parametrize("given", [{}, {"model": None}, {"model": 4}])
def test_a_request_names_its_model(given: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match="model parameter"):
        ask(SimulatedProvider(MODELS), given)


@pytest.mark.parametrize(("model", "cached"), [("auto", 1_920), ("blocks", 1_984)])
def test_cached_tokens_are_reported_in_whole_steps(model: str, cached: int) -> None:
    provider = SimulatedProvider(MODELS)

    assert ask(provider, body(model, LONG)).usage["prompt_tokens_details"] == {"cached_tokens": 0}
    assert ask(provider, body(model, LONG)).usage["prompt_tokens_details"] == {"cached_tokens": cached}


def test_models_do_not_share_a_cache() -> None:
    provider = SimulatedProvider(MODELS)
    ask(provider, body("auto", LONG))

    assert ask(provider, body("blocks", LONG)).usage["prompt_tokens_details"]["cached_tokens"] == 0


def test_white_space_between_tokens_does_not_matter() -> None:
    provider = SimulatedProvider(MODELS)
    provider.complete(json.dumps(body(text=LONG), indent=4).encode())

    assert ask(provider, body(text=LONG)).usage["prompt_tokens_details"]["cached_tokens"] > 1_900


def test_a_cache_expires_by_the_given_clock() -> None:
    now = [0.0]
    provider = SimulatedProvider(MODELS, clock=lambda: now[0])
    found = []
    for now[0] in (0.0, 9.0, 18.0, 28.5):
        found.append(ask(provider, body("blocks", LONG)).usage["prompt_tokens_details"]["cached_tokens"] > 0)

    assert found == [False, True, True, False]


def test_marks_report_what_was_read_and_written() -> None:
    provider = SimulatedProvider(MODELS)
    marked = {"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}
    details = []
    for tail in ("one", "two"):
        messages = [{"role": "system", "content": [marked]}, {"role": "user", "content": tail}]
        details.append(ask(provider, {"model": "marks", "messages": messages}).usage["prompt_tokens_details"])

    assert details[0]["cached_tokens"] == details[1]["cache_write_tokens"] == 0
    assert details[0]["cache_write_tokens"] == details[1]["cached_tokens"] > 1_900


def test_a_model_without_cache_reports_none() -> None:
    assert "prompt_tokens_details" not in ask(SimulatedProvider(MODELS), body("none")).usage


def test_a_recorded_message_is_played() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    by_metadata = ask(SimulatedProvider(MODELS), body(metadata={"simulated_message": json.dumps({"content": "recorded"})}))
    by_script = ask(SimulatedProvider(MODELS, script=lambda _: {"content": None, "tool_calls": [call]}), body())
    by_answer = ask(SimulatedProvider(MODELS, answer=lambda given: {"content": given["model"]}, script=lambda _: None), body())

    assert by_metadata.message["content"] == "recorded"
    assert by_script.message["tool_calls"] == [call]
    assert by_answer.message["content"] == "auto"


def test_every_call_is_kept_with_its_digest_and_no_secret(provider: SimulatedProvider, web: httpx.Client) -> None:
    raw = json.dumps(body()).encode()
    web.post("/v1/chat/completions", content=raw, headers={"authorization": "Bearer secret", "x-session-id": "s1"})
    web.post("/v1/chat/completions", content=b"{broken")

    last, broken = provider.calls[-2:]
    assert (last.path, last.body, last.sha256) == ("/v1/chat/completions", raw, hashlib.sha256(raw).hexdigest())
    assert last.headers["x-session-id"] == "s1"
    assert "secret" not in str(last.headers)
    assert broken.body == b"{broken"
    assert [call["sha256"] for call in web.get("/calls").json()] == [call.sha256 for call in provider.calls]


def test_an_unknown_path_is_refused(web: httpx.Client) -> None:
    assert web.post("/v1/other").status_code == 404


def test_a_status_fault_comes_so_often_and_with_its_wait(provider: SimulatedProvider, web: httpx.Client) -> None:
    fault = {"kind": "status", "status": 429, "code": "rate_limit_exceeded", "retry_after_s": 2, "times": 2}
    queued = web.post("/control", json={"faults": [fault]})
    replies = [web.post("/v1/chat/completions", json=body()) for _ in range(3)]

    assert queued.json() == {"faults": 2}
    assert [reply.status_code for reply in replies] == [429, 429, 200]
    assert replies[0].headers["retry-after"] == "2"
    assert replies[0].json()["error"]["code"] == "rate_limit_exceeded"


def test_faults_can_be_cleared_and_unknown_ones_are_refused(provider: SimulatedProvider, web: httpx.Client) -> None:
    web.post("/control", json={"faults": [{"kind": "hang"}]})

    assert web.post("/control", json={"clear": True}).json() == {"faults": 0}
    for bad in ({"kind": "flood"}, {"kind": "hang", "colour": 1}, "hang"):
        assert web.post("/control", json={"faults": [bad]}).status_code == 400
    assert not provider.faults


def test_an_overflow_fault_looks_like_the_newer_error(provider: SimulatedProvider, web: httpx.Client) -> None:
    provider.faults.append(Fault(kind="overflow"))
    reply = web.post("/v1/chat/completions", json=body())

    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("stream", [False, True])
def test_a_reset_cuts_the_answer(provider: SimulatedProvider, web: httpx.Client, stream: bool) -> None:
    provider.faults.append(Fault(kind="reset"))

    with pytest.raises(httpx.RemoteProtocolError):
        web.post("/v1/chat/completions", json=body(stream=stream))


def test_a_truncated_stream_ends_cleanly_without_its_end(provider: SimulatedProvider, web: httpx.Client) -> None:
    provider.faults.append(Fault(kind="truncated"))
    text = web.post("/v1/chat/completions", json=body(stream=True)).text

    assert text.count("data: ") == 2
    assert "[DONE]" not in text


@pytest.mark.parametrize(("stream", "says"), [(False, "<html>"), (True, "{not json")])
def test_garbage_is_no_json(provider: SimulatedProvider, web: httpx.Client, stream: bool, says: str) -> None:
    provider.faults.append(Fault(kind="garbage"))
    reply = web.post("/v1/chat/completions", json=body(stream=stream))

    assert reply.status_code == 200
    assert says in reply.text


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_comes_after_the_status_said_well(provider: SimulatedProvider, web: httpx.Client, stream: bool) -> None:
    provider.faults.append(Fault(kind="error_event"))
    reply = web.post("/v1/chat/completions", json=body(stream=stream))

    assert reply.status_code == 200
    assert '"error": {' in reply.text
    assert "[DONE]" not in reply.text


def test_a_hang_answers_nothing_and_a_delay_answers_late(provider: SimulatedProvider, web: httpx.Client) -> None:
    provider.faults.extend([Fault(kind="hang"), Fault(kind="delay", delay_s=0.05)])

    with pytest.raises(httpx.ReadTimeout):
        web.post("/v1/chat/completions", json=body(), timeout=0.2)
    assert web.post("/v1/chat/completions", json=body()).elapsed.total_seconds() >= 0.05


def test_a_thread_serves_until_the_process_ends() -> None:
    port = start_in_thread({"m": SimulatedModel(window_tokens=1_000, output_limit=100)})

    assert httpx.get(f"http://127.0.0.1:{port}/v1/models", timeout=10).json()["data"][0]["id"] == "m"


def test_each_model_counts_with_its_own_tokenizer() -> None:
    models = {name: SimulatedModel(window_tokens=9_000, output_limit=100, tokenizer=name) for name in ("o200k_base", "bytes")}
    provider = SimulatedProvider(models)
    used = {name: ask(provider, body(name, LONG)).usage["prompt_tokens"] for name in models}

    assert 2_000 < used["o200k_base"] < 2_020
    assert 3_333 < used["bytes"] < 3_350


def test_thousands_of_calls_are_quick() -> None:
    """What a replay of a hundred transcripts needs: about 2,400 calls of 16 KB in well under a minute. Here 300 of them."""
    provider = SimulatedProvider({"m": SimulatedModel(window_tokens=1_000_000, output_limit=100)})
    messages = [{"role": "user", "content": f"turn {at} " + "word " * 130} for at in range(30)]
    for session in range(10):
        for at in range(30):
            ask(provider, {"model": "m", "messages": [{"role": "system", "content": f"session {session}"}, *messages[: at + 1]]})

    assert provider.served == 300
