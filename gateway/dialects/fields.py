"""JSON cut into the raw spans of its own bytes, and put together again. Knows no dialect.

Spans come from msgspec, which validates as it goes and never copies a value; a walk by position then finds what stands
between them. What msgspec lets through is checked here: UTF-8 (`check_utf8`), keys that appear twice (`split` at its own
level, `load` at any depth). What it refuses although it is legal, unpaired surrogate escapes, is masked and tried again.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from gateway.context.items import Field
from gateway.errors import InvalidJSON, InvalidRequest

T = TypeVar("T")

_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_LEAD = re.compile(rb'[ \t\n\r]*[{,][ \t\n\r]*("[^"\\]*(?:\\.[^"\\]*)*")[ \t\n\r]*:[ \t\n\r]*', re.DOTALL)
_SEAM = re.compile(rb"[ \t\n\r]*[\[,][ \t\n\r]*")
_CLOSE = re.compile(rb"[ \t\n\r]*(?:\{[ \t\n\r]*)?\}[ \t\n\r]*")
# A run of backslashes from its first on, so that each is read once. Begins with a plain byte, which `re` finds 50 times as
# fast as a look behind.
_SURROGATE = re.compile(rb"\\(?<!\\\\)(\\*+)u[dD]([89a-fA-F])([0-9a-fA-F]{2})")
_LONE = re.compile("[\ud800-\udfff]")


class Number(str):
    """A JSON number as its own digits: 1e400 and 5,000 digits survive. Told apart from a text by its class."""

    __slots__ = ()


def check_utf8(data: bytes) -> None:
    """Raise InvalidJSON, with the place, when the bytes are not UTF-8."""
    if data.isascii():
        return
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise InvalidJSON(f"the body is not UTF-8: byte {error.start} begins no legal character") from None


def split(data: bytes, where: str = "the body") -> tuple[tuple[Field, ...], bytes]:
    """Return the fields of a JSON object, in order, and the bytes that close it.

    The data is each field's `lead + value`, then the close; an empty object has no fields and is all close. Names are
    decoded, so `"mod\\u0065l"` is `model`. Raises InvalidJSON (malformed, too deep, a key twice), InvalidRequest (no object).
    """
    values, masked = _spans(_OBJECT, data, where, "an object")
    fields, position = [], 0
    for name, raw in values.items():
        lead, value = _LEAD.match(data, position), bytes(raw)
        if lead is None or not masked.startswith(value, lead.end()):
            raise _twice(where)
        end = lead.end() + len(value)
        if masked is not data:
            name, value = json.loads(lead[1]), data[lead.end() : end]
        fields.append(Field(name=name, lead=lead[0], value=value))
        position = end
    # A key that appears twice has one span only, so the walk falls out of step or stops short.
    if not _CLOSE.fullmatch(data, position) or len({each.name for each in fields}) != len(fields):
        raise _twice(where)
    return tuple(fields), data[position:]


def elements(data: bytes, where: str = "the list") -> tuple[list[bytes], list[bytes]]:
    """Return the elements of a JSON array as raw bytes, and the seams around them: one more, the brackets with them.

    Raises InvalidJSON (malformed, too deep), InvalidRequest (no array).
    """
    values, masked = _spans(_ARRAY, data, where, "a list")
    raws, seams, position = [], [], 0
    for raw in values:
        seam = _SEAM.match(data, position)
        if seam is None:  # cannot be: the spans are exact and in order
            raise InvalidJSON(f"{where} cannot be cut into its elements")
        value, start = bytes(raw), seam.end()
        position = start + len(value)
        raws.append(value if masked is data else data[start:position])
        seams.append(seam[0])
    seams.append(data[position:])
    return raws, seams


def join(fields: Sequence[Field], close: bytes) -> bytes:
    """Return the object that `split` cut."""
    return b"".join([part for each in fields for part in (each.lead, each.value)]) + close


def put(data: bytes, name: str, value: bytes) -> bytes:
    """Return a JSON object with this field, every other byte as it was; a missing field is added last."""
    fields, close = split(data)
    if any(each.name == name for each in fields):
        return join([replace(each, value=value) if each.name == name else each for each in fields], close)
    lead = quote(name) + b":"
    if not fields:
        return b"{" + lead + value + b"}"
    return join(fields, b"") + b"," + lead + value + close


def without(fields: tuple[Field, ...], name: str) -> tuple[Field, ...]:
    """Return two or more fields less one, so that they stay legal JSON in order; the fields themselves when it is not there."""
    for index, field in enumerate(fields):
        if field.name == name:
            rest = list(fields[:index] + fields[index + 1 :])
            if index == 0:
                opening, after = field.lead[: field.lead.index(b"{") + 1], rest[0].lead
                rest[0] = replace(rest[0], lead=opening + after[after.index(b",") + 1 :])
            return tuple(rest)
    return fields


def load(data: bytes, where: str) -> object:
    """Return the value of legal UTF-8 JSON, numbers as `Number`. Raises InvalidJSON: malformed, NaN, too deep, a key twice."""
    try:
        return _DECODER.decode(data.decode())
    except _Twice:
        raise _twice(where) from None
    except RecursionError:
        raise _too_deep(where) from None
    except json.JSONDecodeError as error:
        raise InvalidJSON(f"{where} is not JSON: {error.msg} (character {error.pos})") from None


def quote(text: str, *, ascii_only: bool = False) -> bytes:
    """Return the text as a JSON string in UTF-8; unpaired surrogates as escapes."""
    return json.dumps(text, ensure_ascii=ascii_only or clean(text) is not text).encode()


def clean(text: str) -> str:
    """Return the text with U+FFFD for each unpaired surrogate, so that it can be encoded; the text itself when it has none."""
    return text if text.isascii() or not _LONE.search(text) else _LONE.sub("\ufffd", text)


def text(value: object) -> str:
    """Return a text that can be encoded; "" for everything else, numbers too."""
    return clean(value) if type(value) is str else ""


def mapping(value: object) -> Mapping[str, object]:
    """Return an object's members, none for everything else."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> Sequence[object]:
    """Return a list's elements, none for everything else."""
    return value if isinstance(value, list) else ()


def leaves(value: object) -> Iterator[str]:
    """Yield keys and scalars in order, as texts that can be encoded."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield clean(key)
            yield from leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each)
    else:
        yield clean(value) if isinstance(value, str) else json.dumps(value)


def _spans(decoder: "msgspec.json.Decoder[T]", data: bytes, where: str, kind: str) -> tuple[T, bytes]:
    """Return the decoder's spans and the bytes that they are of: the data, or, where it has surrogate escapes, a mask of it.

    The mask is as long as the data. It puts a private-use escape for each surrogate escape, since msgspec refuses unpaired
    ones although JSON allows them; what it refuses then is broken.
    """
    try:
        return decoder.decode(data), data
    except RecursionError:
        raise _too_deep(where) from None
    except msgspec.ValidationError:
        raise InvalidRequest(f"{where} must be {kind}") from None
    except msgspec.DecodeError as error:
        masked = _SURROGATE.sub(_mask, data) if b"\\u" in data else data
        if masked == data:
            raise InvalidJSON(f"{where} is not JSON: {error}") from None
    values, _ = _spans(decoder, masked, where, kind)
    return values, masked


def _mask(found: re.Match[bytes]) -> bytes:
    if len(found[1]) % 2:  # each two backslashes are one of the text: here the last is text too, and no escape
        return found[0]
    # d8..df become e0..e7, each to its own, so that keys that differ still do.
    return b"\\" + found[1] + b"ue" + str(int(found[2], 16) - 8).encode() + found[3]


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Twice
    return value


def _refuse_constant(name: str) -> object:
    raise json.JSONDecodeError(f"{name} is no JSON number", "", 0)


class _Twice(Exception):
    """Leaves the decoder from its hook; never this module."""


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_int=Number, parse_float=Number, parse_constant=_refuse_constant)


def _twice(where: str) -> InvalidJSON:
    return InvalidJSON(f"{where} has a key twice; readers differ on which one counts, so each key may stand once")


def _too_deep(where: str) -> InvalidJSON:
    return InvalidJSON(f"{where} is nested too deep")
