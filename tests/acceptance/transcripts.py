"""The real transcripts, played as an agent would: each turn sends the whole history up to the next assistant message."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PLACES = (os.environ.get("GATEWAY_TRANSCRIPTS", ""), str(Path(__file__).parents[3] / "shared" / "data" / "tau_airline.jsonl"))
CLOCK = "The current time is 2024-05-15 15:00:00 EST."


@dataclass(frozen=True)
class Session:
    """One recorded conversation; `turns` yields the messages of each request and the recorded answer."""

    id: str
    messages: list[dict[str, Any]]

    def turns(self) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
        for at, message in enumerate(self.messages):
            if message["role"] == "assistant":
                yield self.messages[:at], message


def sessions() -> list[Session]:
    """Return every session; empty where the data is not at hand."""
    path = next((Path(place) for place in PLACES if place and Path(place).is_file()), None)
    if path is None:
        return []
    return [Session(each["id"], each["messages"]) for each in map(json.loads, path.read_text().splitlines())]


def with_clock(messages: list[dict[str, Any]], seconds: int) -> list[dict[str, Any]]:
    """Return the messages with the clock of their system prompt moved on by so many seconds."""
    now = f"The current time is 2024-05-15 15:{seconds // 60 % 60:02d}:{seconds % 60:02d} EST."
    first = dict(messages[0], content=messages[0]["content"].replace(CLOCK, now))
    return [first, *messages[1:]]
