"""What a Redis does to a ledger: stopped, frozen, full, emptied, locked, replaced."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import pytest

from gateway.errors import SnapshotUnavailable
from gateway.ledger.redis import RedisLedger
from tests.ledger.server import RedisServer
from tests.ledger.values import composed, finished
from tests.ledger.writing import acknowledged

LIMIT_S = 0.6


def run(test: Callable[[RedisLedger], Awaitable[None]], url: str, timeout_s: float = LIMIT_S) -> None:
    async def body() -> None:
        ledger = RedisLedger(url, timeout_s, 4)
        try:
            await test(ledger)
        finally:
            await ledger.close()

    asyncio.run(body())


async def refused(ledger: RedisLedger, count: int = 1) -> str:
    """Append to a ledger that cannot; return the message, having checked the time it took."""
    began = time.monotonic()
    results = await asyncio.gather(*(ledger.append(composed().entry) for _ in range(count)), return_exceptions=True)
    assert time.monotonic() - began < LIMIT_S + 0.3
    assert all(isinstance(each, SnapshotUnavailable) for each in results), results
    return str(results[0])


def test_a_server_that_is_not_there_fails_at_once_and_is_found_when_it_comes(own: RedisServer) -> None:
    async def test(ledger: RedisLedger) -> None:
        assert "connection" in await refused(ledger)
        with pytest.raises(SnapshotUnavailable):
            await ledger.ready()
        own.start()
        await ledger.append(composed().entry)
        await ledger.ready()

    run(test, own.url)


def test_a_server_that_restarts_is_not_noticed(own: RedisServer) -> None:
    """The connection has gone stale meanwhile: the append goes out again on a new one."""

    async def test(ledger: RedisLedger) -> None:
        await ledger.append(composed().entry)
        own.stop()
        assert "connection" in await refused(ledger)
        own.start()
        await ledger.append(composed().entry)
        own.stop()
        own.start()
        await ledger.append(composed().entry)

        assert len([each async for each in ledger.read()]) == 3

    own.start()
    run(test, own.url)


def test_a_frozen_server_fails_within_the_limit_and_is_used_when_it_returns(own: RedisServer) -> None:
    async def test(ledger: RedisLedger) -> None:
        await ledger.append(composed().entry)
        own.freeze()
        assert "0.6 s" in await refused(ledger, 20)
        assert "0.6 s" in await refused(ledger)
        began = time.monotonic()
        with pytest.raises(SnapshotUnavailable):
            await ledger.find("x")
        assert time.monotonic() - began < LIMIT_S + 0.3
        own.thaw()
        written = composed()
        await ledger.append(written.entry)

        assert await ledger.find(written.record.id) == (written.record,)

    own.start()
    run(test, own.url)


def test_full_memory_is_told_in_error_and_log_and_writes_nothing(own: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    async def test(ledger: RedisLedger) -> None:
        await ledger.append(composed().entry)
        own.says("CONFIG", "SET", "maxmemory", "1")
        with caplog.at_level(logging.WARNING, "gateway.ledger"):
            assert "OOM" in await refused(ledger, 5)
            with pytest.raises(SnapshotUnavailable, match="OOM"):
                await ledger.ready()
        assert [each.getMessage() for each in caplog.records] == ["ledger append failed: Redis answered OOM"]
        own.says("CONFIG", "SET", "maxmemory", "0")
        await ledger.append(composed().entry)

        assert len([each async for each in ledger.read()]) == 2

    own.start()
    run(test, own.url)


def test_a_replica_is_refused_and_the_next_append_connects_anew(own: RedisServer) -> None:
    async def test(ledger: RedisLedger) -> None:
        await ledger.append(composed().entry)
        own.says("REPLICAOF", "127.0.0.1", "1")
        before = own.says("INFO", "stats")
        assert "READONLY" in await refused(ledger)
        own.says("REPLICAOF", "NO", "ONE")
        await ledger.append(composed().entry)
        assert before != own.says("INFO", "stats")

    own.start()
    run(test, own.url)


@pytest.mark.parametrize(("user", "word"), [("", "NOAUTH"), (":wrong-secret@", "WRONGPASS")])
def test_a_log_in_that_fails_shows_no_secret_and_no_address(
    own: RedisServer, user: str, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(ledger: RedisLedger) -> None:
        message = await refused(ledger)
        assert word in message
        assert "secret" not in message + caplog.text
        assert str(own.port) not in message + caplog.text

    own.start("--requirepass", "right-secret")
    run(test, f"redis://{user}127.0.0.1:{own.port}")


def test_a_forgotten_script_is_loaded_again(shared: RedisServer) -> None:
    async def test(ledger: RedisLedger) -> None:
        for _ in range(2):
            shared.says("SCRIPT", "FLUSH")
            await asyncio.gather(*(ledger.append(composed().entry) for _ in range(10)))

        assert len([each async for each in ledger.read()]) == 20

    run(test, shared.url, 5)


def test_an_emptied_server_gets_every_body_again(shared: RedisServer) -> None:
    async def test(ledger: RedisLedger) -> None:
        await ledger.append(composed(70).entry)
        shared.says("FLUSHALL")
        written = composed(70)
        await ledger.append(written.entry)

        await ledger.bodies(written.entry.bodies)

    run(test, shared.url, 5)


def test_stream_entries_are_readable_by_other_programs(shared: RedisServer) -> None:
    async def test(ledger: RedisLedger) -> None:
        written = composed(name="0123")
        await ledger.append(written.entry)

    run(test, shared.url, 5)

    answer = shared.says("XRANGE", "{gw:0}:ledger", "-", "+")
    for each in (
        b"\r\nid\r\n",
        b"\r\n0123\r\n",
        b"\r\ntype\r\n",
        b"\r\nPromptComposed\r\n",
        b"\r\nrecord\r\n",
        b'"request_manifest":{',
    ):
        assert each in answer


def test_an_abandoned_append_harms_no_other(shared: RedisServer) -> None:
    async def test(ledger: RedisLedger) -> None:
        entries = [composed().entry for _ in range(20)]
        tasks = [asyncio.create_task(ledger.append(entry)) for entry in entries]
        await asyncio.sleep(0)
        tasks[3].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)

        assert [isinstance(each, asyncio.CancelledError) for each in results] == [at == 3 for at in range(20)]
        assert {each.records[0].id for at, each in enumerate(entries) if at != 3} <= {each.id async for each in ledger.read()}

    run(test, shared.url, 5)


def test_closing_waits_for_what_is_queued(shared: RedisServer) -> None:
    async def test(ledger: RedisLedger) -> None:
        tasks = [asyncio.create_task(ledger.append(finished("s"))) for _ in range(300)]
        await asyncio.sleep(0)
        await ledger.close()
        await asyncio.gather(*tasks)
        with pytest.raises(SnapshotUnavailable, match="closed"):
            await ledger.append(finished("s"))

    run(test, shared.url, 5)


def test_what_was_acknowledged_survives_kill_nine_of_the_gateway(shared: RedisServer) -> None:
    told = acknowledged(shared.url)

    async def test(ledger: RedisLedger) -> None:
        assert told
        assert set(told) <= {each.id async for each in ledger.read()}

    run(test, shared.url, 5)


def test_somebody_elses_entry_is_passed_over(own: RedisServer) -> None:
    async def test(ledger: RedisLedger) -> None:
        written = composed()
        await ledger.append(written.entry)
        assert own.says("XADD", "{gw:0}:ledger", "*", "foo", "bar").startswith(b"$")
        later = finished(written.record.id)
        await ledger.append(later)

        assert [each.id async for each in ledger.read()] == [written.record.id, later.records[0].id]

    own.start()
    run(test, own.url, 2)
