import asyncio
from pathlib import Path

import pytest

from tests.commands.ground import GOOD, store
from tests.context.talks import policy, system, user
from tests.ledger.values import finished
from tests.test_replay import CLOCK, Kept, kept, turns


@pytest.fixture
def calls() -> list[Kept]:
    return [kept([system(), user("first")], at=0), kept([CLOCK, user("second")], at=1), kept(turns(40), policy(1_500), at=2)]


@pytest.fixture
def ledger(tmp_path: Path, calls: list[Kept]) -> str:
    ends = (finished(each.record.id, at=n) for n, each in enumerate(calls))
    entries = [entry for each, end in zip(calls, ends, strict=True) for entry in (each.entry, end)]
    asyncio.run(store(tmp_path / "l.db", entries))
    return f"sqlite:{tmp_path / 'l.db'}"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.yaml"
    path.write_text(GOOD.replace("LEDGER", str(tmp_path / "l.db")))
    return path
