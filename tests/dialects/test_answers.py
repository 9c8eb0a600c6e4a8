import json

import pytest

from gateway.cache.usage import Usage
from gateway.dialects.answers import Answer, read_reply, read_stream


def chunk(delta: object, reason: str | None = None, **more: object) -> bytes:
    value = {"id": "c1", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **more}
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def called(name: str, arguments: str, function: str = "look") -> dict[str, object]:
    return {"id": name, "type": "function", "function": {"name": function, "arguments": arguments}}


DONE = b"data: [DONE]\n\n"


def test_a_reply_is_read_whole() -> None:
    call = called("a", "{}")
    message = {"role": "assistant", "content": "hi", "refusal": None, "tool_calls": [call]}
    reply = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 3}}

    expected = Answer(
        text="hi", tool_calls=(call,), finish_reason="tool_calls", usage=Usage(input_tokens=3), finished=True, done=True
    )
    assert expected == read_reply(json.dumps(reply).encode())


def test_a_refusal_is_kept() -> None:
    reply = b'{"choices":[{"message":{"content":null,"refusal":"I will not."},"finish_reason":"stop"}]}'

    assert read_reply(reply).refusal == "I will not."


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e400", b"1" * 5000])
def test_numbers_beyond_json_do_not_stop_the_reading(number: bytes) -> None:
    reply = b'{"choices":[{"message":{"content":"ok"},"logprobs":' + number + b'}],"usage":{"prompt_tokens":1}}'

    assert read_reply(reply).text == "ok"
    assert read_reply(reply).usage == Usage(input_tokens=1)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"\xff", b'{"a":', b"[" * 100_000, b'{"a":' * 100_000])
def test_garbage_is_an_error_and_raises_nothing(body: bytes) -> None:
    assert read_reply(body).error is not None
    assert read_stream(b"data: " + (body or b"x") + b"\n\n").error is not None


@pytest.mark.parametrize(
    "body", [b"{}", b'{"choices":7}', b'{"choices":[7,null]}', b'{"choices":[{"message":[],"index":"x"}],"usage":[]}']
)
def test_odd_shapes_read_as_nothing(body: bytes) -> None:
    assert read_reply(body).text == ""


def test_unpaired_surrogates_can_be_written_afterwards() -> None:
    answer = read_reply(b'{"choices":[{"message":{"content":"x \\ud83d"},"finish_reason":"stop"}]}')

    assert answer.text.encode() == "x \ufffd".encode()


def test_a_stream_is_put_together() -> None:
    data = chunk({"role": "assistant", "content": "A"}, usage=None) + chunk({"content": "B"}) + chunk({}, "stop")
    last = b'data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2}}\n\n'

    expected = Answer(text="AB", finish_reason="stop", usage=Usage(input_tokens=10, output_tokens=2), finished=True, done=True)
    assert expected == read_stream(data + last + DONE)


def test_calls_grow_by_index() -> None:
    def piece(index: int, **more: object) -> dict[str, object]:
        return {"tool_calls": [{"index": index, **more}]}

    data = (
        chunk(piece(0, id="a", type="function", function={"name": "look", "arguments": ""}))
        + chunk(piece(1, id="b", type="function", function={"name": "look", "arguments": "{"}))
        + chunk(piece(0, function={"arguments": '{"p":1}'}))
        + chunk(piece(1, id="b", function={"name": "look", "arguments": "}"}))
        + chunk({}, "tool_calls")
    )

    assert (called("a", '{"p":1}'), called("b", "{}")) == read_stream(data).tool_calls


def test_calls_without_index_are_told_apart_by_id() -> None:
    first, second = called("ca", '{"p":1}'), {"index": 0, **called("cb", '{"p":2}')}
    data = chunk({"tool_calls": [first]}) + chunk({"tool_calls": [second]}) + chunk({}, "tool_calls") + DONE

    assert [call["id"] for call in read_stream(data).tool_calls] == ["ca", "cb"]
    assert (first, called("cb", '{"p":2}')) == read_stream(data).tool_calls


def test_a_legacy_call_has_no_id() -> None:
    data = chunk({"function_call": {"name": "look", "arguments": "{"}}) + chunk(
        {"function_call": {"arguments": "}"}}, "function_call"
    )

    assert (called("", "{}"),) == read_stream(data).tool_calls


def test_a_stream_without_end_marker_may_be_finished() -> None:
    assert read_stream(chunk({"content": "A"}, "stop")).finished
    assert not read_stream(chunk({"content": "A"}, "stop")).done
    assert not read_stream(chunk({"content": "A"})).finished
    assert not read_stream(b"").finished


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error":{"message":"full","code":"x"}}\n\n',
        b'data: {"error":"full"}\n\n',
        b'data: {"object":"error","message":"full"}\n\n',
        b'data: {"x_groq":{"error":"full"},"choices":[]}\n\n',
    ],
)
def test_an_error_in_the_stream_is_seen(event: bytes) -> None:
    answer = read_stream(chunk({"content": "A"}) + event)

    assert (answer.text, answer.error) == ("A", "full")


def test_a_line_that_is_not_json_is_an_error() -> None:
    assert read_stream(chunk({"content": "A"}) + b"data: error: kv cache full\n\n").error is not None


def test_every_choice_must_finish() -> None:
    two = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"},{"index":1,"delta":{"content":"no"}}]}\n\n'

    assert not read_stream(two).finished
    assert read_stream(two).text == ""


def test_the_last_usage_wins() -> None:
    data = chunk({}, usage={"prompt_tokens": 5, "completion_tokens": 1}) + chunk(
        {}, usage={"prompt_tokens": 5, "completion_tokens": 4}
    )

    assert Usage(input_tokens=5, output_tokens=4) == read_stream(data).usage


def test_a_plain_chunk_is_read_like_any_other() -> None:
    """The quick way for chunks of text and the way for all others give one answer, whatever stands between them."""
    pieces = ["a", "\u00e9\u2028", "", "z"]
    plain: list[dict[str, object]] = [
        {"id": "1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": p}}]} for p in pieces
    ]
    odd: list[dict[str, object]] = [dict(each, unknown=1) for each in plain]

    def read(chunks: list[dict[str, object]]) -> Answer:
        return read_stream(b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in chunks))

    assert read(plain) == read(odd) == read([plain[0], odd[1], plain[2], odd[3]])
    assert read(plain).text == "".join(pieces)
    assert not read(plain).finished
