import json

import pytest

from gateway.dialects.messages_answers import read_reply, read_stream

USAGE = {"input_tokens": 5, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 10, "output_tokens": 3}
REPLY = {
    "type": "message",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "S"},
        {"type": "text", "text": "It is "},
        {"type": "text", "text": "12."},
        {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
    ],
    "stop_reason": "tool_use",
    "usage": USAGE,
}
CALL = {"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def events(*made: dict[str, object]) -> bytes:
    return b"".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in made)


def piece(index: int, **delta: object) -> dict[str, object]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


STREAM = events(
    {"type": "message_start", "message": {"usage": {**USAGE, "output_tokens": 1}}},
    {"type": "ping"},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    piece(0, type="thinking_delta", thinking="hm"),
    piece(0, type="signature_delta", signature="S"),
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    piece(1, type="text_delta", text="It is "),
    piece(1, type="text_delta", text="12."),
    {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "t1", "name": "add", "input": {}}},
    piece(2, type="input_json_delta", partial_json='{"a"'),
    piece(2, type="input_json_delta", partial_json=": 1}"),
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
)


def test_a_reply_and_a_stream_say_the_same() -> None:
    reply, stream = read_reply(json.dumps(REPLY).encode()), read_stream(STREAM)

    assert reply == stream
    assert (reply.text, reply.tool_calls, reply.finish_reason) == ("It is 12.", (CALL,), "tool_use")
    assert (reply.finished, reply.done, reply.error) == (True, True, None)


def test_input_is_the_sum_of_what_was_fresh_read_and_written() -> None:
    usage = read_stream(STREAM).usage

    assert usage is not None
    assert (usage.input_tokens, usage.cached_tokens, usage.written_tokens, usage.output_tokens) == (35, 20, 10, 3)


def test_a_call_without_arguments_has_an_empty_object() -> None:
    block = {"type": "tool_use", "id": "t", "name": "now", "input": {}}
    stream = read_stream(events({"type": "content_block_start", "index": 0, "content_block": block}))

    assert [call["function"] for call in stream.tool_calls] == [{"name": "now", "arguments": "{}"}]


@pytest.mark.parametrize("end", range(0, len(STREAM), 7))
def test_a_cut_stream_is_never_a_whole_one(end: int) -> None:
    answer = read_stream(STREAM[:end])

    assert answer.finished is (b"message_delta" in STREAM[:end] and b'"output_tokens": 3}}' in STREAM[:end])
    assert not answer.done


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"content":7,"usage":[]}', b'{"content":[7,{"type":"text","text":7}]}'])
def test_odd_replies_do_not_raise(body: bytes) -> None:
    assert (read_reply(body).text, read_reply(body).finish_reason) == ("", None)
