"""The ledger in memory: the double that the tests of everything else, and `gateway explain`, run on."""

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime

from gateway.errors import SnapshotUnavailable
from gateway.ledger import codec
from gateway.ledger.records import Entry, Record


class MemoryLedger:
    """Keeps everything in this process. `unavailable` set to a reason makes every append fail with it, as a store would.

    Bodies are kept as stores keep them, so what a test reads back has been through the same encoding.
    """

    def __init__(self, *, unavailable: str | None = None) -> None:
        self.unavailable = unavailable
        self.stored: dict[bytes, bytes] = {}
        self.records: list[Record] = []
        self._ids: set[str] = set()

    async def append(self, entry: Entry) -> None:
        await self.ready()
        lost = next((each for each in entry.roots if each not in entry.bodies and each not in self.stored), None)
        if lost is not None:
            raise SnapshotUnavailable(f"body {lost.hex()} is named by the entry and neither given nor stored")
        for name, body in entry.bodies.items():
            if name not in self.stored:
                self.stored[name] = codec.compress(body)
        for record in entry.records:
            if record.id not in self._ids:
                self._ids.add(record.id)
                self.records.append(codec.loads(codec.dumps(record)))

    async def read(self, *, since: datetime | None = None, newest_first: bool = False) -> AsyncIterator[Record]:
        for record in self.records[::-1] if newest_first else self.records[:]:
            if since is None or record.at >= since:
                yield record

    async def follow(self, cursor: str = "") -> AsyncIterator[tuple[str, Record]]:
        for at, record in enumerate(self.records[int(cursor or 0) :], int(cursor or 0) + 1):
            yield str(at), record

    async def find(self, snapshot_id: str) -> tuple[Record, ...]:
        return tuple(record for record in self.records if codec.group(record) == snapshot_id)

    async def bodies(self, digests: Iterable[bytes]) -> Mapping[bytes, bytes]:
        return {each: codec.verified(each, self.stored.get(each)) for each in digests}

    async def ready(self) -> None:
        if self.unavailable is not None:
            raise SnapshotUnavailable(self.unavailable)

    async def close(self) -> None:
        """Nothing is queued: what was appended stays readable."""
