import asyncio
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.errors import LimitsUnavailable
from gateway.limits.base import Amounts, Budget, Granted, Limit, Per, Unit
from gateway.limits.sqlite import SQLiteLimits

BUDGET = Budget(route="m", limits=(Limit(unit=Unit.TOKENS, per=Per.MONTH, amount=500),))
CLAIMS = """
import asyncio, sys
from gateway.limits.base import Amounts, Budget, Granted, Limit, Per, Unit
from gateway.limits.sqlite import SQLiteLimits
budget = Budget(route="m", limits=(Limit(unit=Unit.TOKENS, per=Per.MONTH, amount=500),))
async def run():
    store = SQLiteLimits(sys.argv[1], 10, 60)
    claims = [store.reserve([budget], f"{sys.argv[2]}/{at}", 1, Amounts(tokens=7)) for at in range(60)]
    print(sum(isinstance(each, Granted) for each in await asyncio.gather(*claims)))
    await store.close()
asyncio.run(run())
"""


def test_three_processes_together_do_not_pass_a_budget(tmp_path: Path) -> None:
    words = [sys.executable, "-c", CLAIMS, str(tmp_path / "limits.db")]
    running = [subprocess.Popen([*words, str(at)], stdout=subprocess.PIPE, text=True) for at in range(3)]
    granted = [int(each.communicate(timeout=30)[0]) for each in running]

    assert sum(granted) == 500 // 7


def test_a_file_that_another_holds_is_waited_for_in_bounds_and_then_works_again(tmp_path: Path) -> None:
    path = str(tmp_path / "limits.db")

    async def run() -> None:
        store = SQLiteLimits(path, 0.3, 60)
        await store.reserve([BUDGET], "a", 1, Amounts(tokens=1))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(LimitsUnavailable):
            await store.reserve([BUDGET], "b", 1, Amounts(tokens=1))
        assert time.monotonic() - began < 1
        other.execute("ROLLBACK")
        other.close()
        await asyncio.sleep(0.4)  # what was given up may still be waiting in its thread
        assert isinstance(await store.reserve([BUDGET], "c", 1, Amounts(tokens=1)), Granted)
        assert (await store.standings([BUDGET]))[0].reserved == 2
        await store.close()
        with pytest.raises(LimitsUnavailable, match="closed"):
            await store.standings([BUDGET])

    asyncio.run(run())


def test_counts_outlive_the_process(tmp_path: Path) -> None:
    async def run(hold: str) -> int:
        store = SQLiteLimits(str(tmp_path / "limits.db"), 2, 60)
        await store.reserve([BUDGET], hold, 1, Amounts(tokens=10))
        found = await store.standings([BUDGET])
        await store.close()
        return found[0].reserved

    assert [asyncio.run(run(hold)) for hold in "ab"] == [10, 20]


def test_a_path_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    store = SQLiteLimits(str(tmp_path / "missing" / "limits.db"), 1, 60)

    async def run() -> None:
        with pytest.raises(LimitsUnavailable, match="cannot be used"):
            await store.standings([BUDGET])
        await store.close()

    asyncio.run(run())
