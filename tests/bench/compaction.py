"""What compaction costs on a provider's prompt cache: real transcripts, joined into long sessions, on a simulated prefix cache.

    python -m tests.bench.compaction hits     the table of hit ratios and costs
    python -m tests.bench.compaction speed    what planning a long conversation costs, and how it grows with its turns

A prompt reads from the cache what it shares, item by item, with the one that was sent before it in its session, and writes
the rest: read 0.1, written 1.25 times the price of plain input. `re-cut` is the comparison: a window that is cut to what fits
on every turn.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway import planning
from gateway.context import layout
from gateway.context.admission import Refused
from gateway.context.items import Request
from gateway.context.policy import CompactionPolicy, Policy, Window
from gateway.dialects.chat import CHAT, Memo, parse
from gateway.planning import Planned, plan_now
from gateway.providers.tokenizers import Counter, count
from tests.acceptance.transcripts import sessions

LONG = 300  # messages of a joined session, at least
READ, WRITE = 0.1, 1.25  # of the price of plain input
Message = dict[str, Any]


def joined() -> list[list[Message]]:
    """Return the transcripts as long sessions: one system prompt, then conversation after conversation."""
    made: list[list[Message]] = []
    for session in sessions():
        if not made or len(made[-1]) >= LONG:
            made.append(session.messages[:1])
        made[-1].extend(session.messages[1:])
    return [each for each in made if len(each) >= LONG]


def turns(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Yield the messages of each request: all before each answer."""
    yield from (list(messages[:at]) for at, each in enumerate(messages) if each["role"] == "assistant")


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a series of prompts cost on a cache that holds the prompt before."""

    read: int = 0
    written: int = 0
    calls: int = 0
    cuts: int = 0
    refused: int = 0
    largest: int = 0
    before: tuple[bytes, ...] = ()
    held: int = 0

    def sent(self, items: Sequence[bytes], sizes: Sequence[int]) -> float:
        """Take one prompt; return the share of the cached one before it that was read again."""
        pairs = enumerate(zip(self.before, items, strict=False))
        same = next((at for at, (one, other) in pairs if one != other), min(len(self.before), len(items)))
        total, read, held = sum(sizes), sum(sizes[:same]), self.held
        self.read += read
        self.written += total - read
        self.largest = max(self.largest, total)
        self.calls += 1
        self.cuts += same < len(self.before)
        self.before, self.held = tuple(items), total
        return read / held if held else 0.0

    @property
    def ratio(self) -> float:
        return self.read / (self.read + self.written)

    @property
    def cost(self) -> float:
        """What one call's input costs, in tokens of plain input."""
        return (READ * self.read + WRITE * self.written) / self.calls


def policy(window: int, **compaction: Any) -> Policy:
    return Policy(
        model="m",
        window=Window(tokens=window),
        reserve_tokens=min(1_024, window // 8),
        tokenizer="o200k_base",
        compaction=CompactionPolicy(**compaction),
        ask_usage=False,
    )


class Player:
    """Plays sessions through the core; parses and counts each message once."""

    def __init__(self) -> None:
        self.scans: layout.Scans = {}
        self.memo, self.counter, self.plans = Memo(), Counter(), planning.Memo()

    def call(self, messages: Sequence[Message], rule: Policy, tally: Tally) -> float | None:
        """Plan one request and note what it reads: its share of what was cached, None when it was refused."""
        request = parse(json.dumps({"model": "m", "messages": messages}).encode(), self.memo)
        planned = self.plan(request, rule)
        if isinstance(planned, Refused):
            tally.refused += 1
            return None
        items = planned.prompt.request.items
        items = items[: len(items) - planned.prompt.tail]
        return tally.sent([item.raw for item in items], [count(rule.tokenizer, CHAT.wire_text(item)) + 4 for item in items])

    def plan(self, request: Request, rule: Policy) -> Planned | Refused:
        return plan_now(layout.arrange(request, rule.layout, CHAT, memo=self.scans), rule, self.counter, self.plans)

    def play(self, session: Sequence[Message], rule: Policy, tally: Tally) -> None:
        tally.before = ()
        for messages in turns(session):
            self.call(messages, rule, tally)


RECUT = "re-cut every turn"
STRATEGIES: Mapping[str, Mapping[str, Any]] = {
    "sliding window": {"prune_tool_outputs": False},
    "sliding + pruning": {},
    RECUT: {"prune_tool_outputs": False, "low_water": 1.0},
}


def table(windows: Sequence[int] = (16_384, 8_192, 4_096), names: Sequence[str] = ()) -> dict[tuple[int, str], Tally]:
    """Return what each of these strategies (none named: all) cost at each window."""
    talks, player, made = joined(), Player(), dict[tuple[int, str], Tally]()
    for window in windows:
        for name in names or STRATEGIES:
            tally = made[window, name] = Tally()
            for talk in talks:
                player.play(talk, policy(window, **STRATEGIES[name]), tally)
    return made


def away_and_back(window: int = 16_384, fallback: int = 4_096, every: int = 10, middle: int = 50) -> tuple[list[float], Tally]:
    """Return what share of its own cached prefix the primary read after a call to a smaller fallback, and all its calls' cost.

    From the middle of a session on, every so many calls.
    """
    player, primary, other, back = Player(), Tally(), Tally(), []
    for talk in joined():
        primary.before = other.before = ()
        away = False
        for number, messages in enumerate(turns(talk)):
            if number >= middle and number % every == 0:
                away = player.call(messages, policy(fallback), other) is not None
                continue
            read = player.call(messages, policy(window), primary)
            if away and read is not None:
                back.append(read)
            away = False
    return back, primary


def hits() -> None:
    talks = joined()
    print(f"{len(talks)} sessions, {sum(map(len, talks))} messages")
    print("window  strategy           calls refused cuts largest    hit   cost of re-cut")
    made = table()
    for (window, name), tally in made.items():
        share = tally.cost / made[window, RECUT].cost
        figures = f"{tally.calls:>5} {tally.refused:>7} {tally.cuts:>4} {tally.largest:>7} {tally.ratio:>6.3f} {tally.cost:>6.0f}"
        print(f"{window:>6}  {name:<18} {figures} {share:>9.3f}")
    back, primary = away_and_back()
    mean = sum(back) / len(back)
    print(f"after a call to the fallback the primary reads {mean:.3f} of its own cached prefix ({len(back)} times)")
    print(f"all its calls: hit {primary.ratio:.3f}")


def fit_ms(messages: int, size_bytes: int, window: int, tries: int = 40) -> tuple[float, float]:
    """Return the CPU time of one more turn of a conversation, all before it memoised: of reading the body, of planning it."""
    rule, player = policy(window), Player()
    talk = [{"role": "system", "content": "You help. " * 20}]
    talk += [message for turn in range(messages // 2) for message in _turn(turn, size_bytes // (messages // 2))]
    head = json.dumps({"model": "m", "messages": talk})[:-2].encode()
    reading, planning_ = [], []
    for number in range(tries):
        body = head + b"," + b",".join(json.dumps(each).encode() for each in _turn(messages + number, 600)) + b"]}"
        head = body[:-2]
        began = time.process_time()
        request = parse(body, player.memo)
        read = time.process_time()
        player.plan(request, rule)
        reading.append(read - began)
        planning_.append(time.process_time() - read)
    return min(reading[1:]) * 1e3, min(planning_[1:]) * 1e3


def _turn(number: int, size_bytes: int) -> list[Message]:
    call = {"id": f"call_{number}", "type": "function", "function": {"name": "look", "arguments": json.dumps({"at": number})}}
    text = f"{number} " + "the booking of flight 42 is open; " * (size_bytes // 34)
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": text[: max(1, size_bytes - 220)]},
    ]


def speed() -> None:
    for name, window in (("everything fits", 400_000), ("cut, 64k window", 65_536), ("cut, 16k window", 16_384)):
        read, plan = fit_ms(900, 500_000, window)
        print(f"900 messages, 500 KB, {name:<16} reading {read:.2f} ms, planning {plan:.2f} ms")
    base = None
    for turns_ in (50, 100, 250, 500):
        read, plan = fit_ms(2 * turns_, 1_600 * turns_, 16_384)
        base = base or plan
        print(f"turn {turns_:>3} (16k window)  reading {read:.2f} ms, planning {plan:.2f} ms, {plan / base:.2f} of turn 50")


if __name__ == "__main__":
    {"hits": hits, "speed": speed}[sys.argv[1]]()
