import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.items import Field
from gateway.dialects import fields
from gateway.dialects.fields import Number
from gateway.errors import InvalidJSON, InvalidRequest
from tests.dialects.bodies import objects, values


@settings(max_examples=150)
@given(objects())
def test_pieces_join_to_the_very_bytes(data: bytes) -> None:
    parts, close = fields.split(data)
    loaded = fields.load(data, "x")

    assert data == fields.join(parts, close)
    assert loaded == {each.name: fields.load(each.value, "x") for each in parts}


@settings(max_examples=150)
@given(st.lists(values(), max_size=4), st.sampled_from([b",", b" ,\n\t", b", "]))
def test_elements_and_seams_join_to_the_very_bytes(raws: list[bytes], seam: bytes) -> None:
    data = b" [\t" + seam.join(raws) + b"\r] "
    found, seams = fields.elements(data)

    assert raws == found
    assert len(seams) == len(raws) + 1
    assert data == seams[0] + b"".join(raw + after for raw, after in zip(found, seams[1:], strict=True))


@settings(max_examples=150)
@given(objects(), st.data())
def test_a_field_is_taken_out_or_replaced_and_nothing_else(data: bytes, draw: st.DataObject) -> None:
    parts, close = fields.split(data)
    loaded = fields.load(data, "x")
    assert isinstance(loaded, dict)
    name = draw.draw(st.sampled_from(sorted(loaded) or ["new"]))

    assert {**loaded, name: Number(7)} == fields.load(fields.put(data, name, b"7"), "x")
    if len(parts) > 1:
        rest = fields.join(fields.without(parts, name), close)
        assert {key: loaded[key] for key in loaded if key != name} == fields.load(rest, "x")


def test_escaped_names_are_decoded() -> None:
    parts, close = fields.split(b'{ "mod\\u0065l" : 1}')

    assert (Field(name="model", lead=b'{ "mod\\u0065l" : ', value=b"1"),) == parts
    assert close == b"}"


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"b":2,"a":3}',
        b'{"a":1,"\\u0061":12}',
        b'{"a":12,"a":1}',
        b'{"a":1,"a":12}',
        b'{"a":{},"b":[],"b":[]}',
        b'{"\\ud83d":1,"\\uD83D":2}',
        '{"😀":1,"\\ud83d\\ude00":2,"\\ud83d":3}'.encode(),
        b'{"a":"\\ud83d","b":1,"a":2}',
    ],
)
def test_a_key_twice_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidJSON, match="twice"):
        fields.split(data)
    with pytest.raises(InvalidJSON, match="twice"):
        fields.load(b'{"deep":[' + data + b"]}", "x")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":1,}',
        b'{"a":1} x',
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":01}',
        b'{"a":"\\x"}',
        b'{"a":"\x01"}',
        b'{"a":[1,]}',
        b'{"a":"\\ud83"}',
        b'{"a":"\\ud83d}',
        b"{'a':1}",
        b'{"a":tru}',
        b'{"a"',
    ],
)
def test_what_is_no_json_is_refused_twice_over(data: bytes) -> None:
    """Both readers agree, so no body passes the fast one that the careful one would refuse."""
    with pytest.raises(InvalidJSON):
        fields.split(data)
    with pytest.raises(InvalidJSON):
        fields.load(data, "x")


@pytest.mark.parametrize("data", [b"[]", b"1", b'"a"', b"null"])
def test_another_kind_is_no_object(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="must be an object"):
        fields.split(data)
    if data != b"[]":
        with pytest.raises(InvalidRequest, match="must be a list"):
            fields.elements(data)


@pytest.mark.parametrize("deep", [b'{"a":' * 20_000 + b"1" + b"}" * 20_000, b'{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}"])
def test_too_deep_is_refused(deep: bytes) -> None:
    with pytest.raises(InvalidJSON, match="too deep"):
        fields.split(deep)
    with pytest.raises(InvalidJSON, match="too deep"):
        fields.load(deep, "x")


@pytest.mark.parametrize(
    "value",
    [
        b'"\\\\\\ud83d\\ud83d"',
        b'"' + b"\\\\" * 99 + b'\\ud83d"',
        b'"' + b"\\\\" * 99 + b'ud83d\\udead"',
        b'"x \\ud83d y"',
        b'"\\ude00\\ud83d"',
        b'"\\ud83d\\ude00"',
        b'"\\\\ud83d"',
        b'{"\\udead":["\\uDBFF"]}',
    ],
)
def test_surrogate_escapes_stay_as_they_are(value: bytes) -> None:
    data = b'{"k":' + value + b' , "\\ud800":1, "\\ud801": 2}'
    parts, close = fields.split(data)

    assert [value, b"1", b"2"] == [each.value for each in parts]
    assert [each.name for each in parts] == ["k", "\ud800", "\ud801"]
    assert data == fields.join(parts, close)
    assert ([value, b"1"], [b"[", b",", b"]"]) == fields.elements(b"[" + value + b",1]")


@pytest.mark.parametrize("number", [b"1e400", b"1" + b"0" * 5000, b"-0", b"1.10", b"8123456789012345671"])
def test_numbers_keep_their_digits(number: bytes) -> None:
    loaded = fields.load(number, "x")

    assert isinstance(loaded, Number)
    assert number.decode() == loaded


@pytest.mark.parametrize("data", [b"\xe4\xb8", b"\xff", b"\xed\xa0\xbd", b"\xc0\x80"])
def test_broken_utf8_is_refused_with_its_place(data: bytes) -> None:
    with pytest.raises(InvalidJSON, match="byte 2"):
        fields.check_utf8(b'{"' + data)


def test_put_adds_a_missing_field_last() -> None:
    assert fields.put(b"{ }", "a", b"1") == b'{"a":1}'
    assert fields.put(b'{"b":2 }', "a", b"1") == b'{"b":2,"a":1 }'


@pytest.mark.parametrize("text", ["", 'a"b\\', "é😀", "\ud83d", "\n\u2028"])
def test_a_quoted_text_reads_back(text: str) -> None:
    assert text == json.loads(fields.quote(text))
    assert text == json.loads(fields.quote(text, ascii_only=True))
    assert fields.quote(text, ascii_only=True).isascii()


@pytest.mark.timeout(5)
@pytest.mark.parametrize("text", [b"\\" * 500_000, b"\\" * 500_001 + b"ud83d", (b"\\" * 65 + b"ud83d") * 5_000])
def test_many_backslashes_take_no_long_time(text: bytes) -> None:
    data = b'{"a":"\\udead' + text + b'"}'

    assert data == fields.join(*fields.split(data))
