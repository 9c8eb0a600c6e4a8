"""The port: what the pipeline, the commands and the dashboard may ask of a ledger."""

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from typing import Protocol

from gateway.ledger.records import Entry, Record


class Ledger(Protocol):
    """An append-only log with content-addressed bodies. Every call is bounded by the ledger's `timeout_s`."""

    async def append(self, entry: Entry) -> None:
        """Return when the entry and all its bodies are acknowledged; SnapshotUnavailable otherwise, and then nothing counts.

        Appending the same record id twice writes it once. Concurrent appends share a round trip or a transaction.
        """
        ...

    def read(self, *, since: datetime | None = None, newest_first: bool = False) -> AsyncIterator[Record]:
        """Yield the records in the order they were appended (or the reverse), lazily, in bounded memory."""
        ...

    def follow(self, cursor: str = "") -> AsyncIterator[tuple[str, Record]]:
        """Yield each record appended behind the cursor, in that order and lazily, with the cursor that stands behind it.

        "" is the beginning. A cursor is the adapter's own text and stays good after restarts and in other processes; what
        is appended later, by whichever gateway, stands behind every cursor given before.
        """
        ...

    async def find(self, snapshot_id: str) -> tuple[Record, ...]:
        """Return the records of one snapshot in order; empty when there is none."""
        ...

    async def bodies(self, digests: Iterable[bytes]) -> Mapping[bytes, bytes]:
        """Return the bodies asked for; LedgerError naming the first digest that is not there or does not match its digest."""
        ...

    async def ready(self) -> None:
        """Return when the store would take an append now; SnapshotUnavailable with the reason (no secrets) otherwise."""
        ...

    async def close(self) -> None:
        """Finish what is queued, bounded by `timeout_s`, and let go."""
        ...
