import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.digest import digest
from gateway.context.items import Dialect, Item, Kind, Request
from gateway.dialects import chat, fields
from gateway.dialects.chat import CHAT, IMAGE_TOKENS, LOW_DETAIL_TOKENS, MEDIA_TOKENS, Memo, parse
from gateway.errors import InvalidJSON, InvalidRequest, ModelNotFound, RequestError
from tests.dialects.bodies import arrays, objects, values, written

DIALECT: Dialect = CHAT


def body(*messages: object, **more: object) -> bytes:
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


def item(message: object) -> Item:
    return parse(body(message), Memo()).items[0]


def raw_item(raw: bytes) -> Item:
    return parse(b'{"model":"m","messages":[' + raw + b"]}", Memo()).items[0]


def shown(made: Item) -> object:
    return json.loads(made.raw)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    extra = draw(st.dictionaries(st.sampled_from(["tools", "new_2027", "seed", "metadata"]), values(), max_size=2))
    return draw(written({"model": b'"m"', "messages": draw(arrays(objects())), **extra}))


@settings(max_examples=200, deadline=None)
@given(bodies())
def test_an_unedited_request_gives_the_very_bytes(data: bytes) -> None:
    request = parse(data, Memo())

    assert data == request.body()
    assert [digest(each.raw) for each in request.items] == [each.digest for each in request.items]
    if request.items:
        assert request.items == parse(request.with_items(request.items).body(), Memo()).items


REFUSED = [
    (b"", InvalidJSON),
    (b"[" * 20_000 + b"]" * 20_000, RequestError),
    (b'{"model":"m","messages":[{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}]}", InvalidJSON),
    (b'{"model":"m","messages":[{"content":"\xe4\xb8"}]}', InvalidJSON),
    (b'{"model":"m","model":"s","messages":[]}', InvalidJSON),
    (b'{"model":"m","mod\\u0065l":"s","messages":[]}', InvalidJSON),
    (b'{"model":"m","messages":[],"messages":[{}]}', InvalidJSON),
    (b'{"model":"m","messages":[{"role":"user","role":"system"}]}', InvalidJSON),
    (b'{"model":"m","messages":[{"content":[{"x":{"a":1,"a":1}}]}]}', InvalidJSON),
    (b'{"model":"m","messages":[],"tools":[{"f":{"a":1,"a":1}}]}', InvalidJSON),
    (b'{"model":"m","messages":[],"x":{"a":1,"a":1}}', InvalidJSON),
    (b'{"model":"m","messages":[],"seed":NaN}', InvalidJSON),
    (b'{"model":"m","messages":[{"a":Infinity}]}', InvalidJSON),
    (b'{"model":"m","messages":[]} {}', InvalidJSON),
    (b"[1]", InvalidRequest),
    (b'"m"', InvalidRequest),
    (b"{}", InvalidRequest),
    (b'{"messages":[]}', InvalidRequest),
    (b'{"model":"m"}', InvalidRequest),
    (b'{"model":null,"messages":[]}', InvalidRequest),
    (b'{"model":"","messages":[]}', InvalidRequest),
    (b'{"model":7,"messages":[]}', InvalidRequest),
    (b'{"model":"\\ud83d","messages":[]}', InvalidRequest),
    (b'{"model":"m","messages":{}}', InvalidRequest),
    (b'{"model":"m","messages":null}', InvalidRequest),
    (b'{"model":"m","messages":[{},"secret"]}', InvalidRequest),
]


@pytest.mark.parametrize(("data", "kind"), REFUSED)
def test_what_cannot_be_read_one_way_is_refused(data: bytes, kind: type[RequestError]) -> None:
    with pytest.raises(kind) as caught:
        parse(data, Memo())

    assert caught.value.status == 400
    assert "secret" not in caught.value.message


def test_a_refusal_says_where() -> None:
    with pytest.raises(InvalidRequest, match=r"messages\[1\]"):
        parse(b'{"model":"m","messages":[{},7]}', Memo())
    with pytest.raises(InvalidJSON, match=r"messages\[1\]"):
        parse(b'{"model":"m","messages":[{},{"a":1,"a":1}]}', Memo())


@pytest.mark.parametrize(
    "data",
    [
        b'{"model":"m","messages":[]}',
        b'{"model":"m","messages":[{"role":"user","content":"x \\ud83d y"}]}',
        b'{"model":"m","seed":1e400,"messages":[{"n":1e400}]}',
        b'{"model":"m","seed":1' + b"0" * 5000 + b',"messages":[{"n":1' + b"0" * 5000 + b"}]}",
        b'{"model":"m","messages":[{"role":"narrator","mood":[null]}],"brand_new_2027":{"a":[1,null]}}',
        b'{"model":"m","messages":[{"content":"a\\u0000b \\\\u0000"}]}',
    ],
)
def test_what_is_odd_but_legal_is_kept(data: bytes) -> None:
    assert data == parse(data, Memo()).body()


def test_the_facts_of_a_request() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}, {"type": "custom", "custom": {"name": "c"}}, {"name": "n"}, {}]
    request = parse(body(stream=True, stream_options={"include_usage": True}, tools=tools, max_tokens=7), Memo())

    assert (request.model, request.stream, request.include_usage) == ("m", True, True)
    assert (request.output_limit, request.output_limit_field) == (7, "max_tokens")
    assert [each.name for each in request.tools] == ["f", "c", "n", ""]
    assert [json.loads(each.raw) for each in request.tools] == tools


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"max_completion_tokens": 5, "max_tokens": 7}, (5, "max_completion_tokens")),
        ({"max_completion_tokens": None, "max_tokens": 7}, (7, "max_tokens")),
        ({"max_tokens": 0}, (None, None)),
        ({"max_tokens": -1}, (None, None)),
        ({"max_tokens": 1.5}, (None, None)),
        ({"max_tokens": 4096.0}, (4096, "max_tokens")),
        ({"max_tokens": 10**40}, (10**15, "max_tokens")),
        ({"max_tokens": "7"}, (None, None)),
        ({"max_tokens": True}, (None, None)),
    ],
)
def test_the_output_limit_is_a_positive_integer(more: dict[str, object], expected: tuple[int | None, str | None]) -> None:
    request = parse(body(**more), Memo())

    assert expected == (request.output_limit, request.output_limit_field)


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": 1}, [1], "x"])
def test_usage_is_asked_for_by_true_alone(options: object) -> None:
    assert not parse(body(stream_options=options), Memo()).include_usage


@pytest.mark.parametrize("tools", [None, "x", {}, [1], [{}, None]])
def test_tools_that_are_no_plain_list_are_opaque(tools: object) -> None:
    assert parse(body(tools=tools), Memo()).tools == ()


@pytest.mark.parametrize(
    ("message", "kind", "opens", "answers"),
    [
        ({"role": "system"}, Kind.SYSTEM, (), ()),
        ({"role": "developer"}, Kind.SYSTEM, (), ()),
        ({"role": "user", "tool_call_id": "a"}, Kind.USER, (), ()),
        ({"role": "assistant", "tool_calls": [{"id": "a"}, {"id": "b"}, {"id": 5}, 7]}, Kind.ASSISTANT, ("a", "b"), ()),
        ({"role": "assistant", "function_call": {"name": "f"}}, Kind.ASSISTANT, ("f",), ()),
        ({"role": "tool", "tool_call_id": "a"}, Kind.RESULT, (), ("a",)),
        ({"role": "function", "name": "f"}, Kind.RESULT, (), ("f",)),
        ({"role": "tool"}, Kind.RESULT, (), ()),
        ({"role": "narrator"}, Kind.OTHER, (), ()),
        ({"role": 7}, Kind.OTHER, (), ()),
        ({}, Kind.OTHER, (), ()),
    ],
)
def test_the_facts_of_a_message(message: object, kind: Kind, opens: tuple[str, ...], answers: tuple[str, ...]) -> None:
    made = item(message)

    assert (kind, opens, answers) == (made.kind, made.opens, made.answers)


DATA = "QUJD" * 10


@pytest.mark.parametrize(
    ("part", "size", "tokens"),
    [
        ({"image_url": {"url": "data:image/png;base64," + DATA}}, 40, IMAGE_TOKENS),
        ({"image_url": {"url": "data:image/png;base64," + DATA, "detail": "low"}}, 40, LOW_DETAIL_TOKENS),
        ({"image_url": "DATA:image/png;base64," + DATA}, 40, IMAGE_TOKENS),
        ({"image_url": {"url": "https://x.example/a.png"}}, 0, IMAGE_TOKENS),
        ({"image_url": {"url": "https://x.example/a.png", "detail": "low"}}, 0, LOW_DETAIL_TOKENS),
        ({"image_url": {"url": "https://x.example/a.png", "detail": "original"}}, 0, MEDIA_TOKENS),
        ({"input_audio": {"data": DATA, "format": "wav"}}, 40, 10),
        ({"file": {"file_data": "data:application/pdf;base64," + DATA}}, 40, 10),
        ({"file": {"file_data": DATA * 10_000}}, 400_000, MEDIA_TOKENS),
        ({"file": {"file_id": "f"}}, 0, MEDIA_TOKENS),
        ({"text": "data:image/png;base64," + DATA}, 0, 0),
        ({"data": DATA}, 0, 0),
    ],
)
def test_media_has_a_flat_price_and_is_no_text(part: dict[str, object], size: int, tokens: int) -> None:
    made = item({"role": "user", "content": [{"text": "look"}, part]})

    assert (size, tokens) == (made.media_bytes, made.media_tokens)
    assert (DATA in CHAT.wire_text(made)) == (DATA in made.raw.decode() and not size)
    assert "look" in CHAT.wire_text(made)


def test_wire_text_holds_all_that_costs() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"p":1}'}}
    made = item(
        {"role": "assistant", "name": "n", "content": "é\ud83d", "tool_calls": [call], "reasoning_content": "hm", "x": [1.50, None]}
    )
    text = CHAT.wire_text(made)

    text.encode()
    for each in ("assistant", "n", "é\ufffd", "c1", "look", '{"p":1}', "reasoning_content", "hm", "1.5", "null"):
        assert each in text.split("\n")


def test_texts_are_those_of_the_content() -> None:
    assert CHAT.texts(item({"content": "a"})) == ("a",)
    assert CHAT.texts(item({"content": [{"type": "text", "text": "a"}, {"image_url": "u"}, {"text": "b"}, {"text": 7}]})) == (
        "a",
        "b",
    )
    assert CHAT.texts(item({"content": None})) == CHAT.texts(item({})) == CHAT.texts(item({"content": 7})) == ()
    assert CHAT.texts(raw_item(b'{"content":"\\ud83d"}')) == ("\ufffd",)


def test_the_same_texts_give_the_same_item() -> None:
    made = raw_item(b'{ "content" :"x \\ud83d \\/" }')

    assert CHAT.with_texts(made, CHAT.texts(made)) is made


def test_new_texts_leave_every_other_byte() -> None:
    made = raw_item(b'{ "n":1.0, "content" : "\\u00e9 old" ,"x":"\\/"}')

    assert CHAT.with_texts(made, ("\u00e9",)).raw == b'{ "n":1.0, "content" : "\\u00e9" ,"x":"\\/"}'
    assert CHAT.with_texts(made, ("",)).raw == b'{ "n":1.0, "content" : "" ,"x":"\\/"}'


def test_an_emptied_part_is_left_out() -> None:
    made = raw_item(b'{"content":[ {"text":"a"} , {"text":""},{"n":1.0,"text" : "b\\/"} ]}')

    assert CHAT.with_texts(made, ("", "", "b/")).raw == b'{"content":[ {"text":""},{"n":1.0,"text" : "b\\/"} ]}'
    assert CHAT.with_texts(made, ("a", "", "")).raw == b'{"content":[ {"text":"a"} , {"text":""} ]}'
    assert CHAT.with_texts(made, ("a", "", "c")).raw == b'{"content":[ {"text":"a"} , {"text":""},{"n":1.0,"text" : "c"} ]}'


def test_a_list_of_parts_is_never_emptied() -> None:
    made = raw_item(b'{"content":[{"text":"a"},{"text":"b"}]}')

    assert CHAT.with_texts(made, ("", "")).raw == b'{"content":[{"text":""}]}'


def test_another_number_of_texts_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="1 texts was given 2"):
        CHAT.with_texts(item({"content": "a"}), ("a", "b"))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=5), min_size=1, max_size=4), st.data())
def test_texts_read_back_as_written(texts: list[str], data: st.DataObject) -> None:
    made = item({"role": "user", "content": [{"type": "text", "text": text} for text in texts]})
    new = tuple(data.draw(st.text(min_size=1, max_size=5)) for _ in texts)

    assert new == CHAT.texts(CHAT.with_texts(made, new))


def test_a_role_is_replaced_alone() -> None:
    made = CHAT.with_role(raw_item(b'{"content":1.0 , "role" : "developer"}'), "system")

    assert made.raw == b'{"content":1.0 , "role" : "system"}'
    assert (made.role, made.kind, made.digest) == ("system", Kind.SYSTEM, digest(made.raw))
    assert shown(CHAT.with_role(item({}), "user")) == {"role": "user"}


def test_a_result_keeps_its_id_and_flags() -> None:
    made = raw_item(b'{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"long"}],"is_error":true}')
    short = CHAT.with_result(made, "[\u2026]")

    assert short.raw == b'{"role":"tool","tool_call_id":"a","content":"[\\u2026]","is_error":true}'
    assert short.answers == ("a",)
    assert shown(CHAT.with_result(item({"role": "tool"}), "x")) == {"role": "tool", "content": "x"}


def test_a_note_is_a_user_message() -> None:
    note = CHAT.note('é "x"\n')

    assert note.raw == '{"role":"user","content":"é \\"x\\"\\n"}'.encode()
    assert (note.kind, CHAT.texts(note)) == (Kind.USER, ('é "x"\n',))


def test_request_texts_are_all_but_the_messages() -> None:
    request = parse(b'{"model":"m","messages":[{"content":"no"}],"tools":[{"name":"t"}],"new":{"a":1.0}}', Memo())

    assert CHAT.request_texts(request) == ('"m"', '[{"name":"t"}]', '{"a":1.0}')


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"session_id": "s", "prompt_cache_key": "k", "metadata": {"user_id": "u"}}, "s"),
        ({"session_id": None, "prompt_cache_key": "k", "metadata": {"user_id": "u"}}, "k"),
        ({"session_id": 7, "metadata": {"user_id": "u"}}, "u"),
        ({"metadata": ["u"]}, None),
        ({}, None),
    ],
)
def test_the_first_hint_counts(more: dict[str, object], expected: str | None) -> None:
    assert expected == chat.hint(parse(body(**more), Memo()))


GATEWAY = b'"gateway": {"session":"s","n":1.0}'


@pytest.mark.parametrize(
    ("data", "rest"),
    [
        (b'{%s , "model":"m","messages":[{}]}', b'{ "model":"m","messages":[{}]}'),
        (b' { %s,"messages":[{}] ,"model":"m"}', b' {"messages":[{}] ,"model":"m"}'),
        (b'{"model":"m" , %s , "messages":[{}] }', b'{"model":"m" , "messages":[{}] }'),
        (b'{"model":"m","messages":[{}], %s }', b'{"model":"m","messages":[{}] }'),
    ],
)
def test_the_gateway_field_stays_home(data: bytes, rest: bytes) -> None:
    request, value = chat.without_gateway(parse(data % GATEWAY, Memo()))

    assert rest == request.body()
    assert value == {"session": "s", "n": fields.Number("1.0")}


def test_no_gateway_field_changes_nothing() -> None:
    request: Request = parse(body({}), Memo())

    assert chat.without_gateway(request) == (request, None)
    assert chat.without_gateway(parse(body({}, gateway=None), Memo()))[1] is None
    with pytest.raises(InvalidRequest, match="gateway"):
        chat.without_gateway(parse(body(gateway=[1]), Memo()))


def test_errors_have_the_envelope() -> None:
    error = ModelNotFound("no \ud83d", param="model")

    expected = {"message": "no \ufffd", "type": "invalid_request_error", "param": "model", "code": "model_not_found"}
    assert {"error": expected} == json.loads(chat.error_body(error))


def test_an_error_event_is_one_event() -> None:
    event = chat.error_event("broke\noff", code="upstream_error", type="server_error")
    answer = chat.read_stream(event)

    assert event.startswith(b"data: {")
    assert event.endswith(b"}\n\n")
    assert (answer.error, answer.done) == ("broke\noff", False)


@pytest.mark.parametrize(
    ("spelled", "limit"), [(b"1e3", 1000), (b"1e400", 10**15), (b"-1e3", None), (b'"100"', None), (b"true", None)]
)
def test_an_output_limit_counts_however_it_is_spelled(spelled: bytes, limit: int | None) -> None:
    request = parse(b'{"model":"m","messages":[],"max_tokens":' + spelled + b"}", Memo())

    assert limit == request.output_limit
