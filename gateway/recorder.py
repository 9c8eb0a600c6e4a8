"""Everything that is written to the ledger while requests run: snapshots at once, the ends of calls together, and to their end."""

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from gateway.errors import SnapshotUnavailable
from gateway.ledger import codec
from gateway.ledger.base import Ledger
from gateway.ledger.records import Entry

LOG = logging.getLogger("gateway.recorder")
LATE_S = 0.005  # how long the end of a call waits for others to share its append
LATE_ENTRIES = 128
LATE_KEPT = 10_000  # ends of calls kept in memory while the ledger is away; beyond that the oldest are lost, and the log says so
LATE_AGAIN_S = 0.5


class LedgerMeter(Protocol):
    """Where the cost of appends goes."""

    def ledger_appended(self, seconds: float, *, failed: bool) -> None: ...


class Recorder:
    """Writes for all requests of one process."""

    def __init__(self, ledger: Ledger, meter: LedgerMeter) -> None:
        self._ledger, self._meter = ledger, meter
        self._tasks: set[asyncio.Task[None]] = set()
        self._late: list[Entry] = []
        self._writing = False

    async def append(self, entry: Entry) -> None:
        """Append what must stand before a call leaves. Raises SnapshotUnavailable: it does not stand."""
        began = time.perf_counter()
        try:
            await self._ledger.append(entry)
        except SnapshotUnavailable:
            self._meter.ledger_appended(time.perf_counter() - began, failed=True)
            raise
        self._meter.ledger_appended(time.perf_counter() - began, failed=False)

    def append_late(self, entry: Entry) -> None:
        """Append what has already happened: ends of calls share one append, since nobody waits for them."""
        self._late.append(entry)
        if not self._writing:
            self._writing = True
            self.spawn(self._write_late())

    async def _write_late(self) -> None:
        """Append until none is left. While the ledger refuses they are kept, the newest so many, and tried again."""
        try:
            while self._late:
                await asyncio.sleep(LATE_S)
                batch = self._late[:LATE_ENTRIES]
                try:
                    await self.append(joined(batch))
                except SnapshotUnavailable as error:
                    LOG.warning("%d ends of calls wait for the ledger: %s", len(self._late), error.message)
                    del self._late[: max(0, len(self._late) - LATE_KEPT)]
                    await asyncio.sleep(LATE_AGAIN_S)
                    continue
                except Exception:  # a fault of ours: these would fail each time, and must not hold up those behind them
                    LOG.exception("%d ends of calls cannot be recorded", len(batch))
                del self._late[: len(batch)]
        finally:
            self._writing = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work to its end even when the request's own task is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self, timeout_s: float) -> None:
        """Wait for every record that is still being written, at most so long, and for those that follow from them."""
        end = time.monotonic() + timeout_s
        while self._tasks and (left_s := end - time.monotonic()) > 0:
            await asyncio.wait(set(self._tasks), timeout=left_s)
        if self._late:
            LOG.error("%d ends of calls could not be recorded in %s s", len(self._late), timeout_s)


def joined(entries: list[Entry]) -> Entry:
    """Return one entry for all: their records in order, and every body that they need."""
    bodies: dict[bytes, bytes] = {}
    for each in entries:
        bodies.update(each.bodies)
    return codec.entry(tuple(record for each in entries for record in each.records), bodies)
