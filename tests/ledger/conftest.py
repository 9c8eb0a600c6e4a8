from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ledger.server import RedisServer


@pytest.fixture(scope="session")
def _shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def shared(_shared_server: RedisServer) -> RedisServer:
    """A server for tests that leave it running, emptied."""
    _shared_server.says("FLUSHALL")
    return _shared_server


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of the test's own, not started."""
    server = RedisServer(tmp_path)
    yield server
    server.stop()
