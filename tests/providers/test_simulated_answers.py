import json
from typing import Any

import pytest

from gateway.providers.simulated_answers import Answer, chunks, completion, default_message, fill

CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"q": "harbour"}'}}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}}


def answer(message: dict[str, Any], *, room: int = 1_000, **body: Any) -> Answer:
    return Answer.make(1, {"model": "m", "messages": [], **body}, message, {"prompt_tokens": 10}, room, len)


def events(made: Answer) -> list[Any]:
    lines = [event.decode().removeprefix("data: ").strip() for event in chunks(made)]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_completion_holds_message_and_usage() -> None:
    body = completion(answer({"content": "hello"}))

    assert body["choices"][0]["message"] == {"role": "assistant", "content": "hello"}
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"] == {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def test_a_text_is_cut_where_the_room_ends() -> None:
    body = completion(answer({"content": "hello"}, room=3))

    assert body["choices"][0]["message"]["content"] == "hel"
    assert body["choices"][0]["finish_reason"] == "length"


def test_as_many_choices_as_asked() -> None:
    body = completion(answer({"content": "hello"}, n=2))

    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    assert body["usage"]["completion_tokens"] == 10


def test_a_stream_begins_with_the_role_and_ends_with_the_reason() -> None:
    made = events(answer({"content": "hello world"}))
    deltas = [event["choices"][0]["delta"] for event in made]

    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == "hello world"
    assert [event["choices"][0]["finish_reason"] for event in made][-2:] == [None, "stop"]
    assert not any("usage" in event for event in made)


def test_usage_comes_only_when_asked_and_last() -> None:
    made = events(answer({"content": "hello"}, stream_options={"include_usage": True}))

    assert all(event["usage"] is None for event in made[:-1])
    assert made[-1]["choices"] == []
    assert made[-1]["usage"]["total_tokens"] == 15


def test_calls_stream_with_their_index_and_name_once() -> None:
    deltas = [
        event["choices"][0]["delta"] for event in events(answer({"content": None, "tool_calls": [CALL, {**CALL, "id": "b"}]}))
    ]
    parts = [part for delta in deltas for part in delta.get("tool_calls", ())]

    assert [part["id"] for part in parts if "id" in part] == ["a", "b"]
    for index in (0, 1):
        written = "".join(part["function"]["arguments"] for part in parts if part["index"] == index)
        assert written == CALL["function"]["arguments"]  # type: ignore[index]  # a plain dict


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}}, {"a": 0, "b": False}),
        ({"properties": {"a": {"enum": ["x", "y"]}}}, {"a": "x"}),
        ({"type": ["string", "null"]}, "simulated"),
        ({"type": "array", "items": {"const": 1}, "minItems": 2}, [1, 1]),
        ({"type": "array"}, []),
        ({"type": "null"}, None),
        ({"type": "number", "minimum": 3}, 3),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, None),
        ({"$ref": "#/$defs/D", "$defs": {"D": {"type": "object", "properties": {"c": {"type": "string"}}}}}, {"c": "simulated"}),
        ({}, "simulated"),
    ],
    ids=range(10),
)
def test_a_value_fits_its_schema(schema: dict[str, Any], value: object) -> None:
    assert fill(schema) == value


def test_a_schema_that_refers_to_itself_ends() -> None:
    assert "next" in fill({"type": "object", "properties": {"next": {"$ref": "#"}}})


def test_the_default_answer_depends_on_the_body_alone() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}

    assert default_message({"messages": [1, 2]})["content"] == "This is a simulated answer to 2 messages."
    assert default_message({"messages": [], "response_format": wanted})["content"] == '{"a": 0}'
    assert default_message({"messages": [], "response_format": {"type": "json_object"}})["content"] == "{}"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "look"}}])
def test_a_demanded_call_is_made(choice: object) -> None:
    message = default_message({"messages": [], "tools": [LOOK], "tool_choice": choice})

    assert message["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"q": "simulated"}'}
