"""The bodies that the benchmark sends: same history each time, one new message, as an agent does."""

import json
import random
from collections.abc import Mapping


def _words(chance: random.Random, size_bytes: int) -> str:
    text = ""
    while len(text) < size_bytes:
        text += chance.choice(("check", "the", "booking", "and", "return", "value", "of", "flight", "segment", "error", "42")) + " "
    return text[:size_bytes]


def _turns(messages: int, size_bytes: int) -> list[dict[str, object]]:
    chance = random.Random(7)
    made: list[dict[str, object]] = [
        {"role": "system", "content": _words(chance, size_bytes)},
        {"role": "user", "content": "start"},
    ]
    while len(made) < messages - 1:
        call = {"id": f"call_{len(made)}", "type": "function", "function": {"name": "look", "arguments": '{"q": "x"}'}}
        made.append({"role": "assistant", "content": None, "tool_calls": [call]})
        made.append({"role": "tool", "tool_call_id": call["id"], "content": _words(chance, 2 * size_bytes)})
    return made[: messages - 1]


def small(number: int, stream: bool = False) -> bytes:
    """About 200 bytes, one message."""
    body = {"model": "m", "messages": [{"role": "user", "content": f"Is order {number:08d} on its way? " + "Say yes or no. " * 6}]}
    return _dumps(body, stream)


def agent(number: int, stream: bool = False) -> bytes:
    """About 60 KB, 43 messages."""
    return _history(43, 1_400, number, stream)


def large(number: int, stream: bool = False) -> bytes:
    """About 500 KB, 123 messages."""
    return _history(123, 4_080, number, stream)


_KNOWN: dict[tuple[int, int], str] = {}


def _history(messages: int, size_bytes: int, number: int, stream: bool) -> bytes:
    if (messages, size_bytes) not in _KNOWN:
        _KNOWN[messages, size_bytes] = json.dumps({"model": "m", "messages": _turns(messages, size_bytes)}, separators=(",", ":"))
    last = json.dumps({"role": "user", "content": f"and now number {number}?"}, separators=(",", ":"))
    head = _KNOWN[messages, size_bytes][:-2]
    return (head + "," + last + ('],"stream":true}' if stream else "]}")).encode()


def _dumps(body: Mapping[str, object], stream: bool) -> bytes:
    return json.dumps({**body, "stream": True} if stream else body, separators=(",", ":")).encode()


KINDS = {"200 B": small, "60 KB": agent, "500 KB": large}
