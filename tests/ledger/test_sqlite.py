import asyncio
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.errors import ConfigurationError, SnapshotUnavailable
from gateway.ledger.sqlite import SQLiteLedger
from tests.ledger.values import composed
from tests.ledger.writing import acknowledged


def test_a_locked_file_fails_within_the_limit_and_writes_nothing_later(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"

    async def test() -> None:
        ledger = SQLiteLedger.open(str(path), 0.5)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(SnapshotUnavailable, match=r"0\.5 s|locked"):
            await ledger.append(composed(name="late").entry)
        assert time.monotonic() - began < 0.8
        other.execute("ROLLBACK")
        other.close()
        written = composed()
        await ledger.append(written.entry)

        assert [each.id async for each in ledger.read()] == [written.record.id]
        await ledger.close()

    asyncio.run(test())


def test_two_ledgers_share_a_file(tmp_path: Path) -> None:
    async def test() -> None:
        ledgers = [SQLiteLedger.open(str(tmp_path / "ledger.db"), 5) for _ in range(2)]
        entries = [composed().entry for _ in range(100)]
        await asyncio.gather(*(ledgers[at % 2].append(entry) for at, entry in enumerate(entries)))

        assert {each.id async for each in ledgers[0].read()} == {each.records[0].id for each in entries}
        for each in ledgers:
            await each.close()

    asyncio.run(test())


_FULL = """
import asyncio, resource, signal, sys
from gateway.errors import SnapshotUnavailable
from gateway.ledger.sqlite import SQLiteLedger
from tests.ledger.values import composed, finished
import os

async def main():
    ledger = SQLiteLedger.open(sys.argv[1], 2)
    await ledger.append(composed().entry)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    try:
        await ledger.append(finished("big", reply=os.urandom(1_000_000)))
    except SnapshotUnavailable as error:
        print(error.message)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await ledger.append(composed().entry)
    print(len([each async for each in ledger.read()]))
    await ledger.close()

asyncio.run(main())
"""


def test_a_full_disk_fails_the_append_and_room_heals_it(tmp_path: Path) -> None:
    """A limit on file sizes stands for the full disk."""
    done = subprocess.run([sys.executable, "-c", _FULL, str(tmp_path / "l.db")], capture_output=True, text=True, timeout=30)

    message, count = done.stdout.splitlines()
    assert "cannot be written" in message
    assert count == "2"


def test_a_deleted_file_takes_nothing_and_begins_anew(tmp_path: Path) -> None:
    """An append to an open file that nobody can find again would be acknowledged and lost."""

    def delete() -> None:
        for each in tmp_path.glob("ledger.db*"):
            each.unlink()

    async def test() -> None:
        ledger = SQLiteLedger.open(str(tmp_path / "ledger.db"), 2)
        await ledger.append(composed(name="before").entry)
        delete()
        with pytest.raises(SnapshotUnavailable, match="deleted"):
            await ledger.append(composed(name="lost").entry)
        after = composed(name="after")
        await ledger.append(after.entry)
        await ledger.close()
        again = SQLiteLedger.open(str(tmp_path / "ledger.db"), 2)

        assert [each.id async for each in again.read()] == [after.record.id]
        await again.close()

    asyncio.run(test())


def test_a_closed_ledger_takes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        ledger = SQLiteLedger.open(str(tmp_path / "ledger.db"), 2)
        await ledger.close()
        with pytest.raises(SnapshotUnavailable, match="closed"):
            await ledger.append(composed().entry)

    asyncio.run(test())


@pytest.mark.parametrize("fsynced", [False, True])
def test_what_was_acknowledged_survives_kill_nine(tmp_path: Path, fsynced: bool) -> None:
    path = str(tmp_path / "ledger.db")

    told = acknowledged(f"sqlite:{path}:{int(fsynced)}")

    async def test() -> set[str]:
        ledger = SQLiteLedger.open(path, 5)
        found = {each.id async for each in ledger.read()}
        await ledger.close()
        return found

    assert told
    assert set(told) <= asyncio.run(test())


def test_a_place_that_cannot_be_is_told_at_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no-folder"):
        SQLiteLedger.open(str(tmp_path / "no-folder" / "ledger.db"), 1)


def test_a_file_that_is_no_database_is_told_at_start(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"not a database, but long enough to look like one" * 100)

    with pytest.raises(ConfigurationError, match="not a database"):
        SQLiteLedger.open(str(tmp_path / "ledger.db"), 1)
