import asyncio
import logging
from datetime import UTC, datetime

import pytest

from gateway.context.digest import digest
from gateway.errors import SnapshotUnavailable
from gateway.ledger.memory import MemoryLedger
from gateway.ledger.records import CallFinished, Entry, Outcome
from gateway.recorder import Recorder, joined
from gateway.telemetry import Metrics

pytestmark = pytest.mark.anyio


class Counting(MemoryLedger):
    """Counts its appends; `poison` is a record id that it fails on for a reason of its own."""

    def __init__(self, poison: str = "") -> None:
        super().__init__()
        self.appends, self.poison = 0, poison

    async def append(self, entry: Entry) -> None:
        self.appends += 1
        if any(each.id == self.poison for each in entry.records):
            raise RuntimeError("cannot be written")
        await super().append(entry)


def ended(number: int) -> Entry:
    body = b"reply %d" % number
    record = CallFinished(id=f"{number:032x}", at=datetime.now(UTC), outcome=Outcome.COMPLETED, reply=digest(body))
    return Entry(records=(record,), bodies={digest(body): body}, roots=(digest(body),))


async def ids(ledger: MemoryLedger) -> list[int]:
    return [int(record.id, 16) async for record in ledger.read()]


async def test_ends_of_calls_share_an_append_and_keep_their_order() -> None:
    ledger = Counting()
    recorder = Recorder(ledger, Metrics())
    for number in range(20):
        recorder.append_late(ended(number))
    await recorder.drain(5)

    assert await ids(ledger) == list(range(20))
    assert ledger.appends == 1
    assert len(await ledger.bodies(digest(b"reply %d" % n) for n in range(20))) == 20


async def test_ends_wait_for_a_ledger_that_is_away() -> None:
    ledger = Counting()
    ledger.unavailable = "away"
    recorder = Recorder(ledger, Metrics())
    recorder.append_late(ended(1))
    await asyncio.sleep(0.05)
    ledger.unavailable = None
    await recorder.drain(5)

    assert await ids(ledger) == [1]


async def test_what_cannot_be_written_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    ledger = Counting(poison=f"{1:032x}")
    recorder = Recorder(ledger, Metrics())
    recorder.append_late(ended(1))
    await recorder.drain(5)
    recorder.append_late(ended(2))
    await recorder.drain(5)

    assert await ids(ledger) == [2]
    assert [each.levelno for each in caplog.records] == [logging.ERROR]


async def test_drain_says_what_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    ledger = Counting()
    ledger.unavailable = "away"
    recorder = Recorder(ledger, Metrics())
    recorder.append_late(ended(1))
    await recorder.drain(0.05)

    assert "1 ends of calls could not be recorded" in caplog.text


async def test_a_snapshot_that_is_not_taken_is_the_callers_to_know() -> None:
    ledger = Counting()
    ledger.unavailable = "away"

    with pytest.raises(SnapshotUnavailable):
        await Recorder(ledger, Metrics()).append(ended(1))


def test_one_entry_of_many_names_every_body_once() -> None:
    made = joined([ended(1), ended(2), ended(1)])

    assert len(made.records) == 3
    assert made.roots == (digest(b"reply 1"), digest(b"reply 2"))
