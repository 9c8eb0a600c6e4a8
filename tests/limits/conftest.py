from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.limits.base import Limits
from gateway.limits.memory import MemoryLimits
from gateway.limits.redis import RedisLimits
from gateway.limits.sqlite import SQLiteLimits
from tests.ledger.conftest import _shared_server, own, shared
from tests.ledger.server import RedisServer

__all__ = ["_shared_server", "own", "shared"]
START = 1_767_225_600.0 - 3  # three seconds before 2026 begins: hour, day and month end together
LEASE_S = 60.0


@dataclass
class Clock:
    now: float = START

    def __call__(self) -> float:
        return self.now


Opened = Callable[[Clock], Limits]


@pytest.fixture(params=["memory", "sqlite", "redis"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Return what opens a store on a clock; opened twice, SQLite and Redis count on the same books."""
    if request.param == "memory":
        yield lambda clock: MemoryLimits(LEASE_S, clock=clock)
    elif request.param == "sqlite":
        yield lambda clock: SQLiteLimits(str(tmp_path / "limits.db"), 2, LEASE_S, clock=clock)
    else:
        server: RedisServer = request.getfixturevalue("shared")
        yield lambda clock: RedisLimits(server.url, 2, LEASE_S, clock=clock)
