"""A process that appends and says so, to be killed: `python -m tests.ledger.writing URL` prints each acknowledged id."""

import asyncio
import subprocess
import sys

from gateway.ledger.base import Ledger
from gateway.ledger.redis import RedisLedger
from gateway.ledger.sqlite import SQLiteLedger
from tests.ledger.values import composed


def acknowledged(place: str, count: int = 60) -> list[str]:
    """Return the ids that a writing process said were acknowledged before it was killed with SIGKILL in the midst of it."""
    command = [sys.executable, "-m", "tests.ledger.writing", place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(count)]
        process.kill()
        told += process.stdout.readlines()
    return [each.strip() for each in told if each.endswith("\n")]


async def _write(ledger: Ledger) -> None:
    async def forever() -> None:
        while True:
            written = composed(5)
            await ledger.append(written.entry)
            print(written.record.id, flush=True)

    await asyncio.gather(*(forever() for _ in range(8)))


def _opened(place: str) -> Ledger:
    if place.startswith("sqlite:"):
        _, path, fsynced = place.split(":")
        return SQLiteLedger.open(path, 5, fsynced=fsynced == "1")
    return RedisLedger(place, 5)


async def _main() -> None:
    await _write(_opened(sys.argv[1]))


if __name__ == "__main__":
    asyncio.run(_main())
