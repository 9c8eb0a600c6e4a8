import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.dashboard.reading import BREATHE_EVERY, FRESH_S, Reader
from gateway.errors import SnapshotUnavailable
from gateway.ledger.memory import MemoryLedger
from gateway.ledger.records import Entry, Record
from tests.dashboard.records import finished

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Watched(MemoryLedger):
    """A ledger that tells what was read of it, and can be slow or away."""

    def __init__(self, count: int = 0) -> None:
        super().__init__()
        self.given: list[str] = []
        self.open = 0
        self.gate: asyncio.Event | None = None
        self.records = [finished(n) for n in range(count)]

    async def follow(self, cursor: str = "") -> AsyncIterator[tuple[str, Record]]:
        self.open += 1
        try:
            await self.ready()
            async for each, record in super().follow(cursor):
                if self.gate is not None and len(self.given) == 5:
                    await self.gate.wait()
                self.given.append(each)
                yield each, record
        finally:
            self.open -= 1


async def test_it_goes_on_where_it_stopped_and_looks_at_most_every_second() -> None:
    ledger, clock = Watched(3), Clock()
    reader = Reader(ledger, clock=clock)

    await reader.catch_up()
    await ledger.append(Entry(records=(finished(9),)))
    assert (await reader.catch_up()).records == 3

    clock.now += FRESH_S
    assert (await reader.catch_up()).records == 4
    assert ledger.given == ["1", "2", "3", "4"]


async def test_a_page_does_not_wait_for_a_long_ledger_and_it_is_read_on_behind_it() -> None:
    ledger = Watched(9)
    ledger.gate = asyncio.Event()
    reader = Reader(ledger, patience_s=0.01)

    assert (await reader.catch_up()).records == 5
    assert reader.is_behind

    ledger.gate.set()
    assert (await reader.catch_up()).records == 9
    assert not reader.is_behind


async def test_many_who_ask_at_once_share_one_reading() -> None:
    ledger = Watched(4)
    reader = Reader(ledger, clock=Clock())

    found = await asyncio.gather(*(reader.catch_up() for _ in range(20)))

    assert [each.records for each in found] == [4] * 20
    assert len(ledger.given) == 4


async def test_others_get_their_turn_while_it_reads() -> None:
    turns = 0

    async def beside() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(beside())
    await Reader(Watched(BREATHE_EVERY * 10), patience_s=60).catch_up()
    other.cancel()

    assert turns >= 10


async def test_a_ledger_that_is_away_is_said_and_asked_again() -> None:
    ledger, clock = Watched(3), Clock()
    reader = Reader(ledger, clock=clock)
    ledger.unavailable = "it is away"

    assert (await reader.catch_up()).records == 0
    assert reader.problem == SnapshotUnavailable("it is away").message

    ledger.unavailable = None
    clock.now += FRESH_S
    assert (await reader.catch_up()).records == 3
    assert reader.problem is None


async def test_closing_ends_a_reading_and_lets_go_of_the_ledger() -> None:
    ledger = Watched(9)
    ledger.gate = asyncio.Event()
    reader = Reader(ledger, patience_s=0.01)
    await reader.catch_up()

    await reader.close()

    assert (ledger.open, reader.is_behind) == (0, False)
    await reader.close()
