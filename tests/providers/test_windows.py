"""What providers say of their windows: recorded shapes of each, and the traps of the reference file."""

# ruff: noqa: E501 - a row of the table is easier read in few lines

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.providers.base import AttemptFailed, Endpoint, Failure, Headers, Outgoing
from gateway.providers.openai import OpenAIUpstream
from gateway.providers.windows import DEADLINE_S, Limits, look_up
from tests.providers.test_openai import Server


class Told:
    """A reply with this JSON, or with this text as it is."""

    headers: Headers = ()

    def __init__(self, answer: object, status: int = 200) -> None:
        self.status = status
        self._body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body

    async def read(self, limit_bytes: int) -> bytes:
        return self._body[:limit_bytes]

    async def close(self) -> None:
        pass


class Provider:
    """A provider whose answers stand in a table by whole address; notes what it was asked."""

    def __init__(self, answers: dict[str, object]) -> None:
        self.answers, self.asked, self.closed = answers, list[str](), 0

    def open(self, base: str) -> "Door":
        return Door(self, base)


class Door:
    def __init__(self, provider: Provider, base: str) -> None:
        self._provider, self._base = provider, base

    async def send(self, call: Outgoing) -> Told:
        address = f"{self._base.rstrip('/')}/{call.path}"
        self._provider.asked.append(address)
        answer = self._provider.answers.get(address)
        if isinstance(answer, AttemptFailed):
            raise answer
        return Told({}, 404) if answer is None else Told(answer)

    async def close(self) -> None:
        self._provider.closed += 1


def models(**entry: Any) -> dict[str, object]:
    return {"object": "list", "data": [{"id": "other", "max_model_len": 1024}, {"id": "m", **entry}]}


LOCAL, OLLAMA, GROQ = "http://127.0.0.1:8000/v1", "http://127.0.0.1:11434/v1", "https://api.groq.com/openai/v1"
ROUTER, GOOGLE = "https://openrouter.ai/api/v1", "https://generativelanguage.googleapis.com/v1beta/openai"
LM = {"models": [{"type": "llm", "key": "m", "max_context_length": 262_144,
                  "loaded_instances": [{"id": "m:2", "config": {"context_length": 8_192}}, {"id": "m", "config": {"context_length": 4_096}}]}]}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "base", "answers", "limits"),
    [
        pytest.param("openai", LOCAL, {f"{LOCAL}/models": models(owned_by="vllm", max_model_len=32_768)}, Limits(window=32_768), id="vllm"),
        pytest.param("openai", LOCAL, {f"{LOCAL}/models": models(owned_by="sglang", max_model_len=8_192.0)}, Limits(window=8_192),
                     id="sglang, a float"),
        pytest.param("openai", GROQ, {f"{GROQ}/models": models(owned_by="OpenAI", context_window=131_072, max_completion_tokens=65_536)},
                     Limits(window=131_072, output_limit=65_536), id="groq"),
        pytest.param("openai", "https://api.mistral.ai/v1", {"https://api.mistral.ai/v1/models": models(max_context_length=262_144)},
                     Limits(window=262_144), id="mistral"),
        pytest.param("openai", LOCAL, {f"{LOCAL}/models": models(owned_by="llamacpp", meta={"n_ctx_train": 131_072}),
                     "http://127.0.0.1:8000/props": {"default_generation_settings": {"n_ctx": 4_096}, "total_slots": 4}},
                     Limits(window=4_096), id="llama.cpp, a slot and not what it was trained for"),
        pytest.param("openai", LOCAL, {f"{LOCAL}/models": models(owned_by="llamacpp", meta={"n_ctx_train": 131_072})}, None,
                     id="llama.cpp that hides its props"),
        pytest.param("openai", OLLAMA, {f"{OLLAMA}/models": models(owned_by="library"),
                     "http://127.0.0.1:11434/api/ps": {"models": [{"name": "m:latest", "context_length": 32_768}]}},
                     Limits(window=32_768), id="ollama, loaded"),
        pytest.param("openai", OLLAMA, {f"{OLLAMA}/models": models(owned_by="library"), "http://127.0.0.1:11434/api/ps": {"models": []}},
                     None, id="ollama, not loaded: nothing is allocated"),
        pytest.param("openai", LOCAL, {f"{LOCAL}/models": models(owned_by="organization_owner"), "http://127.0.0.1:8000/api/v1/models": LM},
                     Limits(window=4_096), id="lm studio, the least of its instances"),
        pytest.param("openai", LOCAL, {f"{LOCAL}/models": models(owned_by="organization_owner"), "http://127.0.0.1:8000/api/v0/models":
                     models(max_context_length=262_144, loaded_context_length=8_192)}, Limits(window=8_192), id="lm studio, before"),
        pytest.param("openai", ROUTER, {f"{ROUTER}/models/a/b/endpoints": {"data": {"endpoints": [
                     {"context_length": 262_144, "max_completion_tokens": None},
                     {"context_length": 131_072, "max_prompt_tokens": 100_000, "max_completion_tokens": 16_384}]}}},
                     Limits(window=131_072, input_limit=100_000, output_limit=16_384), id="openrouter, the least of its endpoints"),
        pytest.param("openai", GOOGLE, {"https://generativelanguage.googleapis.com/v1beta/models/m":
                     {"inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536}},
                     Limits(window=1_114_112, input_limit=1_048_576, output_limit=65_536), id="gemini, separate"),
        pytest.param("anthropic", "https://api.anthropic.com", {"https://api.anthropic.com/v1/models/m":
                     {"max_input_tokens": 1_000_000, "max_tokens": 128_000}}, Limits(window=1_000_000, output_limit=128_000),
                     id="anthropic"),
        pytest.param("openai", LOCAL, {f"{LOCAL}/models": models(max_model_len=-1, context_length=0)}, None, id="not set"),
        pytest.param("openai", LOCAL, {f"{LOCAL}/models": models(max_model_len=True, context_window="8192")}, None, id="no numbers"),
        pytest.param("openai", LOCAL, {f"{LOCAL}/models": models(max_model_len=10**12)}, None, id="beyond belief"),
        pytest.param("openai", LOCAL, {f"{LOCAL}/models": {"data": [{"id": "x"}]}}, None, id="a model that it does not list"),
        pytest.param("openai", LOCAL, {f"{LOCAL}/models": [1]}, None, id="no object"),
        pytest.param("openai", LOCAL, {f"{LOCAL}/models": b"<html>"}, None, id="no JSON"),
        pytest.param("openai", LOCAL, {f"{LOCAL}/models": AttemptFailed(Failure.CONNECT, "away")}, None, id="away"),
        pytest.param("openai", LOCAL, {}, None, id="not served"),
    ],
)  # fmt: skip
def test_what_a_provider_says(kind: str, base: str, answers: dict[str, object], limits: Limits | None) -> None:
    model = "a/b" if base == ROUTER else "m"
    provider = Provider(answers)

    assert limits == asyncio.run(look_up(kind, base, model, provider.open))
    assert provider.closed == len(provider.asked)


@pytest.mark.parametrize(
    "base", ["https://api.openai.com/v1", "https://x.openai.azure.com/openai/v1", "https://api.deepseek.com/v1"]
)
def test_those_who_say_nothing_are_not_asked(base: str) -> None:
    provider = Provider({})

    assert asyncio.run(look_up("openai", base, "m", provider.open)) is None
    assert provider.asked == []


def test_a_real_server_is_asked_with_its_own_key_and_a_slow_one_not_waited_for() -> None:
    body = json.dumps(models(max_model_len=16_384)).encode()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async def hangs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def run() -> None:
        for each, limits in ((script, Limits(window=16_384)), (hangs, None)):
            server = Server(each)
            listening = await asyncio.start_server(server.accept, "127.0.0.1", 0)
            port = listening.sockets[0].getsockname()[1]
            began = time.monotonic()
            found = await look_up(
                "openai",
                f"http://127.0.0.1:{port}/v1",
                "m",
                lambda base: OpenAIUpstream(Endpoint(name="p", base_url=base, key="K")),
            )
            listening.close()
            await asyncio.gather(*server.tasks)

            assert limits == found
            assert server.line == "GET /v1/models HTTP/1.1"
            assert server.header("authorization") == ["Bearer K"]
            assert time.monotonic() - began < DEADLINE_S + 0.5

    asyncio.run(run())
