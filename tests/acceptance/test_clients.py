"""openai-python, unchanged, through the running gateway, on each store."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionToolParam
from pydantic import BaseModel

from gateway.providers.simulated import SimulatedModel
from tests.acceptance.harness import Served, gateway, provider

YAML = """
ledger: {{url: '{ledger}'}}
providers: {{up: {{kind: openai, base_url: 'http://127.0.0.1:{up}/v1', api_key: none}}}}
routes:
  - name: main
    models: [m]
    targets: [{{provider: up, model: m, window_tokens: 8000, output_limit_tokens: 1000, tokenizer: o200k_base}}]
  - name: lost
    models: [gone]
    targets: [{{provider: up, model: gone, window_tokens: 8000, output_limit_tokens: 1000}}]
    retry: {{attempts: 1}}
passthrough: {{provider: up}}
"""
LOOK: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}},
}


class Weather(BaseModel):
    city: str
    degrees: int


@pytest.fixture
def served(ledger_url: str, tmp_path: Path) -> Iterator[Served]:
    models = {"m": SimulatedModel(window_tokens=8_000, output_limit=1_000)}
    with provider(models) as (_, up), gateway(tmp_path, YAML.format(ledger=ledger_url, up=up)) as made:
        yield made


@pytest.fixture
def client(served: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=served.url + "/v1", api_key="any", max_retries=0) as made:
        yield made


def test_a_plain_call_and_its_raw_headers(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="m", messages=[{"role": "user", "content": "hello"}])

    assert raw.parse().choices[0].message.content
    assert raw.headers["x-gateway-target"] == "up/m"
    assert raw.headers["x-gateway-route"] == "main"
    assert raw.headers["x-gateway-attempts"] == "1"
    assert raw.headers["x-gateway-compaction"] == "none"
    assert raw.headers["x-gateway-runway"].startswith("estimate=")
    assert raw.headers["x-request-id"]
    assert raw.headers["x-gateway-snapshot-id"]


def test_a_stream_with_and_without_usage(client: OpenAI) -> None:
    plain = list(client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}], stream=True))
    asked = list(
        client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hello"}], stream=True, stream_options={"include_usage": True}
        )
    )

    assert "".join(c.choices[0].delta.content or "" for c in plain)
    assert all(chunk.choices and chunk.usage is None for chunk in plain)
    assert asked[-1].usage is not None
    assert asked[-1].usage.prompt_tokens > 0


def test_parallel_tools_go_out_and_their_results_come_back(client: OpenAI) -> None:
    reply = client.chat.completions.create(
        model="m",
        messages=[
            {"role": "user", "content": "look twice"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"q": 1}'}},
                    {"id": "b", "type": "function", "function": {"name": "look", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "one"},
            {"role": "tool", "tool_call_id": "b", "content": "two"},
        ],
        tools=[LOOK],
    )

    assert reply.choices[0].finish_reason in ("stop", "tool_calls")


def test_structured_output(client: OpenAI) -> None:
    reply = client.chat.completions.parse(model="m", messages=[{"role": "user", "content": "weather"}], response_format=Weather)

    assert isinstance(reply.choices[0].message.parsed, Weather)


def test_async_calls_at_once(served: Served) -> None:
    async def call() -> list[str | None]:
        async with AsyncOpenAI(base_url=served.url + "/v1", api_key="any") as client:
            calls = [client.chat.completions.create(model="m", messages=[{"role": "user", "content": f"n {n}"}]) for n in range(8)]
            return [reply.choices[0].message.content for reply in await asyncio.gather(*calls)]

    assert all(asyncio.run(call()))


def test_errors_raise_the_right_class(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="nosuch", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "alpha " * 20_000}])
    with pytest.raises(openai.NotFoundError) as gone:
        client.chat.completions.create(model="gone", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.BadRequestError) as unpaired:
        client.chat.completions.create(model="m", messages=[{"role": "tool", "tool_call_id": "x", "content": "y"}])

    assert unknown.value.code == "model_not_found"
    assert long.value.code == "context_length_exceeded"
    assert gone.value.status_code == 404
    assert unpaired.value.response.headers["x-gateway-target"] == "up/m"


def test_models_are_listed(client: OpenAI) -> None:
    assert {"m", "main", "gone", "lost"} >= {each.id for each in client.models.list()}


def test_every_prompt_is_verified_in_another_process(client: OpenAI, served: Served) -> None:
    for number in range(3):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": f"hello {number}"}])
    served.process.terminate()
    served.process.wait(10)
    done = served.run("verify")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "3" in done.stdout
