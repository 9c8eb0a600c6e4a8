from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.harness import redis_server


@pytest.fixture(params=["sqlite", "redis"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Each store in turn: a file of its own, and a Redis of its own."""
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'ledger.db'}"
        return
    with redis_server(tmp_path) as port:
        yield f"redis://127.0.0.1:{port}/0"
