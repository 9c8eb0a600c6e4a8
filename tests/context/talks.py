"""Conversations for the core's tests: made up, random, and recorded, with a counter that needs no vocabulary."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from gateway.context import layout, tokens
from gateway.context.items import Item, Request
from gateway.context.layout import Arranged
from gateway.context.policy import CompactionPolicy, LayoutPolicy, Policy, Window
from gateway.context.tokens import Costs
from gateway.dialects.chat import CHAT, Memo, parse

Message = dict[str, Any]
MEMO = Memo()


def request(messages: Sequence[Message], **fields: Any) -> Request:
    return parse(json.dumps({"model": "m", "messages": list(messages), **fields}).encode(), MEMO)


def arranged(messages: Sequence[Message], rule: LayoutPolicy | None = None, **fields: Any) -> Arranged:
    return layout.arrange(request(messages, **fields), rule or LayoutPolicy(), CHAT)


def count(text: str) -> int:
    return -(-len(text.encode()) // 4)


def costs(made: Arranged, safety: float = 1.0) -> Costs:
    items = tuple(tokens.priced(count(CHAT.wire_text(item)), item, safety) for item in made.request.items)
    notes = [count(CHAT.wire_text(item)) for item in made.notes]
    return tokens.counted(made, items, notes, sum(map(count, CHAT.request_texts(made.request))), safety)


def true_cost(items: Sequence[Item], envelope: Request) -> int:
    """What a prompt costs by the same counter, independent of any plan."""
    return sum(count(CHAT.wire_text(item)) + 4 for item in items) + sum(map(count, CHAT.request_texts(envelope)))


def policy(window: int | None = 2_000, **values: Any) -> Policy:
    compaction = {name: values.pop(name) for name in CompactionPolicy.__dataclass_fields__ if name in values}
    base: dict[str, Any] = {"model": "m", "reserve_tokens": 200, "margin": 0.0, "ask_usage": False}
    return Policy(window=Window(tokens=window), compaction=CompactionPolicy(**compaction), **base | values)


def system(text: str = "You help.") -> Message:
    return {"role": "system", "content": text}


def user(text: str = "hi") -> Message:
    return {"role": "user", "content": text}


def assistant(text: str = "ok") -> Message:
    return {"role": "assistant", "content": text}


def calls(*ids: str) -> Message:
    made = [{"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(name: str, text: str = "done") -> Message:
    return {"role": "tool", "tool_call_id": name, "content": text}


@st.composite
def talks(draw: st.DrawFn, max_turns: int = 10) -> list[Message]:
    """A conversation as agents have it: a user's turn, then answers and rounds of calls; ids recur; it ends with no answer."""
    sizes = st.sampled_from([1, 5, 40, 400, 1500])
    made = [system("s" * draw(sizes)) for _ in range(draw(st.integers(0, 2)))]
    for turn in range(draw(st.integers(1, max_turns))):
        made.append(user(f"{turn} " + "u" * draw(sizes)))
        for _ in range(draw(st.integers(0, 3))):
            ids = [f"c{draw(st.integers(0, 2))}" for _ in range(draw(st.integers(1, 2)))]
            ids = list(dict.fromkeys(ids))
            made.append(calls(*ids))
            made.extend(result(each, "r" * draw(sizes)) for each in ids)
        if draw(st.booleans()):
            made.append(assistant("a" * draw(sizes)))
        if draw(st.integers(0, 9)) == 0:
            made.append(system("late"))
    if made[-1]["role"] == "assistant":
        made.append(user("and now?"))
    return made


@st.composite
def jumbles(draw: st.DrawFn) -> list[Message]:
    """Messages in no order at all: orphan results, calls without results, late ones."""
    ids = st.sampled_from(["a", "b"])
    one = st.one_of(
        st.just(user("u" * 50)),
        st.just(assistant("a" * 200)),
        st.just(system("late")),
        st.builds(calls, ids),
        st.builds(lambda each: result(each, "r" * 300), ids),
    )
    return draw(st.lists(one, min_size=1, max_size=25))


SAMPLE = [
    system("# Policy\n\nThe current time is 2024-05-15 15:00:00 EST.\n\nHelp with bookings.\n" + "Be brief. " * 40),
    *(
        message
        for turn in range(30)
        for message in (
            user(f"Change booking {turn}, please. " + "It is about the flight. " * 6),
            calls(f"call_{turn % 4}"),
            result(f"call_{turn % 4}", json.dumps({"flight": turn, "legs": ["HAT001"] * 40})),
            assistant("It is done. " * 12),
        )
    ),
]


def transcripts(limit: int = 6) -> list[list[Message]]:
    """Recorded sessions where they are at hand (`GATEWAY_TRANSCRIPTS`, or beside the repository), else the sample."""
    beside = Path(__file__).parents[3] / "shared" / "data" / "tau_airline.jsonl"
    path = Path(os.environ.get("GATEWAY_TRANSCRIPTS", beside))
    if not path.is_file():
        return [SAMPLE]
    with path.open() as lines:
        return [SAMPLE, *(json.loads(line)["messages"] for line, _ in zip(lines, range(limit), strict=False))]


def turns(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Yield the messages of each request of a session: all before each answer."""
    yield from (list(messages[:at]) for at, each in enumerate(messages) if each["role"] == "assistant" and at)
