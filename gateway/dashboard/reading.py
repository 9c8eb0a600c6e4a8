"""Keeps the fold at hand: reads the ledger on from where it stopped, a little at a time, while calls go on.

Every process that shows the dashboard folds the same ledger for itself: whichever answers shows what all of them wrote.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from gateway.api.admin import released
from gateway.dashboard.metrics import Totals
from gateway.errors import LedgerError
from gateway.ledger.base import Ledger
from gateway.ledger.records import Record

FRESH_S = 1.0  # the ledger is read on at most this often, however many look at the page
PATIENCE_S = 0.15  # how long a page waits for the fold to catch up before it shows what there is, and says so
BREATHE_EVERY = 100  # records after which other requests get their turn: some 5 ms


class Reader:
    """The fold of one process. `problem` says why the ledger could not be read when it was last tried."""

    def __init__(self, ledger: Ledger, *, clock: Callable[[], float] = time.monotonic, patience_s: float = PATIENCE_S) -> None:
        self.totals = Totals()
        self.problem: str | None = None
        self._ledger = ledger
        self._clock = clock
        self._patience_s = patience_s
        self._cursor = ""
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    @property
    def is_behind(self) -> bool:
        """Whether records are still being read: the figures are of those up to `totals.newest`."""
        return self._reading is not None

    async def catch_up(self) -> Totals:
        """Return the fold, with all that the ledger holds if that takes no longer than the patience. Never raises LedgerError."""
        if self._reading is None and self._clock() - self._read_at >= FRESH_S:
            self._reading = asyncio.get_running_loop().create_task(self._read())
        if self._reading is not None:
            await asyncio.wait((self._reading,), timeout=self._patience_s)
        return self.totals

    async def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading

    async def _read(self) -> None:
        try:
            async with released(self._ledger.follow(self._cursor)) as following:
                await self._fold(following)
            self.problem = None
        except LedgerError as error:
            self.problem = error.message
        finally:
            self._read_at = self._clock()
            self._reading = None

    async def _fold(self, following: AsyncIterator[tuple[str, Record]]) -> None:
        count = 0
        async for cursor, record in following:
            self.totals.fold((record,))
            self._cursor = cursor
            count += 1
            if count % BREATHE_EVERY == 0:
                await asyncio.sleep(0)
