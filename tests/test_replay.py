import asyncio
import json
import os
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway import planning, replay
from gateway.context import layout
from gateway.context.digest import digest
from gateway.context.policy import LayoutPolicy, Policy, Volatile
from gateway.dialects import chat
from gateway.errors import LedgerError, SnapshotUnavailable
from gateway.ledger import codec
from gateway.ledger.base import Ledger
from gateway.ledger.memory import MemoryLedger
from gateway.ledger.records import Entry, PromptComposed
from gateway.ledger.sqlite import SQLiteLedger
from gateway.planning import Planned, Snapshot
from gateway.providers.tokenizers import Counter
from gateway.replay import Replay, Verdict
from tests.context.talks import SAMPLE, Message, assistant, calls, policy, result, system, talks, user

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
CLOCK = system("You help.\nThe current time is 2026-03-01 12:00:07 UTC.\nBe brief.")


@dataclass(frozen=True, slots=True)
class Kept:
    """One snapshot as the request path records it, and the bytes that would have left."""

    entry: Entry
    record: PromptComposed
    sent: bytes
    received: bytes


def kept(messages: Sequence[Message], rule: Policy | None = None, *, at: int = 0, observe: bool = False, **fields: Any) -> Kept:
    made = attempted(messages, rule or policy(100_000), at=at, observe=observe, **fields)
    assert made is not None
    return made


def attempted(messages: Sequence[Message], rule: Policy, *, at: int = 0, observe: bool = False, **fields: Any) -> Kept | None:
    """Plan and record a request as the pipeline does, spelled as a client would and not as we do; None when it is refused."""
    body = json.dumps({"model": "m", "messages": list(messages), "temperature": 1.0, **fields}, indent=1).encode()
    request = chat.parse(body, chat.Memo())
    arranged = layout.arrange(request, rule.layout, chat.CHAT, observe=observe)
    planned = planning.plan_now(arranged, rule, Counter())
    if not isinstance(planned, Planned):
        return None
    snapshot = Snapshot(
        id=f"{at:012x}{os.urandom(10).hex()}", at=START + timedelta(seconds=at), route="r", session="s", lineage="l", tenant="",
        request_id="q", attempt=1, target="p/m", observe=observe, expected=0,
    )  # fmt: skip
    entry = planning.entry(snapshot, request, planned, (digest(rule.to_json()), rule.to_json()))
    record = entry.records[0]
    assert isinstance(record, PromptComposed)
    return Kept(entry, record, planned.prompt.body, body)


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def turns(count: int) -> list[Message]:
    return [CLOCK, *(each for n in range(count) for each in (user(f"{n} " + "u" * 90), assistant("a" * 90))), user("and now?")]


def verdicts(ledger: Ledger, since: datetime | None = None) -> list[Verdict]:
    async def run() -> list[Verdict]:
        return [each async for each in replay.verify(ledger, since)]

    return asyncio.run(run())


def filled(entries: Iterable[Entry]) -> MemoryLedger:
    async def run() -> MemoryLedger:
        ledger = MemoryLedger()
        for each in entries:
            await ledger.append(each)
        return ledger

    return asyncio.run(run())


def bodies(each: Kept) -> dict[bytes, bytes]:
    return dict(each.entry.bodies)


RESULTS = [each for n in range(9) for each in (calls(f"c{n}"), result(f"c{n}", "r" * 900))]
RENAMING = policy(rename_fields=(("max_tokens", "limit"),), drop_fields=("user",))
CASES = {
    "nothing to change": kept([system(), user()]),
    "tools to sort": kept([system(), user()], tools=[tool("z"), tool("a")]),
    "a clock to move": kept([CLOCK, user()]),
    "a clock that is only observed": kept([CLOCK, user()], observe=True, tools=[tool("z"), tool("a")]),
    "history to cut": kept(turns(40), policy(1_500)),
    "results to prune": kept([system(), user(), *RESULTS], policy(2_000)),
    "fields to rename and drop": kept([user()], RENAMING, max_tokens=9, user="u"),
    "an output limit to shrink": kept([user("u" * 2_000)], policy(1_600, shrink_output=True), max_tokens=1_500),
    "usage to ask for": kept([user()], policy(ask_usage=True), stream=True),
    "developer turns to rename": kept([{"role": "developer", "content": "x"}, user()], policy(developer_role=False)),
    "more messages than a node holds": kept(turns(50)),
    "text that is not ASCII": kept([user("héllo 😀 \u2028 \ud83d")]),
    "counts to be made with a vocabulary": kept(turns(12), policy(1_200, tokenizer="o200k_base")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_both_ways_give_the_very_bytes_that_were_sent(name: str) -> None:
    each = CASES[name]

    assert each.sent == replay.rebuild(each.record, bodies(each))
    assert each.sent == Replay().recompute(each.record, bodies(each))
    assert Verdict(snapshot_id=each.record.id) == Replay().check(each.record, bodies(each))


def test_the_cases_change_what_they_say() -> None:
    untouched = [name for name, each in CASES.items() if each.sent == each.received]

    assert untouched == [
        "nothing to change",
        "a clock that is only observed",
        "text that is not ASCII",
    ]
    assert CASES["history to cut"].record.compaction.startswith("sliding_window")
    assert not CASES["results to prune"].record.compaction.endswith("pruned=0")


def test_one_replay_serves_all_and_its_memory_changes_nothing() -> None:
    shared = Replay()

    for _ in range(2):
        for each in CASES.values():
            assert each.sent == shared.recompute(each.record, bodies(each))


@settings(max_examples=40, deadline=None)
@given(talks(), st.sampled_from([900, 2_000, 100_000]), st.booleans())
def test_whatever_was_planned_is_rebuilt(messages: list[Message], window: int, observe: bool) -> None:
    each = attempted(messages, policy(window), observe=observe)
    assume(each is not None)
    assert each is not None

    assert Replay().check(each.record, bodies(each)) == Verdict(snapshot_id=each.record.id)


def test_another_policy_is_a_difference_with_its_place() -> None:
    each, other = CASES["a clock to move"], policy(100_000, layout=LayoutPolicy(volatile=Volatile.OBSERVE))
    record = replace(each.record, policy=digest(other.to_json()))
    found = Replay().check(record, bodies(each) | {record.policy: other.to_json()})

    assert found.problem == "composed anew, it is not the recorded prompt"
    assert found.recorded_digest == found.stored_digest == digest(each.sent).hex()
    assert found.composed_digest == digest(each.received).hex()
    assert found.offset is not None
    assert each.sent[: found.offset] == each.received[: found.offset]
    assert each.sent[found.offset] != each.received[found.offset]
    assert "The current time" in (found.composed_text or "")
    assert "The current time" not in (found.stored_text or "")


def test_a_digest_that_neither_way_gives_is_a_difference() -> None:
    each = CASES["nothing to change"]
    found = Replay().check(replace(each.record, prompt_digest=bytes(32)), bodies(each))

    assert found.problem == "the recorded digest is not that of the prompt, stored or composed anew"
    assert (found.recorded_digest, found.stored_digest, found.offset) == ("00" * 32, found.composed_digest, None)


def test_a_manifest_of_another_prompt_is_a_difference() -> None:
    each, other = CASES["nothing to change"], CASES["a clock to move"]
    found = Replay().check(replace(each.record, prompt=other.record.prompt), bodies(each) | bodies(other))

    assert found.problem == "the stored prompt is not the recorded one"
    assert found.composed_digest == found.recorded_digest != found.stored_digest
    assert found.offset is not None


def test_a_policy_or_request_that_cannot_be_read_is_a_difference() -> None:
    each = CASES["nothing to change"]
    broken = Replay().check(each.record, bodies(each) | {each.record.policy: b"[]"})
    lost = Replay().check(replace(each.record, request=replace(each.record.request, tail=())), bodies(each))

    assert "cannot be read" in (broken.problem or "")
    assert "cannot be composed anew" in (lost.problem or "")
    assert digest(each.sent).hex() == broken.stored_digest


def test_a_request_that_no_longer_fits_is_a_difference() -> None:
    each, tight = CASES["history to cut"], policy(210)
    found = Replay().check(
        replace(each.record, policy=digest(tight.to_json())), bodies(each) | {digest(tight.to_json()): tight.to_json()}
    )

    assert "refused now" in (found.problem or "")


def test_a_body_that_is_not_at_hand_is_named() -> None:
    each = CASES["nothing to change"]

    with pytest.raises(LedgerError, match=r"body [0-9a-f]{64} is not at hand"):
        replay.rebuild(each.record, {})


@pytest.mark.parametrize(
    ("one", "other", "offset"), [(b"abc", b"abd", 2), (b"abc", b"ab", 2), (b"", b"x", 0), (b"xa", b"ya", 0), (b"a", b"a", 1)]
)
def test_the_first_difference_is_found(one: bytes, other: bytes, offset: int) -> None:
    assert offset == replay.first_difference(one, other)


def test_every_prompt_of_a_ledger_is_checked_in_order_over_several_batches() -> None:
    made = [kept([*SAMPLE[: 2 + n % 40], user("?")], at=n) for n in range(replay.BATCH + 9)]
    ledger = filled(each.entry for each in made)

    assert [each.record.id for each in made] == [each.snapshot_id for each in verdicts(ledger)]
    assert {None} == {each.problem for each in verdicts(ledger)}
    assert len(verdicts(ledger, START + timedelta(seconds=replay.BATCH))) == 9


def test_an_empty_ledger_has_nothing_to_check() -> None:
    assert verdicts(MemoryLedger()) == []


@pytest.mark.parametrize("stored", [None, codec.compress(b"another"), b"broken"])
def test_a_lost_or_altered_body_is_found_and_named_at_its_own_prompt(tmp_path: Path, stored: bytes | None) -> None:
    path = tmp_path / "l.db"
    made = [kept([user(f"question {n}")], at=n) for n in range(5)]
    asyncio.run(_written(path, [each.entry for each in made]))
    victim = made[3].record.prompt.items[0]
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("DELETE FROM bodies WHERE digest = ?", (victim,))
        if stored is not None:
            connection.execute("INSERT INTO bodies VALUES (?, ?)", (victim, stored))
    connection.close()

    async def check() -> list[Verdict]:
        ledger = SQLiteLedger.open(str(path), 5)
        try:
            return [each async for each in replay.verify(ledger)]
        finally:
            await ledger.close()

    found = asyncio.run(check())
    assert [n for n, each in enumerate(found) if each.problem is not None] == [3]
    assert victim.hex() in (found[3].problem or "")


async def _written(path: Path, entries: Sequence[Entry]) -> None:
    ledger = SQLiteLedger.open(str(path), 5)
    for each in entries:
        await ledger.append(each)
    await ledger.close()


def test_a_ledger_that_does_not_answer_is_no_difference() -> None:
    """A verdict would accuse the records of what is the network's fault."""

    class Away(MemoryLedger):
        async def bodies(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
            raise SnapshotUnavailable("no answer within 5 s")

    ledger = Away()
    asyncio.run(ledger.append(CASES["nothing to change"].entry))

    with pytest.raises(SnapshotUnavailable):
        verdicts(ledger)
