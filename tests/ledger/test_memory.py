import asyncio

import pytest

from gateway.errors import SnapshotUnavailable
from gateway.ledger.memory import MemoryLedger
from tests.ledger.values import composed


def test_an_unavailable_double_refuses_as_a_store_would_and_recovers() -> None:
    async def test() -> None:
        ledger = MemoryLedger(unavailable="Redis answered OOM")
        with pytest.raises(SnapshotUnavailable, match="OOM"):
            await ledger.append(composed().entry)
        with pytest.raises(SnapshotUnavailable, match="OOM"):
            await ledger.ready()
        assert ledger.records == []
        ledger.unavailable = None
        await ledger.append(composed().entry)

        assert len(ledger.records) == 1
        await ledger.close()

    asyncio.run(test())
