import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime

from gateway.api.health import Ready, live
from gateway.errors import LedgerError, SnapshotUnavailable
from gateway.ledger.records import Entry, Record


class ScriptedLedger:
    """Answers `ready` from a script, the last one again and again, and counts how often it was asked."""

    def __init__(self, *script: Exception | float | None) -> None:
        self.script = list(script)
        self.asked = 0

    async def ready(self) -> None:
        self.asked += 1
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(step, Exception):
            raise step
        await asyncio.sleep(step or 0)

    async def append(self, entry: Entry) -> None:
        raise AssertionError("a health page must not write")

    async def _nothing(self) -> AsyncIterator[Record]:
        nothing: tuple[Record, ...] = ()
        for record in nothing:
            yield record

    def read(self, *, since: datetime | None = None, newest_first: bool = False) -> AsyncIterator[Record]:
        return self._nothing()

    async def follow(self, cursor: str = "") -> AsyncIterator[tuple[str, Record]]:
        async for record in self._nothing():
            yield cursor, record

    async def find(self, snapshot_id: str) -> tuple[Record, ...]:
        return ()

    async def bodies(self, digests: Iterable[bytes]) -> Mapping[bytes, bytes]:
        return {}

    async def close(self) -> None: ...


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_process_that_answers_lives() -> None:
    assert (live().status_code, live().body) == (200, b'{"status":"ok"}')


async def _ask(ready: Ready) -> tuple[int, dict[str, str]]:
    answer = await ready()
    return answer.status_code, json.loads(bytes(answer.body))


def test_ready_while_the_ledger_takes_records() -> None:
    assert asyncio.run(_ask(Ready(ScriptedLedger(None)))) == (200, {"status": "ok"})


def test_not_ready_says_one_word_and_no_more() -> None:
    down = ScriptedLedger(SnapshotUnavailable("redis at 10.0.0.3 refused the connection"))

    assert asyncio.run(_ask(Ready(down))) == (503, {"status": "unavailable", "reason": "snapshot_unavailable"})
    assert asyncio.run(_ask(Ready(ScriptedLedger(LedgerError("odd"))))) == (503, {"status": "unavailable", "reason": "ledger"})


def test_a_ledger_that_hangs_is_not_ready_in_bounded_time() -> None:
    ready = Ready(ScriptedLedger(60.0), timeout_s=0.01)

    assert asyncio.run(_ask(ready)) == (503, {"status": "unavailable", "reason": "ledger_timeout"})


def test_the_ledger_is_asked_once_a_second_by_however_many() -> None:
    ledger, clock = ScriptedLedger(0.001, SnapshotUnavailable("down"), None), Clock()
    ready = Ready(ledger, clock=clock)

    async def probes() -> list[list[int]]:
        seen = []
        for _ in range(3):
            seen.append([answer.status_code for answer in await asyncio.gather(*(ready() for _ in range(5)))])
            clock.now += 1.0
        return seen

    assert asyncio.run(probes()) == [[200] * 5, [503] * 5, [200] * 5]
    assert ledger.asked == 3
