"""What every ledger does, run on each of them."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.context.digest import digest
from gateway.errors import LedgerError, SnapshotUnavailable
from gateway.ledger import codec
from gateway.ledger.base import Ledger
from gateway.ledger.memory import MemoryLedger
from gateway.ledger.records import ConfigChanged, Entry
from gateway.ledger.redis import RedisLedger
from gateway.ledger.sqlite import SQLiteLedger
from tests.ledger.server import RedisServer
from tests.ledger.values import POLICY, START, composed, finished


@dataclass
class Place:
    """A ledger, and how to meddle with what it stored: put other bytes under a digest, or None to remove it."""

    ledger: Ledger
    meddle: Callable[[bytes, bytes | None], Awaitable[None]]


Test = Callable[[Place], Awaitable[None]]


@asynccontextmanager
async def _memory() -> AsyncIterator[Place]:
    ledger = MemoryLedger()

    async def meddle(name: bytes, stored: bytes | None) -> None:
        if stored is None:
            del ledger.stored[name]
        else:
            ledger.stored[name] = stored

    yield Place(ledger, meddle)


@asynccontextmanager
async def _sqlite(path: Path) -> AsyncIterator[Place]:
    ledger = SQLiteLedger.open(str(path), 5)

    async def meddle(name: bytes, stored: bytes | None) -> None:
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("DELETE FROM bodies WHERE digest = ?", (name,))
            if stored is not None:
                connection.execute("INSERT INTO bodies VALUES (?, ?)", (name, stored))
        connection.close()

    try:
        yield Place(ledger, meddle)
    finally:
        await ledger.close()


@asynccontextmanager
async def _redis(server: RedisServer) -> AsyncIterator[Place]:
    ledger = RedisLedger(server.url, 5, 4)

    async def meddle(name: bytes, stored: bytes | None) -> None:
        key = "{gw:0}:body:" + name.hex()
        if stored is None:
            server.says("DEL", key)
        else:
            server.says("SET", key, stored.decode())

    try:
        yield Place(ledger, meddle)
    finally:
        await ledger.close()


@pytest.fixture(params=["memory", "sqlite", "redis"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Test], None]:
    def on_each(test: Test) -> None:
        async def body() -> None:
            if request.param == "memory":
                place = _memory()
            elif request.param == "sqlite":
                place = _sqlite(tmp_path / "ledger.db")
            else:
                place = _redis(request.getfixturevalue("shared"))
            async with place as opened:
                await test(opened)

        asyncio.run(body())

    return on_each


Run = Callable[[Test], None]


async def _all(ledger: Ledger, **options: object) -> list[str]:
    return [each.id async for each in ledger.read(**options)]  # type: ignore[arg-type]


def test_what_was_appended_is_found_and_rebuilt_bit_for_bit(run: Run) -> None:
    async def test(place: Place) -> None:
        for count in (3, 40, 123):
            written = composed(count, mark=str(count))
            await place.ledger.append(written.entry)

            (found,) = await place.ledger.find(written.record.id)
            manifest = found.request  # type: ignore[union-attr]
            nodes = await place.ledger.bodies(manifest.nodes)
            items = codec.leaves(manifest, nodes.__getitem__)
            bodies = dict(nodes) | dict(await place.ledger.bodies((*codec.roots(manifest), *items)))

            assert written.record == found
            assert written.body == codec.joined(manifest, bodies.__getitem__)
            assert {digest(POLICY): POLICY} == await place.ledger.bodies([digest(POLICY)])

    run(test)


def test_records_of_a_snapshot_come_in_order_and_others_do_not(run: Run) -> None:
    async def test(place: Place) -> None:
        first, second = composed(), composed()
        end = finished(first.record.id)
        for entry in (first.entry, second.entry, end):
            await place.ledger.append(entry)

        assert (first.record, *end.records) == await place.ledger.find(first.record.id)
        assert await place.ledger.find("no such snapshot") == ()

    run(test)


def test_a_record_without_a_snapshot_is_found_by_its_own_id(run: Run) -> None:
    async def test(place: Place) -> None:
        refused = finished("")
        await place.ledger.append(refused)

        assert refused.records == await place.ledger.find(refused.records[0].id)

    run(test)


def test_reading_goes_forth_and_back_over_many_pages(run: Run) -> None:
    async def test(place: Place) -> None:
        ids = [f"{at:032x}" for at in range(600)]
        records = [ConfigChanged(id=each, at=START, snapshot_id="s", digest="d", source="f") for each in ids]
        for at in range(0, 600, 100):
            await place.ledger.append(Entry(records=tuple(records[at : at + 100])))

        assert ids == await _all(place.ledger)
        assert ids[::-1] == await _all(place.ledger, newest_first=True)

    run(test)


def test_following_goes_on_where_it_stopped(run: Run) -> None:
    async def test(place: Place) -> None:
        entries = [finished(f"s{at}", at=-at) for at in range(600)]
        for entry in entries[:590]:
            await place.ledger.append(entry)

        seen = [each async for each in place.ledger.follow()]
        assert [entry.records[0] for entry in entries[:590]] == [record for _, record in seen]
        assert [each async for each in place.ledger.follow(seen[-1][0])] == []

        for entry in entries[590:]:
            await place.ledger.append(entry)
        ids = [record.id async for _, record in place.ledger.follow(seen[300][0])]
        assert [entry.records[0].id for entry in entries[301:]] == ids

    run(test)


def test_since_takes_the_moment_itself_and_all_after(run: Run) -> None:
    async def test(place: Place) -> None:
        written = [composed(at=at) for at in range(4)]
        for each in written:
            await place.ledger.append(each.entry)

        since = START + timedelta(seconds=2)
        assert [each.record.id for each in written[2:]] == await _all(place.ledger, since=since)
        assert [written[3].record.id, written[2].record.id] == await _all(place.ledger, since=since, newest_first=True)

    run(test)


def test_the_same_record_counts_once(run: Run) -> None:
    async def test(place: Place) -> None:
        written = composed()
        await asyncio.gather(*(place.ledger.append(written.entry) for _ in range(5)))
        await place.ledger.append(written.entry)

        assert [written.record.id] == await _all(place.ledger)

    run(test)


def test_two_hundred_at_once_are_all_there(run: Run) -> None:
    async def test(place: Place) -> None:
        written = [composed(35, mark=str(at % 7)) for at in range(200)]
        await asyncio.gather(*(place.ledger.append(each.entry) for each in written))

        assert {each.record.id for each in written} == set(await _all(place.ledger))
        for each in written[:7]:
            await place.ledger.bodies(each.entry.bodies)

    run(test)


def test_bodies_that_went_missing_are_given_again(run: Run) -> None:
    """The process believes them stored; the store is asked each time."""

    async def test(place: Place) -> None:
        first, second = composed(40), composed(40)
        await place.ledger.append(first.entry)
        lost = (first.record.request.nodes[0], first.record.request.items[0], first.record.policy)
        for each in lost:
            await place.meddle(each, None)

        await place.ledger.append(second.entry)

        await place.ledger.bodies(second.entry.bodies)
        assert len(await _all(place.ledger)) == 2

    run(test)


def test_an_entry_that_lacks_a_body_is_not_written_at_all(run: Run) -> None:
    async def test(place: Place) -> None:
        written, other = composed(mark="lacking"), composed()
        lost = written.record.request.items[1]
        bodies = {name: body for name, body in written.entry.bodies.items() if name != lost}

        results = await asyncio.gather(
            place.ledger.append(replace(written.entry, bodies=bodies)), place.ledger.append(other.entry), return_exceptions=True
        )

        assert isinstance(results[0], SnapshotUnavailable)
        assert lost.hex() in results[0].message
        assert results[1] is None, "its neighbour is written"
        assert [other.record.id] == await _all(place.ledger)
        with pytest.raises(LedgerError):
            await place.ledger.bodies([written.record.request.items[0]])

    run(test)


def test_a_new_node_brings_its_items(run: Run) -> None:
    """The items were stored one by one in earlier turns; one has gone since."""

    async def test(place: Place) -> None:
        await place.ledger.append(composed(31).entry)
        await place.meddle(composed(31).record.request.items[5], None)

        await place.ledger.append(composed(32).entry)

        await place.ledger.bodies(composed(32).entry.bodies)

    run(test)


def test_a_body_that_does_not_match_its_digest_is_told(run: Run) -> None:
    async def test(place: Place) -> None:
        written = composed()
        await place.ledger.append(written.entry)
        bad = written.record.request.items[0]
        await place.meddle(bad, b"pother")

        with pytest.raises(LedgerError, match=f"{bad.hex()} does not match"):
            await place.ledger.bodies(written.entry.bodies)
        with pytest.raises(LedgerError, match=f"{bytes(32).hex()} is not in the ledger"):
            await place.ledger.bodies([bytes(32)])

    run(test)


def test_a_large_body_comes_back(run: Run) -> None:
    async def test(place: Place) -> None:
        reply = b"0123456789abcdef" * 100_000
        await place.ledger.append(finished("s", reply=reply))

        assert {digest(reply): reply} == await place.ledger.bodies([digest(reply)])

    run(test)


def test_ready_says_nothing_and_writes_no_record(run: Run) -> None:
    async def test(place: Place) -> None:
        await place.ledger.ready()

        assert await _all(place.ledger) == []

    run(test)
