"""What moves where, and that nothing is lost or put between a call and its result."""

import json

import pytest
from hypothesis import given, settings

from gateway.context import layout
from gateway.context.policy import LayoutPolicy, Volatile
from gateway.dialects.chat import CHAT
from tests.context.talks import Message, arranged, assistant, calls, request, result, system, talks, user

CLOCK = "Current time: 2026-01-01T10:00:01"
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"z": 1, "a": 2}}} for name in ("b", "a", "c")]


def texts(made: layout.Arranged) -> list[str]:
    return [CHAT.texts(item)[0] for item in made.request.items]


def test_nothing_to_do_is_the_same_object() -> None:
    given = request([system(), user()], tools=sorted(TOOLS, key=str))

    assert layout.arrange(given, LayoutPolicy(), CHAT).request is given


def test_a_volatile_line_leaves_the_head_for_the_tail_verbatim() -> None:
    made = arranged([system(f"Help.\n{CLOCK}\nBe brief."), user()])

    assert texts(made) == ["Help.\nBe brief.", "hi"]
    assert CHAT.texts(made.notes[0])[0].splitlines()[1:] == [CLOCK]
    assert made.notes[0].role == "user"


def test_steady_system_turns_stand_before_those_with_volatile_text() -> None:
    made = arranged([system(f"{CLOCK}\nEnvironment."), system("Persona."), system(CLOCK), user()])

    assert texts(made) == ["Persona.", "Environment.", "hi"]
    assert made.head == 2
    assert CHAT.texts(made.notes[0])[0].splitlines()[1:] == [CLOCK, CLOCK]


def test_a_late_system_turn_keeps_its_place_and_its_clock() -> None:
    made = arranged([system(), user(), system(CLOCK), user()])

    assert made.head == 1
    assert texts(made)[2] == CLOCK
    assert made.notes == ()


@pytest.mark.parametrize(("end", "place"), [
    ([user()], True),
    ([user(), calls("a"), result("a")], True),
    ([user(), calls("a", "b"), result("b"), result("a")], True),
    ([user(), calls("a")], False),
    ([user(), calls("a", "b"), result("a")], False),
    ([user(), assistant("The answer is")], False),
])  # fmt: skip
def test_a_note_never_parts_a_call_from_its_results(end: list[Message], place: bool) -> None:
    given = request([system(f"Help.\n{CLOCK}"), *end])
    made = layout.arrange(given, LayoutPolicy(), CHAT)

    assert place == bool(made.notes)
    assert place == (made.request is not given)


@pytest.mark.parametrize(("rule", "observe"), [(LayoutPolicy(), True), (LayoutPolicy(volatile=Volatile.OBSERVE), False)])
def test_observing_changes_nothing_and_tells_what_would_move(rule: LayoutPolicy, observe: bool) -> None:
    given = request([system(f"Help.\n{CLOCK}"), user()])
    made = layout.arrange(given, rule, CHAT, observe=observe)

    assert made.request is given
    assert made.moved == (CLOCK + "\n",)
    assert made.notes == ()


def test_tools_are_sorted_by_name_with_their_own_bytes() -> None:
    made = arranged([user()], tools=TOOLS)
    value = made.request.value("tools") or b""

    assert [tool["function"]["name"] for tool in json.loads(value)] == ["a", "b", "c"]
    assert all(json.dumps(tool).encode() in value for tool in TOOLS)


@pytest.mark.parametrize("tools", [[*TOOLS, {"type": "web_search"}], TOOLS[:1]])
def test_tools_that_cannot_all_be_named_stay_as_they_are(tools: list[Message]) -> None:
    given = request([user()], tools=tools)

    assert layout.arrange(given, LayoutPolicy(), CHAT).request is given


def test_a_picture_stays_when_the_clock_beside_it_goes() -> None:
    parts = [{"type": "text", "text": CLOCK}, {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}]
    made = arranged([{"role": "system", "content": parts}, user()])

    assert b"image_url" in made.request.items[0].raw


@given(talks())
@settings(max_examples=60, deadline=None)
def test_a_memo_changes_nothing(messages: list[Message]) -> None:
    given = request([system(f"Help.\n{CLOCK}\nBe brief."), *messages])
    memo: layout.Scans = {}
    made = [layout.arrange(given, LayoutPolicy(), CHAT, memo=each) for each in (None, memo, memo)]

    assert made[0] == made[1] == made[2]
