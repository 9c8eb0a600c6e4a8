"""Every refusal as a row: what is sent, and what the error says of it."""

import json
from typing import Any

import pytest

from gateway.providers.simulated_rules import Refusal, check, parse

HELLO: dict[str, Any] = {"role": "user", "content": "hello"}
MARK = {"type": "ephemeral"}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
PARSED = {"id": "a", "type": "function", "function": {"name": "look", "arguments": {}}}  # arguments must be a string


def calling(*ids: str) -> dict[str, Any]:
    calls = [{"id": each, "type": "function", "function": {"name": "look", "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "found"}


def marked(text: str, mark: object = MARK) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text, "cache_control": mark}]}


def verdict(*, marks: bool = False, lenient: bool = False, **body: Any) -> str | None:
    try:
        check({"model": "m", "messages": [HELLO], **body}, output_limit=100, marks=marks, lenient=lenient)
    except Refusal as refusal:
        return refusal.message
    return None


GOOD: list[dict[str, Any]] = [
    {},
    {"messages": [{"role": "system", "content": "be"}, HELLO, calling("a", "b"), result("b"), result("a"), HELLO]},
    {"messages": [calling("a"), result("a"), calling("a"), result("a")]},
    {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:,"}}]}
        ]
    },
    {"messages": [{"role": "assistant", "content": "", "reasoning_content": "kept"}, HELLO]},
    {"tools": [LOOK], "tool_choice": "required", "parallel_tool_calls": False},
    {"temperature": None, "stop": ["a", "b"], "seed": 3, "metadata": {"k": "v"}, "max_completion_tokens": 100},
    {"stream": True, "stream_options": {"include_usage": True}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}},
]


@pytest.mark.parametrize("body", GOOD, ids=range(len(GOOD)))
def test_what_a_provider_takes_is_taken(body: dict[str, Any]) -> None:
    assert verdict(**body) is None


BAD: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "empty array"),
    ({"messages": None}, "Invalid type"),
    ({"messages": "hello"}, "Invalid type"),
    ({"messages": ["hello"]}, "role"),
    ({"messages": [{"content": "x"}]}, "role"),
    ({"messages": [{"role": "narrator", "content": "x"}]}, "Supported values"),
    ({"messages": [{"role": ["user"], "content": "x"}]}, "Supported values"),
    ({"messages": [{"role": "user"}]}, "content"),
    ({"messages": [{"role": "user", "content": None}]}, "content"),
    ({"messages": [{"role": "user", "content": 3}]}, "content"),
    ({"messages": [{"role": "user", "content": []}]}, "content"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "content part"),
    ({"messages": [{"role": "user", "content": [{"type": "video", "video": {}}]}]}, "content part"),
    ({"messages": [{"role": "system", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "content part"),
    ({"messages": [{"role": "assistant", "content": None}]}, "content"),
    ({"messages": [{"role": "user", "content": "x", "name": 4}]}, "name"),
    ({"messages": [result("a")]}, "must be a response to a preceeding"),
    ({"messages": [HELLO, result("a")]}, "must be a response to a preceeding"),
    ({"messages": [calling("a")]}, "did not have response messages: a"),
    ({"messages": [calling("a", "b"), result("a"), HELLO]}, "did not have response messages: b"),
    ({"messages": [calling("a", "b"), result("a"), HELLO, result("b")]}, "did not have response messages: b"),
    ({"messages": [calling("a"), HELLO, result("a")]}, "did not have response messages: a"),
    ({"messages": [calling("a"), result("a"), result("a")]}, "duplicate"),
    ({"messages": [calling("a"), result("b")]}, "must be a response to a preceeding"),
    ({"messages": [calling("a"), result("a"), HELLO, result("a")]}, "must be a response to a preceeding"),
    ({"messages": [calling("a", "a"), result("a")]}, "id of its own"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "tool_call_id"),
    ({"messages": [{**HELLO, "tool_calls": calling("a")["tool_calls"]}]}, "tool_calls"),
    ({"messages": [{"role": "assistant", "content": "x", "tool_calls": []}]}, "tool_calls"),
    ({"messages": [{"role": "assistant", "content": None, "tool_calls": [PARSED]}]}, "tool_calls"),
    ({"tools": []}, "empty array"),
    ({"tools": [{"type": "function", "function": {}}]}, "name"),
    ({"tools": [{"type": "function", "function": {"name": "has space"}}]}, "name"),
    ({"tools": [{"type": "function", "function": {"name": "n" * 65}}]}, "name"),
    ({"tools": [{"function": {"name": "x"}}]}, "name"),
    ({"tool_choice": "auto"}, "only allowed when 'tools'"),
    ({"parallel_tool_calls": True}, "only allowed when 'tools'"),
    ({"thinking": {}}, "Unrecognized request argument supplied: thinking"),
    ({"gateway": {}}, "Unrecognized"),
    ({"temperature": 3}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"stream": 1}, "stream"),
    ({"n": True}, "'n'"),
    ({"stop": ["a"] * 5}, "stop"),
    ({"metadata": {"k": 1}}, "metadata"),
    ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": 101}, "at most 100"),
    ({"max_completion_tokens": 101}, "at most 100"),
    ({"max_tokens": 5, "max_completion_tokens": 5}, "at the same time"),
    ({"stream_options": {"include_usage": True}}, "only allowed when 'stream'"),
    ({"top_logprobs": 3}, "logprobs"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "json_schema"),
    ({"response_format": {"type": "json_object"}}, "the word 'json'"),
    ({"messages": [marked("x")]}, "cache_control"),
    ({"marks": True, "messages": [marked(str(n)) for n in range(5)]}, "maximum of 4"),
    ({"marks": True, "messages": [marked("")]}, "empty text"),
    ({"marks": True, "messages": [marked("x", {"type": "forever"})]}, "ephemeral"),
    ({"marks": True, "messages": [marked("x", {"type": "ephemeral", "ttl": "2h"})]}, "ttl"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "says"), BAD, ids=range(len(BAD)))
def test_what_a_provider_refuses_is_refused(body: dict[str, Any], says: str) -> None:
    said = verdict(**body)

    assert said is not None
    assert says in said


def test_a_missing_messages_field_is_named() -> None:
    with pytest.raises(Refusal, match="'messages'"):
        check({"model": "m"}, output_limit=100, marks=False, lenient=False)


def test_lenient_takes_unknown_fields_and_marks() -> None:
    assert verdict(lenient=True, thinking={}, messages=[marked("x")]) is None


def test_four_marks_are_taken_on_tools_messages_and_parts() -> None:
    messages = [{**HELLO, "cache_control": MARK}, marked("a"), marked("b")]

    assert verdict(marks=True, tools=[{**LOOK, "cache_control": MARK}], messages=messages) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1, "a": 1}',
        b'{"a": {"b": 1, "b": 2}}',
        b'"\xff"',
        b'{"a": "\\ud800"}',
        b"[" * 99_999,
    ],
    ids=range(11),
)
def test_bodies_that_are_no_json_object_are_refused(raw: bytes) -> None:
    with pytest.raises(Refusal, match="could not parse"):
        parse(raw)


def test_a_surrogate_pair_is_a_character() -> None:
    assert parse(json.dumps({"a": "😀"}).encode()) == {"a": "😀"}
