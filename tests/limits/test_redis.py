import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.errors import LimitsUnavailable
from gateway.limits.base import Amounts, Budget, Granted, Limit, Per, Unit
from gateway.limits.redis import RedisLimits
from tests.ledger.server import RedisServer

BUDGET = Budget(route="m", limits=(Limit(unit=Unit.TOKENS, per=Per.MONTH, amount=500),))


@asynccontextmanager
async def store_of(url: str, timeout_s: float = 2) -> AsyncIterator[RedisLimits]:
    store = RedisLimits(url, timeout_s, 60)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def losing_one_answer(port: int, word: bytes) -> AsyncIterator[int]:
    """Run a relay to a server that cuts the connection once, after the server has answered to a command with this word."""
    lost = False

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal lost
        there, back = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(OSError):
            while asked := await reader.read(65_536):
                back.write(asked)
                answer = await there.read(65_536)
                if word in asked and not lost:
                    lost = True
                    break
                writer.write(answer)
        back.close()
        writer.close()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    assert lost


def test_a_lost_answer_is_asked_for_again_and_counts_once(shared: RedisServer) -> None:
    async def run() -> None:
        async with store_of(shared.url) as warm:
            await warm.standings([BUDGET])
        async with losing_one_answer(shared.port, b"reserve") as port, store_of(f"redis://127.0.0.1:{port}/0") as store:
            assert isinstance(await store.reserve([BUDGET], "a", 1, Amounts(tokens=100)), Granted)
            assert (await store.standings([BUDGET]))[0].reserved == 100
        async with losing_one_answer(shared.port, b"settle") as port, store_of(f"redis://127.0.0.1:{port}/0") as store:
            await store.settle([BUDGET], "a", Amounts(tokens=60))
            found = (await store.standings([BUDGET]))[0]
            assert (found.used, found.reserved) == (60, 0)

    asyncio.run(run())


def test_the_servers_clock_counts_and_scripts_that_are_gone_are_loaded_again(shared: RedisServer) -> None:
    async def run() -> None:
        async with store_of(shared.url) as store:
            await store.reserve([BUDGET], "a", 1, Amounts(tokens=100))
            shared.says("SCRIPT", "FLUSH")
            found = (await store.standings([BUDGET]))[0]
            assert found.reserved == 100
            assert found.resets_at is not None
            assert 0 < found.resets_at.timestamp() - time.time() <= 31 * 86_400

    asyncio.run(run())


def test_all_keys_of_a_budget_are_of_one_slot_and_end_by_themselves(shared: RedisServer) -> None:
    async def run() -> None:
        async with store_of(shared.url) as store:
            await store.reserve([BUDGET], "a", 1, Amounts(tokens=100))

    asyncio.run(run())
    for name in ("tally", "minute", "holds", "live"):
        assert 3_000_000 < int(shared.says("TTL", f"{{gw:budget:route:m}}:{name}")[1:]) <= 3_456_000
    assert shared.says("DBSIZE") == b":4\r\n"


@pytest.mark.parametrize("fault", ["frozen", "down", "memory full"])
def test_a_store_that_is_away_is_told_in_time_without_its_address(own: RedisServer, fault: str) -> None:
    async def run() -> None:
        own.start()
        async with store_of(own.url, timeout_s=0.4) as store:
            await store.reserve([BUDGET], "a", 1, Amounts(tokens=1))
            if fault == "frozen":
                own.freeze()
            elif fault == "down":
                own.stop()
            else:
                own.says("CONFIG", "SET", "maxmemory", "1")
            began = time.monotonic()
            with pytest.raises(LimitsUnavailable) as caught:
                await store.reserve([BUDGET], "b", 1, Amounts(tokens=1))
            assert time.monotonic() - began < 0.9
            assert str(own.port) not in caught.value.message
            if fault == "frozen":
                own.thaw()
            elif fault == "down":
                own.start()
            else:
                own.says("CONFIG", "SET", "maxmemory", "0")
            assert isinstance(await store.reserve([BUDGET], "c", 1, Amounts(tokens=1)), Granted)

    asyncio.run(run())
