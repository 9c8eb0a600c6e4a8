"""Edits of a body leave legal JSON and every other byte, wherever a field stands and however it is spaced."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.items import Request
from gateway.dialects.chat import CHAT, Memo, parse

SPACE = st.sampled_from(["", " ", "\n  ", "\t"])
NAMES = ["model", "messages", "a", "b,c", "{x", 'q"q', "é"]
VALUES: dict[str, Any] = {"model": "m", "messages": [], "a": [1, {"b": ","}], "b,c": "{[,]}", "{x": None, 'q"q': 1.5, "é": "é"}
MESSAGES = st.lists(st.sampled_from([{"role": "user", "content": "a, b"}, {"role": "assistant", "content": "[é]"}]), max_size=3)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[Request, dict[str, Any]]:
    """A body in any order and spacing, and what it says."""
    names = ["model", "messages", *draw(st.lists(st.sampled_from(NAMES[2:]), unique=True))]
    said = {name: VALUES[name] for name in draw(st.permutations(names))}
    said["messages"] = draw(MESSAGES)

    def space() -> str:
        return draw(SPACE)

    def written(value: Any) -> str:
        if value and isinstance(value, list):
            return f"[{space()}" + f"{space()},{space()}".join(map(written, value)) + f"{space()}]"
        return f"[{space()}]" if value == [] else json.dumps(value, ensure_ascii=draw(st.booleans()))

    fields = [f"{json.dumps(name)}{space()}:{space()}{written(value)}" for name, value in said.items()]
    text = f"{space()}{{{space()}" + f"{space()},{space()}".join(fields) + f"{space()}}}{space()}"
    return parse(text.encode(), Memo()), said


@given(bodies())
@settings(max_examples=60, deadline=None)
def test_an_unedited_body_says_what_it_said(made: tuple[Request, dict[str, Any]]) -> None:
    assert json.loads(made[0].body()) == made[1]


@given(bodies(), st.lists(st.sampled_from(NAMES), max_size=7))
@settings(max_examples=80, deadline=None)
def test_fields_go_in_any_order_and_number(made: tuple[Request, dict[str, Any]], names: list[str]) -> None:
    request, said = made
    for name in names:
        request = request.without(name)

    assert json.loads(request.body()) == {name: value for name, value in said.items() if name not in names}
    assert request.value("x") is None


@given(bodies(), st.sampled_from(NAMES), st.sampled_from([*NAMES, "new"]))
@settings(max_examples=80, deadline=None)
def test_a_renamed_field_keeps_its_place_and_value(made: tuple[Request, dict[str, Any]], old: str, new: str) -> None:
    request, said = made
    if new == "messages":
        return
    expected = said
    if old in said:
        rest = {name: value for name, value in said.items() if name == old or name != new}
        expected = {new if name == old else name: value for name, value in rest.items()}
    found = json.loads(request.renamed(old, new).body())

    assert list(found.items()) == list(expected.items())


@given(bodies(), st.sampled_from([*NAMES, "new"]), st.booleans())
@settings(max_examples=80, deadline=None)
def test_a_value_is_set_in_place_or_added_last(made: tuple[Request, dict[str, Any]], name: str, emptied: bool) -> None:
    request, said = made
    if name == "messages":
        return
    if emptied:
        for each in said:
            request = request.without(each)
        said = {}
    found = json.loads(request.with_value(name, b'{"v":[1]}').body())

    assert list(found.items()) == list((said | {name: {"v": [1]}}).items())


@given(bodies(), st.integers(0, 3))
@settings(max_examples=80, deadline=None)
def test_other_items_stand_in_the_same_brackets(made: tuple[Request, dict[str, Any]], count: int) -> None:
    request, said = made
    notes = tuple(CHAT.note(f"n{n}") for n in range(count))
    expected = said | {"messages": [{"role": "user", "content": f"n{n}"} for n in range(count)]}
    filled = request.with_items(notes)

    assert json.loads(filled.body()) == expected
    assert json.loads(filled.with_items(()).with_items(notes).body()) == expected
    assert json.loads(filled.with_items(request.items).body()) == said


@pytest.mark.parametrize("body", [
    b'{"model":"m","messages":[]}',
    b' { "messages" : [ ] , "model" : "m" } ',
    b'{"messages":[\n{"role":"user","content":"\\u00e9"} ,{"role":"x"}\n],"model":"m","n":1.50e1}\r\n',
])  # fmt: skip
def test_absent_fields_change_no_byte(body: bytes) -> None:
    request = parse(body, Memo())

    assert request.without("x") is request
    assert request.renamed("x", "y") is request
    assert request.body() == b"".join(request.pieces()) == body
