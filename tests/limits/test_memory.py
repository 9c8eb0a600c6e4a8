import asyncio

import pytest

from gateway.errors import LimitsUnavailable
from gateway.limits.base import NOTHING, Budget, Limit, Per, Unit
from gateway.limits.memory import MemoryLimits

BUDGET = Budget(route="m", limits=(Limit(unit=Unit.REQUESTS, per=Per.MINUTE, amount=1),))


def test_it_can_be_away_as_a_store_can() -> None:
    store = MemoryLimits(unavailable="away")

    with pytest.raises(LimitsUnavailable, match="away"):
        asyncio.run(store.reserve([BUDGET], "a", 1, NOTHING))
    store.unavailable = None
    assert asyncio.run(store.standings([BUDGET]))[0].used == 0
