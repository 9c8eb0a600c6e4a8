import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dashboard.parting import BEHIND, SHOWN_BYTES, part, parts, visible


def body(*texts: str, **more: Any) -> bytes:
    messages = [{"role": "user" if at % 2 else "system", "content": text} for at, text in enumerate(texts)]
    return json.dumps({"model": "m", **more, "messages": messages}, ensure_ascii=False).encode()


def test_a_prompt_is_cut_in_the_order_a_provider_renders_it() -> None:
    found = parts(b'{"messages": [{"role": "user"}, {"content": 1}], "system": "s", "model": "m", "tools": [1, 2]}')

    assert [(each.name, each.raw) for each in found] == [
        ("tools", b"[1, 2]"),
        ("system", b'"s"'),
        ("user", b'{"role": "user"}'),
        ("message", b'{"content": 1}'),
    ]


def test_items_of_responses_are_parts_too() -> None:
    listed = parts(b'{"instructions": "i", "input": [{"type": "function_call"}, {"role": "user"}]}')

    assert [each.name for each in listed] == ["instructions", "function_call", "user"]
    assert [each.raw for each in parts(b'{"input": "hello"}')] == [b'"hello"']


@pytest.mark.parametrize("raw", [b"", b"no json", b"[1]", b'{"messages": 1}', b"\xff", b'{"messages": [' + b"[" * 5_000])
def test_what_cannot_be_cut_is_one_part(raw: bytes) -> None:
    assert [(each.name, each.raw) for each in parts(raw)] == [("body", raw)]


def test_the_byte_where_two_prompts_part_is_named_with_what_stands_around_it() -> None:
    found = part(body("rules", "it is 12:00 now", "x"), body("rules", "it is 13:00 now", "y"))

    assert found is not None
    assert (found.index, found.part, found.ended) == (1, "user", False)
    assert found.before.shared.endswith("it is 1")
    assert (found.before.own[:4], found.after.own[:4]) == ("2:00", "3:00")
    assert '"rules"' in found.after.shared
    assert found.after.more


def test_fields_that_are_not_rendered_do_not_part_two_prompts() -> None:
    assert part(body("a", temperature=1), body("a", temperature=0, user="u")) is None


def test_tools_come_before_everything() -> None:
    found = part(body("a", tools=[1]), body("b", tools=[2]))

    assert found is not None
    assert (found.index, found.part, found.offset) == (0, "tools", 1)


def test_a_prompt_that_goes_on_where_the_other_ends_is_said() -> None:
    found = part(body("a", "b"), body("a", "b", "c"))

    assert found is not None
    assert (found.ended, found.before.own, found.index) == (True, "", 2)
    assert found.shared_bytes < found.whole_bytes


def test_a_character_is_not_shown_by_halves() -> None:
    found = part(body("ä"), body("ö"))

    assert found is not None
    assert found.before.own.startswith("ä")
    assert "\ufffd" not in found.after.own + found.after.shared


def test_a_long_part_is_shown_in_pieces() -> None:
    found = part(body("a" * 9_000), body("b" + "a" * 9_000))

    assert found is not None
    assert len(found.after.own) == BEHIND
    assert parts(body("a" * 2 * SHOWN_BYTES))[0].is_long


def test_what_hides_is_shown() -> None:
    assert visible("a\u202eb\u200bc\0\n".encode()) == "a⟨U+202E⟩b⟨U+200B⟩c␀\n"


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_two_bodies_part_or_are_rendered_alike(one: bytes, other: bytes) -> None:
    found = part(one, other)

    assert (found is None) == (parts(one) == parts(other))
    if found is not None:
        assert 0 <= found.shared_bytes <= min(len(one), len(other))


@given(st.text(max_size=30), st.text(max_size=30))
def test_what_is_shared_is_the_same_on_both_sides(one: str, other: str) -> None:
    found = part(body("s", one), body("s", other))

    assert (found is None) == (one == other)
    if found is not None:
        assert found.before.shared == found.after.shared
