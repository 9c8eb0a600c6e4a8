"""anthropic-python, unchanged, through the running gateway, to a provider of its own dialect."""

from collections.abc import Iterator

import anthropic
import pytest
from anthropic import Anthropic
from anthropic.types import MessageParam, ThinkingBlock, ToolParam, ToolUseBlock

from gateway.providers.simulated import Fault, SimulatedModel, SimulatedProvider
from gateway.providers.simulated_messages import app
from tests.acceptance.harness import Served, gateway, running

YAML = """
ledger: {{url: 'sqlite:{folder}/gateway.db'}}
providers: {{up: {{kind: anthropic, base_url: 'http://127.0.0.1:{up}', api_key: UPKEY-ONE}}}}
routes:
  - name: main
    models: [claude]
    targets: [{{provider: up, model: m, window_tokens: 8000, output_limit_tokens: 1000, tokenizer: o200k_base}}]
    retry: {{attempts: 1}}
"""
LOOK: ToolParam = {"name": "look", "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}}}
ASK: list[MessageParam] = [{"role": "user", "content": "hello"}]
SYSTEM = "You are careful. " * 200


@pytest.fixture(scope="module")
def upstream() -> Iterator[tuple[SimulatedProvider, int]]:
    models = {"m": SimulatedModel(window_tokens=8_000, output_limit=1_000, cache="marks", minimum_tokens=512)}
    made = SimulatedProvider(models, api_key="UPKEY-ONE")
    with running(app(made)) as port:
        yield made, port


@pytest.fixture(scope="module")
def served(upstream: tuple[SimulatedProvider, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("gateway")
    with gateway(folder, YAML.format(folder=folder, up=upstream[1])) as made:
        yield made


@pytest.fixture
def client(served: Served) -> Iterator[Anthropic]:
    with Anthropic(base_url=served.url, api_key="any", max_retries=0) as made:
        yield made


def test_a_plain_call_and_its_raw_headers(client: Anthropic) -> None:
    raw = client.messages.with_raw_response.create(model="claude", max_tokens=64, messages=ASK)
    made = raw.parse()

    assert (made.stop_reason, made.content[0].type) == ("end_turn", "text")
    assert (raw.headers["x-gateway-target"], raw.headers["x-gateway-compaction"]) == ("up/m", "none")
    assert raw.headers["x-gateway-snapshot-id"]


def test_a_stream_is_put_together_by_the_sdk(client: Anthropic) -> None:
    with client.messages.stream(model="claude", max_tokens=64, messages=ASK) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()

    assert text == "This is a simulated answer to 1 turns."
    assert (final.stop_reason, final.usage.output_tokens > 1) == ("end_turn", True)


def test_thinking_and_a_tool_go_out_and_come_back_signed(client: Anthropic) -> None:
    first = client.messages.create(
        model="claude", max_tokens=900, messages=ASK, tools=[LOOK], tool_choice={"type": "any"},
        thinking={"type": "enabled", "budget_tokens": 1024},
    )  # fmt: skip
    thought, call = first.content
    assert isinstance(thought, ThinkingBlock)
    assert isinstance(call, ToolUseBlock)
    result: MessageParam = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "42"}]}

    second = client.messages.create(
        model="claude", max_tokens=900, tools=[LOOK], messages=[*ASK, {"role": "assistant", "content": first.content}, result],
        thinking={"type": "enabled", "budget_tokens": 1024},
    )  # fmt: skip

    assert first.stop_reason == "tool_use"
    assert [block.type for block in second.content] == ["thinking", "text"]


def test_what_a_mark_covers_is_written_and_then_read(client: Anthropic) -> None:
    marked: anthropic.types.TextBlockParam = {"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}
    calls = [client.messages.create(model="claude", max_tokens=64, system=[marked], messages=ASK).usage for _ in range(2)]

    assert calls[0].cache_creation_input_tokens == calls[1].cache_read_input_tokens
    assert (calls[1].cache_read_input_tokens or 0) > 512


def test_tokens_are_counted(client: Anthropic) -> None:
    few = client.messages.count_tokens(model="claude", messages=ASK).input_tokens
    many = client.messages.count_tokens(model="claude", messages=ASK, system=SYSTEM).input_tokens

    assert 0 < few < many - 500


def test_a_long_conversation_is_cut_and_still_answered(client: Anthropic) -> None:
    turns: list[MessageParam] = []
    for number in range(60):
        turns += [{"role": "user", "content": f"{number} " + "alpha " * 200}, {"role": "assistant", "content": "noted"}]

    raw = client.messages.with_raw_response.create(model="claude", max_tokens=64, system="S", messages=[*turns, *ASK])

    assert raw.parse().stop_reason == "end_turn"
    assert raw.headers["x-gateway-compaction"].startswith("sliding_window")


def test_errors_raise_the_right_class(client: Anthropic, upstream: tuple[SimulatedProvider, int]) -> None:
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="nosuch", max_tokens=64, messages=ASK)
    with pytest.raises(anthropic.BadRequestError, match="fit"):
        client.messages.create(model="claude", max_tokens=64, messages=[{"role": "user", "content": "alpha " * 20_000}])
    with pytest.raises(anthropic.BadRequestError, match="Extra inputs"):
        client.messages.create(model="claude", max_tokens=64, messages=ASK, extra_body={"surprise": 1})
    upstream[0].faults.append(Fault(kind="status", status=429))
    with pytest.raises(anthropic.RateLimitError):
        client.messages.create(model="claude", max_tokens=64, messages=ASK)
    upstream[0].faults.append(Fault(kind="truncated", after_chunks=4))
    with pytest.raises(anthropic.APIStatusError), client.messages.stream(model="claude", max_tokens=64, messages=ASK) as stream:
        stream.get_final_message()


def test_every_prompt_is_verified_in_another_process(client: Anthropic, served: Served) -> None:
    client.messages.create(model="claude", max_tokens=64, messages=ASK)
    done = served.run("verify")

    assert done.returncode == 0, done.stdout + done.stderr
