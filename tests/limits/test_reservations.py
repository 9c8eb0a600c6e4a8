import asyncio
import logging
from collections.abc import Sequence

import pytest

from gateway.errors import LimitExceeded, LimitsUnavailable
from gateway.limits.base import NOTHING, Amounts, Budget, Granted, Limit, Per, Refusal, Standing, Unit
from gateway.limits.memory import MemoryLimits
from gateway.limits.reservations import Reservations

pytestmark = pytest.mark.anyio
ROUTE = Budget(
    route="m", limits=(Limit(unit=Unit.TOKENS, per=Per.MONTH, amount=300), Limit(unit=Unit.REQUESTS, per=Per.MINUTE, amount=10))
)
KEY = Budget(key="k", limits=(Limit(unit=Unit.TOKENS, per=Per.MONTH, amount=200),))
SERIAL = Budget(route="serial", limits=(Limit(unit=Unit.REQUESTS, per=Per.PARALLEL, amount=1),))
HUNDRED = Amounts(tokens=100)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Seen:
    def __init__(self) -> None:
        self.stood: list[Sequence[Standing]] = []
        self.ended: list[Amounts] = []

    def stands(self, standings: Sequence[Standing]) -> None:
        self.stood.append(standings)

    def settled(self, standings: Sequence[Standing], spent: Amounts) -> None:
        self.ended.append(spent)


def desk_of(store: MemoryLimits, *watchers: Seen, lease_s: float = 60) -> Reservations:
    ids = iter(range(1_000))
    return Reservations(store, [ROUTE, KEY, SERIAL], lease_s=lease_s, new_id=lambda: f"hold{next(ids)}", watchers=watchers)


async def stand(desk: Reservations) -> list[tuple[int, int]]:
    for _ in range(5):
        await asyncio.sleep(0)
    return [(each.used, each.reserved) for each in await desk.standings() if each.limit.per is Per.MONTH]


async def test_a_request_counts_against_its_route_and_its_key_and_settles_when_closed() -> None:
    seen = Seen()
    desk = desk_of(MemoryLimits(), seen)
    held = desk.open("k")

    told = await held.claim("m", HUNDRED)
    assert told["x-ratelimit-remaining-requests"] == "9"
    assert await stand(desk) == [(0, 100), (0, 100)]
    held.spent(Amounts(tokens=30), HUNDRED)
    assert await stand(desk) == [(0, 100), (0, 100)]
    held.close()
    assert await stand(desk) == [(30, 0), (30, 0)]
    assert seen.ended == [Amounts(tokens=30)]
    await desk.drain(1)


async def test_attempts_add_up_and_one_that_has_not_ended_stays_reserved() -> None:
    desk = desk_of(MemoryLimits())
    held = desk.open("")

    await held.claim("m", HUNDRED)
    await held.claim("m", Amounts(tokens=150))
    assert await stand(desk) == [(0, 250), (0, 0)]
    held.close()
    held.spent(Amounts(tokens=40), Amounts(tokens=150))
    assert await stand(desk) == [(0, 250), (0, 0)]
    held.spent(NOTHING, HUNDRED)
    assert await stand(desk) == [(40, 0), (0, 0)]
    await desk.drain(1)


async def test_what_an_ended_attempt_cost_counts_in_the_next_claim() -> None:
    desk = desk_of(MemoryLimits())
    held = desk.open("")

    await held.claim("m", Amounts(tokens=300))
    held.spent(Amounts(tokens=250), Amounts(tokens=300))
    with pytest.raises(LimitExceeded):
        await held.claim("m", HUNDRED)
    held.close()
    assert await stand(desk) == [(250, 0), (0, 0)]
    await desk.drain(1)


async def test_a_refused_request_holds_nothing_and_asks_for_nothing_more() -> None:
    store, seen = MemoryLimits(), Seen()
    desk = desk_of(store, seen)
    held = desk.open("k")

    with pytest.raises(LimitExceeded):
        await held.claim("m", Amounts(tokens=201))
    held.close()
    assert await stand(desk) == [(0, 0), (0, 0)]
    assert seen.ended == []
    await desk.drain(1)


async def test_without_budgets_nothing_is_asked() -> None:
    store = MemoryLimits(unavailable="away")
    for desk, route in ((Reservations(), "m"), (desk_of(store), "free")):
        held = desk.open("")
        assert await held.claim(route, HUNDRED) == {}
        held.spent(HUNDRED, HUNDRED)
        held.close()
        await desk.drain(1)
    assert await Reservations().standings() == ()


async def test_a_client_that_leaves_while_asking_leaves_nothing_reserved() -> None:
    class Slow(MemoryLimits):
        async def reserve(self, budgets: Sequence[Budget], hold: str, number: int, amounts: Amounts) -> Granted | Refusal:
            await asyncio.sleep(0.02)
            return await super().reserve(budgets, hold, number, amounts)

    desk = desk_of(Slow())
    held = desk.open("")
    asking = asyncio.create_task(held.claim("m", HUNDRED))
    await asyncio.sleep(0.005)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    held.close()
    await asyncio.sleep(0.04)

    assert await stand(desk) == [(0, 0), (0, 0)]
    await desk.drain(1)


async def test_a_store_that_is_away_refuses_and_is_paid_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    store = MemoryLimits()
    desk = desk_of(store, lease_s=0.03)
    held, other = desk.open(""), desk.open("")
    await held.claim("m", HUNDRED)

    store.unavailable = "away"
    with pytest.raises(LimitsUnavailable):
        await other.claim("m", HUNDRED)
    other.close()
    held.spent(Amounts(tokens=70), HUNDRED)
    held.close()
    await asyncio.sleep(0.03)
    store.unavailable = None
    await asyncio.sleep(0.05)

    assert await stand(desk) == [(70, 0), (0, 0)]
    await desk.drain(1)
    assert caplog.records == []


async def test_running_calls_are_renewed_until_they_end() -> None:
    store = MemoryLimits(0.06)
    desk = desk_of(store, lease_s=0.06)
    held = desk.open("")
    await held.claim("m", HUNDRED)

    await asyncio.sleep(0.2)
    assert await stand(desk) == [(0, 100), (0, 0)]
    await desk.drain(1)  # as when the process is lost: nobody renews
    await asyncio.sleep(0.07)
    assert await stand(desk) == [(0, 0), (0, 0)]


async def test_a_client_that_calls_again_at_once_waits_for_its_own_settlement() -> None:
    desk = desk_of(MemoryLimits())
    first, second, third = (desk.open("") for _ in range(3))
    await first.claim("serial", NOTHING)
    first.spent(NOTHING, NOTHING)
    asyncio.get_running_loop().call_later(0.01, first.close)

    await second.claim("serial", NOTHING)
    with pytest.raises(LimitExceeded, match="max_parallel"):
        await third.claim("serial", NOTHING)
    second.spent(NOTHING, NOTHING)
    second.close()
    third.close()
    await desk.drain(1)


async def test_new_budgets_hold_from_the_next_request_on() -> None:
    desk = desk_of(MemoryLimits())
    old = desk.open("")
    await old.claim("m", HUNDRED)
    desk.use([KEY])

    new = desk.open("")
    assert await new.claim("m", Amounts(tokens=10_000)) == {}
    new.close()
    old.spent(HUNDRED, HUNDRED)
    old.close()
    await asyncio.sleep(0.01)
    desk.use([ROUTE, KEY])
    assert await stand(desk) == [(100, 0), (0, 0)]
    await desk.drain(1)
