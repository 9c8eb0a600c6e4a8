"""Budgets counted in a file of SQLite, by the processes of one machine: each operation is one IMMEDIATE transaction.

The file stands beside the ledger's and is not the same: the ledger commits long batches, and a call would wait for them.
"""

import asyncio
import concurrent.futures
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import orjson

from gateway.errors import LimitsUnavailable
from gateway.limits import books
from gateway.limits.base import Amounts, Budget, Granted, Hold, Refusal, Standing, Tally, Unit

T = TypeVar("T")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS tallies (budget TEXT PRIMARY KEY, tally BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS holds (
    budget TEXT NOT NULL, id TEXT NOT NULL, number INTEGER NOT NULL, usd INTEGER NOT NULL, tokens INTEGER NOT NULL,
    second INTEGER NOT NULL, until REAL NOT NULL, lapsed INTEGER NOT NULL, PRIMARY KEY (budget, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS holds_until ON holds (budget, lapsed, until);
"""


class SQLShelf:
    """See `books.Shelf`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def tally(self, budget: str) -> Tally | None:
        row = self._connection.execute("SELECT tally FROM tallies WHERE budget = ?", (budget,)).fetchone()
        return None if row is None else _tally(row[0])

    def put_tally(self, budget: str, tally: Tally) -> None:
        self._connection.execute("INSERT OR REPLACE INTO tallies VALUES (?, ?)", (budget, _json(tally)))

    def hold(self, budget: str, hold: str) -> tuple[Hold, bool] | None:
        query = "SELECT number, usd, tokens, second, lapsed FROM holds WHERE budget = ? AND id = ?"
        row = self._connection.execute(query, (budget, hold)).fetchone()
        return None if row is None else (_hold(row[:4]), bool(row[4]))

    def put_hold(self, budget: str, hold: str, value: Hold, until: float) -> None:
        row = (budget, hold, value.number, value.amounts.usd, value.amounts.tokens, value.second, until)
        self._connection.execute("INSERT OR REPLACE INTO holds VALUES (?, ?, ?, ?, ?, ?, ?, 0)", row)

    def drop_hold(self, budget: str, hold: str) -> None:
        self._connection.execute("DELETE FROM holds WHERE budget = ? AND id = ?", (budget, hold))

    def lapse(self, budget: str, now: float, forget: float) -> Iterable[Hold]:
        query = "SELECT number, usd, tokens, second FROM holds WHERE budget = ? AND lapsed = 0 AND until <= ?"
        gone = [_hold(row) for row in self._connection.execute(query, (budget, now))]
        self._connection.execute("DELETE FROM holds WHERE budget = ? AND lapsed = 1 AND until < ?", (budget, forget))
        if gone:
            update = "UPDATE holds SET lapsed = 1, until = ? WHERE budget = ? AND lapsed = 0 AND until <= ?"
            self._connection.execute(update, (now, budget, now))
        return gone


class SQLiteLimits:
    """See `base.Limits`. One thread does the work; other processes are waited for, at most `timeout_s`."""

    def __init__(self, path: str, timeout_s: float, lease_s: float, *, clock: Callable[[], float] = time.time) -> None:
        self._path, self._timeout_s, self._lease_s, self._clock = path, timeout_s, lease_s, clock
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "limits")

    async def reserve(self, budgets: Sequence[Budget], hold: str, number: int, amounts: Amounts) -> Granted | Refusal:
        return await self._do(
            lambda shelf: books.reserve(shelf, budgets, hold, number, amounts, now=self._clock(), lease_s=self._lease_s)
        )

    async def settle(self, budgets: Sequence[Budget], hold: str, spent: Amounts) -> tuple[Standing, ...]:
        return await self._do(lambda shelf: books.settle(shelf, budgets, hold, spent, now=self._clock()))

    async def renew(self, budgets: Sequence[Budget], holds: Sequence[str]) -> None:
        await self._do(lambda shelf: books.renew(shelf, budgets, holds, now=self._clock(), lease_s=self._lease_s))

    async def standings(self, budgets: Sequence[Budget]) -> tuple[Standing, ...]:
        return await self._do(lambda shelf: books.standings(shelf, budgets, now=self._clock()))

    async def close(self) -> None:
        def close() -> None:
            if self._connection is not None:
                self._connection.close()

        self._closed = True
        self._thread.submit(close)
        self._thread.shutdown(wait=False)

    async def _do(self, work: Callable[[books.Shelf], T]) -> T:
        """Return what the work returns, committed. One that waited too long is not begun: its caller was told so."""
        if self._closed:
            raise LimitsUnavailable("the file of budgets is closed")
        deadline = time.monotonic() + self._timeout_s
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._transaction, work, deadline)
        except TimeoutError:
            raise LimitsUnavailable(f"the file of budgets did not answer within {self._timeout_s:g} s") from None
        except sqlite3.Error as error:
            raise LimitsUnavailable(f"the file of budgets cannot be used: {error}") from error

    def _transaction(self, work: Callable[[books.Shelf], T], deadline: float) -> T:
        connection = self._connection
        try:
            if connection is None:
                connection = self._connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            if time.monotonic() >= deadline:
                raise sqlite3.OperationalError("other processes held it for too long")
            made = work(SQLShelf(connection))
            connection.execute("COMMIT")
            return made
        except BaseException:
            if connection is not None:  # opened anew the next time: whatever was half done goes with it
                connection.close()
                self._connection = None
            raise

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=self._timeout_s, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")  # a power cut may take the last counts, a killed process none
            connection.executescript(_SCHEMA)
        except sqlite3.Error:
            connection.close()
            raise
        return connection


def _hold(row: Sequence[int]) -> Hold:
    return Hold(number=row[0], amounts=Amounts(usd=row[1], tokens=row[2]), second=row[3])


def _json(tally: Tally) -> bytes:
    minute = {unit.value: sorted(seconds.items()) for unit, seconds in tally.minute.items()}
    reserved = (tally.reserved.usd, tally.reserved.tokens, tally.calls)
    return orjson.dumps({"now": tally.now, "used": tally.used, "minute": minute, "reserved": reserved})


def _tally(body: bytes) -> Tally:
    found = orjson.loads(body)
    usd, tokens, calls = found["reserved"]
    return Tally(
        now=found["now"],
        used={name: (begin, count) for name, (begin, count) in found["used"].items()},
        minute={Unit(unit): dict(seconds) for unit, seconds in found["minute"].items()},
        reserved=Amounts(usd=usd, tokens=tokens),
        calls=calls,
    )
