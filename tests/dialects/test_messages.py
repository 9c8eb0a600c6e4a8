import json

import pytest

from gateway.context.items import Item, Kind
from gateway.dialects.memo import Memo
from gateway.dialects.messages import IMAGE_TOKENS, MESSAGES
from gateway.errors import GatewayError, InvalidRequest, ModelNotFound, Overloaded

THINKING = {"type": "thinking", "thinking": "step one", "signature": "Eq0BSIG"}
CALL = {"type": "tool_use", "id": "t1", "name": "q", "input": {"b": 1.0, "a": 2}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "r", "is_error": True, "cache_control": {"type": "ephemeral"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 400}}


def item(message: object, **fields: object) -> Item:
    return MESSAGES.parse(json.dumps({"model": "m", "messages": [message], **fields}).encode(), Memo()).items[0]


@pytest.mark.parametrize(
    ("message", "kind", "opens", "answers"),
    [
        ({"role": "user", "content": "Hi"}, Kind.USER, (), ()),
        ({"role": "user", "content": [RESULT]}, Kind.RESULT, (), ("t1",)),
        ({"role": "user", "content": [RESULT, {"type": "text", "text": "and"}]}, Kind.RESULT, (), ("t1",)),
        ({"role": "assistant", "content": [THINKING, CALL]}, Kind.ASSISTANT, ("t1",), ()),
        ({"role": "assistant", "content": [{**CALL, "type": "server_tool_use"}]}, Kind.ASSISTANT, (), ()),
        ({"role": "system", "content": "later"}, Kind.SYSTEM, (), ()),
        ({"role": "observer"}, Kind.OTHER, (), ()),
    ],
)
def test_what_a_turn_is_for_the_core(message: object, kind: Kind, opens: tuple[str, ...], answers: tuple[str, ...]) -> None:
    made = item(message)

    assert (kind, opens, answers) == (made.kind, made.opens, made.answers)


@pytest.mark.parametrize("system", ["S", [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}]])
def test_a_system_text_is_an_item_that_can_be_edited(system: object) -> None:
    made = item({"role": "user", "content": "Hi"}, system=system)
    edited = MESSAGES.with_texts(made, ("T",))

    assert (made.kind, made.place, MESSAGES.texts(made)) == (Kind.SYSTEM, "system", ("S",))
    assert (edited.kind, edited.place, MESSAGES.texts(edited)) == (Kind.SYSTEM, "system", ("T",))
    assert MESSAGES.with_texts(made, ("S",)) is made
    assert MESSAGES.with_role(made, "user") is made
    if isinstance(system, list):
        assert json.loads(edited.raw) == {**system[0], "text": "T"}


def test_a_pruned_result_keeps_ids_flags_marks_and_its_neighbours() -> None:
    message = {"role": "user", "content": [RESULT, {"type": "text", "text": "and"}, {**RESULT, "tool_use_id": "t2"}]}

    made = json.loads(MESSAGES.with_result(item(message), "gone").raw)

    assert made["content"] == [
        {**RESULT, "content": "gone"},
        {"type": "text", "text": "and"},
        {**RESULT, "tool_use_id": "t2", "content": "gone"},
    ]


def test_thinking_is_not_read_and_stays_byte_for_byte() -> None:
    made = item({"role": "assistant", "content": [THINKING, {"type": "text", "text": "x"}]})
    edited = MESSAGES.with_texts(made, ("y",))

    assert MESSAGES.texts(made) == ("x",)
    assert json.dumps(THINKING).encode() in edited.raw


def test_media_cost_a_flat_price_and_not_their_base64() -> None:
    made = item({"role": "user", "content": [IMAGE, {**RESULT, "content": [IMAGE]}]})

    assert (made.media_bytes, made.media_tokens) == (800, 2 * IMAGE_TOKENS)
    assert "AAAA" not in MESSAGES.wire_text(made)
    assert "t1" in MESSAGES.wire_text(made)


def test_text_documents_are_text() -> None:
    made = item({"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "words"}}]})

    assert (made.media_bytes, made.media_tokens) == (0, 0)
    assert "words" in MESSAGES.wire_text(made)


def test_the_system_text_is_counted_once() -> None:
    body = b'{"model":"m","system":"a system text","tools":[{"name":"t"}],"messages":[{"role":"user","content":"Hi"}]}'
    request = MESSAGES.parse(body, Memo())

    assert not any("a system text" in text for text in MESSAGES.request_texts(request))
    assert any('"t"' in text for text in MESSAGES.request_texts(request))
    assert (request.tools[0].name, request.include_usage, request.output_limit) == ("t", True, None)


@pytest.mark.parametrize(
    ("error", "kind"),
    [(InvalidRequest("no"), "invalid_request_error"),
     (ModelNotFound("no"), "not_found_error"), (Overloaded("no"), "overloaded_error"),
     (GatewayError("no"), "api_error")],
)  # fmt: skip
def test_errors_have_the_type_that_the_sdk_looks_for(error: GatewayError, kind: str) -> None:
    assert {"type": "error", "error": {"type": kind, "message": "no"}} == json.loads(MESSAGES.error_body(error))


def test_a_broken_stream_ends_in_a_named_error_event() -> None:
    event = MESSAGES.error_event("it stalled", code="upstream_timeout", type="upstream_error")

    assert event.startswith(b'event: error\ndata: {"type":"error","error":{"type":"timeout_error"')


def test_only_the_start_and_pings_say_nothing() -> None:
    assert MESSAGES.silent(b'{"type": "message_start","message":{}}')
    assert MESSAGES.silent(b'{"type":"ping"}')
    assert not MESSAGES.silent(b'{"type":"content_block_start"}')
    assert not MESSAGES.silent(b'{"type":"error"}')
