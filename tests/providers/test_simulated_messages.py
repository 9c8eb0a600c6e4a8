import json
from typing import Any

import pytest

from gateway.dialects.messages_answers import read_reply, read_stream
from gateway.providers.simulated import SimulatedModel, SimulatedProvider
from gateway.providers.simulated_messages import MessagesApplication, check, events, render, signature
from gateway.providers.simulated_rules import Refusal

ASK = {"role": "user", "content": "Hi"}
CALL = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "r"}
TEXT = {"type": "text", "text": "x"}
MARK = {"cache_control": {"type": "ephemeral"}}


def body(*messages: object, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 64, "messages": list(messages or [ASK]), **fields}


def application(**model: Any) -> MessagesApplication:
    made = SimulatedModel(window_tokens=1_000, output_limit=100, cache="marks", minimum_tokens=20, **model)
    return MessagesApplication(SimulatedProvider({"m": made}, clock=lambda: 0.0, count=lambda text: -(-len(text) // 4)))


def asked(served: MessagesApplication, made: dict[str, Any]) -> dict[str, Any]:
    return served.answer(json.dumps(made).encode())[0]


REFUSED = [
    (body(surprise=1), "Extra inputs"),
    ({"model": "m", "messages": [ASK]}, "max_tokens"),
    (body({"role": "assistant", "content": "x"}), "first message"),
    (body({"role": "user", "content": ""}), "non-empty"),
    (body({"role": "user", "content": "x", "name": "n"}), "Extra inputs"),
    (body(ASK, {"role": "assistant", "content": [CALL]}), "immediately after"),
    (body(ASK, {"role": "assistant", "content": [CALL]}, ASK), "must match"),
    (body(ASK, {"role": "assistant", "content": [CALL]}, {"role": "user", "content": [TEXT, RESULT]}), "come first"),
    (body({"role": "user", "content": [RESULT]}), "must match"),
    (body(ASK, {"role": "assistant", "content": [{"type": "thinking", "thinking": "a", "signature": "forged"}]}), "signature"),
    (body(system=[{**TEXT, **MARK}] * 5), "A maximum of 4"),
    (body(system=[{"type": "text", "text": "", **MARK}]), "empty text"),
]


@pytest.mark.parametrize(("made", "said"), REFUSED)
def test_what_anthropic_refuses_is_refused(made: dict[str, Any], said: str) -> None:
    with pytest.raises(Refusal, match=said):
        check(made)


def test_what_it_signed_itself_comes_back_well() -> None:
    thought = {"type": "thinking", "thinking": "a", "signature": signature("a")}

    check(body(ASK, {"role": "assistant", "content": [thought, CALL]}, {"role": "user", "content": [RESULT, TEXT]}))


def test_usage_parts_what_was_read_written_and_fresh() -> None:
    served, marked = application(), body(system=[{"type": "text", "text": "S" * 400, **MARK}])
    first, second = (asked(served, marked)["usage"] for _ in range(2))

    assert first["cache_creation_input_tokens"] == second["cache_read_input_tokens"] > 100
    assert first["cache_read_input_tokens"] == second["cache_creation_input_tokens"] == 0
    assert first["input_tokens"] == second["input_tokens"] > 0


def test_the_window_holds() -> None:
    with pytest.raises(Refusal, match="prompt is too long"):
        asked(application(), body({"role": "user", "content": "x" * 8_000}))


@pytest.mark.parametrize("fields", [{}, {"thinking": {"type": "enabled", "budget_tokens": 1}},
                                    {"tools": [{"name": "look", "input_schema": {}}], "tool_choice": {"type": "any"}}])  # fmt: skip
def test_a_stream_says_what_the_whole_says(fields: dict[str, Any]) -> None:
    whole = asked(application(), body(**fields))

    assert read_reply(json.dumps(whole).encode()) == read_stream(b"".join(events(whole)))


def test_rendering_goes_tools_system_turns() -> None:
    made = render(body(system="S", tools=[{"name": "look", "input_schema": {}}]), len)

    assert ["look" in made[0].text, "S" in made[1].text, made[2].tokens, "Hi" in made[3].text] == [True, True, 0, True]
    assert [block.marked for block in render(body(cache_control=MARK["cache_control"]), len)] == [False, True]
