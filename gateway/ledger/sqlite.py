"""The ledger in one SQLite file: the embedded default.

One thread writes: it drains what is queued into one transaction (WAL), so concurrent appends share a commit. Another
reads. Several processes may share the file. What a body's digest promises is checked inside the transaction, never
assumed. Knows nothing of what the records mean.
"""

import asyncio
import contextlib
import os
import queue
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from gateway.errors import ConfigurationError, LedgerError, SnapshotUnavailable
from gateway.ledger import codec
from gateway.ledger.records import Entry, Record

T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, snapshot TEXT NOT NULL, type TEXT NOT NULL,
    at_us INTEGER NOT NULL, record BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS records_snapshot ON records (snapshot, seq);
CREATE TABLE IF NOT EXISTS bodies (digest BLOB PRIMARY KEY, body BLOB NOT NULL);
"""
_BATCH = 64  # entries a transaction: enough to share a sync, short enough to let other processes in
_PAGE = 256  # records or bodies a query: keeps reading in bounded memory
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True, kw_only=True)
class _Job:
    entry: Entry
    lines: tuple[tuple[str, str, str, int, bytes], ...]
    deadline: float  # time.monotonic
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None] = field(repr=False)


class SQLiteLedger:
    """See `gateway.ledger.base.Ledger`. Made by `open`; usable from one event loop at a time."""

    def __init__(self, path: str, timeout_s: float, *, fsynced: bool) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._fsynced = fsynced
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._reading = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger-read")
        self._reader: sqlite3.Connection | None = None
        self._closed = False

    @classmethod
    def open(cls, path: str, timeout_s: float, fsynced: bool = False) -> "SQLiteLedger":
        """Return the ledger in this file, made when it is not there. Raises ConfigurationError when it cannot be used.

        `fsynced`: an append is on the disk before it is acknowledged (synchronous=FULL); otherwise it survives the
        death of the process but the last ones may be lost with the machine.
        """
        ledger = cls(path, timeout_s, fsynced=fsynced)
        try:
            with contextlib.closing(ledger._connect()) as connection:
                connection.executescript(_SCHEMA)
        except sqlite3.Error as error:
            raise ConfigurationError(f"the ledger file {path} cannot be used: {error}") from error
        return ledger

    async def append(self, entry: Entry) -> None:
        if self._closed:
            raise SnapshotUnavailable("the ledger is closed")
        lines = tuple((each.id, codec.group(each), each.TYPE, _micros(each.at), codec.dumps(each)) for each in entry.records)
        loop = asyncio.get_running_loop()
        deadline = time.monotonic() + self._timeout_s
        job = _Job(entry=entry, lines=lines, deadline=deadline, loop=loop, done=loop.create_future())
        if self._writer is None:
            self._writer = threading.Thread(target=self._write, name="ledger-write", daemon=True)
            self._writer.start()
        self._jobs.put(job)
        timer = loop.call_later(self._timeout_s, _fail, job.done, f"the ledger file took no append within {self._timeout_s:g} s")
        try:
            await job.done
        finally:
            timer.cancel()

    async def read(self, *, since: datetime | None = None, newest_first: bool = False) -> AsyncIterator[Record]:
        after: int | None = None
        from_us = -(2**62) if since is None else _micros(since)
        step, order = ("<", "DESC") if newest_first else (">", "ASC")
        while True:
            query = (
                f"SELECT seq, record FROM records WHERE at_us >= ? AND (? IS NULL OR seq {step} ?) "  # noqa: S608 - constants
                f"ORDER BY seq {order} LIMIT {_PAGE}"
            )
            rows = await self._query(query, (from_us, after, after))
            for _, record in rows:
                yield codec.loads(record)
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    async def follow(self, cursor: str = "") -> AsyncIterator[tuple[str, Record]]:
        # Numbers are given inside the one write transaction: a number is never seen before a smaller one.
        rows: list[Any] = [(int(cursor or 0), b"")]
        query = f"SELECT seq, record FROM records WHERE seq > ? ORDER BY seq LIMIT {_PAGE}"  # noqa: S608 - a constant
        while rows:
            rows = await self._query(query, (rows[-1][0],))
            for number, record in rows:
                yield str(number), codec.loads(record)

    async def find(self, snapshot_id: str) -> tuple[Record, ...]:
        rows = await self._query("SELECT record FROM records WHERE snapshot = ? ORDER BY seq", (snapshot_id,))
        return tuple(codec.loads(record) for (record,) in rows)

    async def bodies(self, digests: Iterable[bytes]) -> Mapping[bytes, bytes]:
        wanted = list(dict.fromkeys(digests))
        found: dict[bytes, bytes] = {}
        for at in range(0, len(wanted), _PAGE):
            page = wanted[at : at + _PAGE]
            rows = await self._query(f"SELECT digest, body FROM bodies WHERE digest IN ({_marks(page)})", page)  # noqa: S608 - marks
            stored = dict(rows)
            found.update({each: codec.verified(each, stored.get(each)) for each in page})
        return found

    async def ready(self) -> None:
        """An entry of nothing: takes the write lock and commits, as an append would."""
        await self.append(Entry(records=()))

    async def close(self) -> None:
        self._closed = True
        self._jobs.put(None)
        if self._writer is not None:
            await asyncio.to_thread(self._writer.join, self._timeout_s)
        if self._reader is not None:
            await asyncio.to_thread(self._reading.submit(self._reader.close).result, self._timeout_s)
        self._reading.shutdown(wait=False)

    def _connect(self) -> sqlite3.Connection:
        # Busy waiting is SQLite's own, bounded like everything else. Autocommit: transactions are begun by hand.
        connection = sqlite3.connect(self._path, timeout=self._timeout_s, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._fsynced else 'NORMAL'}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    async def _query(self, query: str, values: Sequence[object]) -> list[Any]:
        def run() -> list[Any]:
            if self._reader is None:
                self._reader = self._connect()
            return self._reader.execute(query, values).fetchall()

        return await self._bounded(run)

    async def _bounded(self, run: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.get_running_loop().run_in_executor(self._reading, run)
        except TimeoutError as error:
            raise SnapshotUnavailable(f"the ledger file did not answer within {self._timeout_s:g} s") from error
        except sqlite3.Error as error:
            raise SnapshotUnavailable(f"the ledger file cannot be read: {error}") from error

    def _write(self) -> None:
        """The writer thread: what is queued goes into one transaction; a broken connection is opened anew."""
        connection: sqlite3.Connection | None = None
        opened = 0
        open_ = True
        while open_:
            batch, open_ = self._drain()
            outcomes: list[tuple[_Job, str | None]]
            try:
                if connection is None:
                    connection = self._connect()
                    connection.executescript(_SCHEMA)  # a file that was deleted meanwhile begins anew
                    opened = os.stat(self._path).st_ino
                elif not self._in_place(opened):
                    raise sqlite3.OperationalError("it was deleted or replaced while it was open")
                outcomes = _commit(connection, batch)
            except sqlite3.Error as error:
                outcomes = [(job, f"the ledger file cannot be written: {error}") for job in batch]
                if connection is not None:
                    connection.close()
                    connection = None
            if outcomes:
                # Every job of one ledger is of one loop; a loop that has gone has nobody left to tell.
                with contextlib.suppress(RuntimeError):
                    outcomes[0][0].loop.call_soon_threadsafe(_settle, outcomes)
        if connection is not None:
            connection.close()

    def _in_place(self, opened: int) -> bool:
        """Whether the path still names the file that is open: what is written to a deleted one is lost without an error."""
        try:
            return os.stat(self._path).st_ino == opened
        except OSError:
            return False

    def _drain(self) -> tuple[list[_Job], bool]:
        """Return the next batch, at least one long unless the end was reached, and whether more may come."""
        batch: list[_Job] = []
        while len(batch) < _BATCH:
            try:
                job = self._jobs.get(block=not batch)
            except queue.Empty:
                break
            if job is None:
                return batch, False
            batch.append(job)
        return batch, True


def _commit(connection: sqlite3.Connection, batch: list[_Job]) -> list[tuple[_Job, str | None]]:
    """Return each job with the reason it failed, None when it is committed. An sqlite3.Error means that none is."""
    outcomes: list[tuple[_Job, str | None]] = []
    connection.execute("BEGIN IMMEDIATE")
    try:
        for job in batch:
            # Waiting for the lock may have outlasted the caller, who was told that nothing was written.
            late = time.monotonic() >= job.deadline
            outcomes.append((job, "timed out" if late else _insert(connection, job)))
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # a full disk has rolled back by itself
            connection.execute("ROLLBACK")
        raise
    return outcomes


def _insert(connection: sqlite3.Connection, job: _Job) -> str | None:
    """Write one entry within the transaction; return why it cannot be, having written nothing then."""
    entry = job.entry
    new = _absent(connection, entry.roots if entry.nodes else (*entry.roots, *entry.bodies))
    try:
        below = [child for node in entry.nodes if node in new & entry.bodies.keys() for child in codec.children(entry.bodies[node])]
    except LedgerError as error:
        return error.message
    if below:
        new |= _absent(connection, below)
    lost = next((each for each in new if each not in entry.bodies), None)
    if lost is not None:
        return f"body {lost.hex()} is named by the entry and neither given nor stored"
    rows = [(each, codec.compress(entry.bodies[each])) for each in new]
    connection.executemany("INSERT OR IGNORE INTO bodies (digest, body) VALUES (?, ?)", rows)
    connection.executemany(
        "INSERT INTO records (id, snapshot, type, at_us, record) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING", job.lines
    )
    return None


def _absent(connection: sqlite3.Connection, digests: Sequence[bytes]) -> set[bytes]:
    absent = set(digests)
    for at in range(0, len(digests), _PAGE):
        page = digests[at : at + _PAGE]
        absent.difference_update(
            found
            for (found,) in connection.execute(f"SELECT digest FROM bodies WHERE digest IN ({_marks(page)})", page)  # noqa: S608 - marks
        )
    return absent


def _settle(outcomes: list[tuple[_Job, str | None]]) -> None:
    for job, reason in outcomes:
        if reason is not None:
            _fail(job.done, reason)
        elif not job.done.done():
            job.done.set_result(None)


def _fail(done: asyncio.Future[None], reason: str) -> None:
    if not done.done():
        done.set_exception(SnapshotUnavailable(reason))


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))


def _micros(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)
