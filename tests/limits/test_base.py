"""The contract of the port, on every store, and each store against an oracle that keeps a list of everything that happened."""

import asyncio
import functools
import itertools
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from gateway.limits.base import NOTHING, Amounts, Budget, Granted, Limit, Limits, Per, Refusal, Unit
from tests.limits.conftest import LEASE_S, START, Clock, Opened


def on_a_loop(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: object, **named: object) -> None:
        asyncio.run(test(*args, **named))

    return run


def limit(unit: Unit, per: Per, amount: int) -> Limit:
    return Limit(unit=unit, per=per, amount=amount)


TOKENS = Budget(route="m", limits=(limit(Unit.TOKENS, Per.DAY, 300),))
KEY = Budget(key="team", limits=(limit(Unit.USD, Per.MONTH, 1_000), limit(Unit.REQUESTS, Per.MINUTE, 100)))
HUNDRED = Amounts(usd=100, tokens=100)


@asynccontextmanager
async def running(opened: Opened, clock: Clock | None = None) -> AsyncIterator[Limits]:
    store = opened(clock or Clock())
    try:
        yield store
    finally:
        await store.close()


async def shown(store: Limits, *budgets: Budget) -> list[tuple[int, int]]:
    return [(each.used, each.reserved) for each in await store.standings(budgets)]


@on_a_loop
async def test_a_claim_is_reserved_then_settled_at_its_true_cost(opened: Opened) -> None:
    async with running(opened) as store:
        verdict = await store.reserve([TOKENS], "a", 1, HUNDRED)

        assert isinstance(verdict, Granted)
        assert [(each.used, each.reserved, each.remaining) for each in verdict.standings] == [(0, 100, 200)]
        await store.settle([TOKENS], "a", Amounts(tokens=40))
        assert await shown(store, TOKENS) == [(40, 0)]


@on_a_loop
async def test_a_budget_may_be_reached_and_not_passed(opened: Opened) -> None:
    async with running(opened) as store:
        verdicts = [await store.reserve([TOKENS], f"{at}", 1, HUNDRED) for at in range(4)]

        assert [isinstance(each, Granted) for each in verdicts] == [True, True, True, False]
        assert await shown(store, TOKENS) == [(0, 300)]


@on_a_loop
async def test_eight_at_once_through_two_stores_do_not_pass(opened: Opened) -> None:
    clock = Clock()
    async with running(opened, clock) as one, running(opened, clock) as other:
        stores = [one, one] if type(one).__name__ == "MemoryLimits" else [one, other]
        claims = (stores[at % 2].reserve([TOKENS], f"{at}", 1, HUNDRED) for at in range(8))
        verdicts = await asyncio.gather(*claims)

        assert sum(isinstance(each, Granted) for each in verdicts) == 3


@on_a_loop
async def test_one_refusal_reserves_nothing_anywhere(opened: Opened) -> None:
    async with running(opened) as store:
        verdict = await store.reserve([KEY, TOKENS], "a", 1, Amounts(usd=1, tokens=301))

        assert isinstance(verdict, Refusal)
        assert (verdict.standing.budget, verdict.wanted, verdict.never) == (TOKENS, 301, True)
        assert await shown(store, KEY, TOKENS) == [(0, 0), (0, 0), (0, 0)]


@on_a_loop
async def test_one_refusal_of_a_later_claim_keeps_the_earlier_one(opened: Opened) -> None:
    async with running(opened) as store:
        await store.reserve([KEY, TOKENS], "a", 1, HUNDRED)
        verdict = await store.reserve([KEY, TOKENS], "a", 2, Amounts(usd=200, tokens=400))

        assert isinstance(verdict, Refusal)
        assert await shown(store, KEY, TOKENS) == [(0, 100), (1, 0), (0, 100)]
        await store.settle([KEY, TOKENS], "a", Amounts(usd=7, tokens=70))
        assert await shown(store, KEY, TOKENS) == [(7, 0), (1, 0), (70, 0)]


@on_a_loop
async def test_asked_twice_counts_once(opened: Opened) -> None:
    async with running(opened) as store:
        for _ in range(2):
            assert isinstance(await store.reserve([TOKENS, KEY], "a", 1, HUNDRED), Granted)
        assert await shown(store, TOKENS, KEY) == [(0, 100), (0, 100), (1, 0)]
        first, again = [await store.settle([TOKENS, KEY], "a", HUNDRED) for _ in range(2)]
        assert [(each.used, each.limit.name) for each in first] == [(100, "tokens/day"), (100, "usd/month"), (1, "requests/minute")]
        assert again == ()
        assert await shown(store, TOKENS, KEY) == [(100, 0), (100, 0), (1, 0)]


@on_a_loop
async def test_a_later_claim_stands_in_place_of_the_earlier_one(opened: Opened) -> None:
    async with running(opened) as store:
        await store.reserve([TOKENS, KEY], "a", 1, HUNDRED)
        verdict = await store.reserve([TOKENS, KEY], "a", 2, Amounts(usd=50, tokens=250))

        assert isinstance(verdict, Granted)
        assert await shown(store, TOKENS, KEY) == [(0, 250), (0, 50), (1, 0)]


@on_a_loop
async def test_a_period_begins_anew_and_the_refusal_says_when(opened: Opened) -> None:
    clock = Clock()
    async with running(opened, clock) as store:
        await store.reserve([TOKENS], "a", 1, Amounts(tokens=300))
        await store.settle([TOKENS], "a", Amounts(tokens=300))
        verdict = await store.reserve([TOKENS], "b", 1, Amounts(tokens=1))

        assert isinstance(verdict, Refusal)
        assert verdict.wait_s == pytest.approx(3)
        assert verdict.standing.resets_at == datetime(2026, 1, 1, tzinfo=UTC)
        clock.now += verdict.wait_s
        assert isinstance(await store.reserve([TOKENS], "b", 1, Amounts(tokens=1)), Granted)
        assert await shown(store, TOKENS) == [(0, 1)]


@on_a_loop
async def test_a_call_that_ends_in_the_next_period_counts_there(opened: Opened) -> None:
    clock = Clock()
    async with running(opened, clock) as store:
        await store.reserve([TOKENS], "a", 1, HUNDRED)
        clock.now += 10
        assert await shown(store, TOKENS) == [(0, 100)]
        await store.settle([TOKENS], "a", HUNDRED)
        assert await shown(store, TOKENS) == [(100, 0)]


@on_a_loop
async def test_any_sixty_seconds_hold_no_more_than_the_rate(opened: Opened) -> None:
    clock, rate = Clock(START + 0.9), Budget(route="r", limits=(limit(Unit.REQUESTS, Per.MINUTE, 2),))
    async with running(opened, clock) as store:
        for at in range(2):
            await store.reserve([rate], f"{at}", 1, NOTHING)
        verdict = await store.reserve([rate], "2", 1, NOTHING)

        assert isinstance(verdict, Refusal)
        assert 60 <= verdict.wait_s <= 61
        clock.now += verdict.wait_s - 0.01
        assert isinstance(await store.reserve([rate], "2", 1, NOTHING), Refusal)
        clock.now += 0.01
        assert isinstance(await store.reserve([rate], "2", 1, NOTHING), Granted)


@on_a_loop
async def test_parallel_calls_are_bounded_and_a_settled_one_makes_room(opened: Opened) -> None:
    parallel = Budget(route="p", limits=(limit(Unit.REQUESTS, Per.PARALLEL, 1),))
    async with running(opened) as store:
        await store.reserve([parallel], "a", 1, NOTHING)
        assert isinstance(await store.reserve([parallel], "a", 2, NOTHING), Granted)
        verdict = await store.reserve([parallel], "b", 1, NOTHING)

        assert isinstance(verdict, Refusal)
        assert verdict.standing.resets_at is None
        await store.settle([parallel], "a", NOTHING)
        assert isinstance(await store.reserve([parallel], "b", 1, NOTHING), Granted)


@on_a_loop
async def test_a_lost_holder_stops_counting_after_its_lease(opened: Opened) -> None:
    clock = Clock(START + 100)
    async with running(opened, clock) as store:
        await store.reserve([TOKENS], "lost", 1, HUNDRED)
        await store.reserve([TOKENS], "kept", 1, HUNDRED)
        clock.now += LEASE_S - 1
        await store.renew([TOKENS], ["kept", "unknown"])
        assert await shown(store, TOKENS) == [(0, 200)]
        clock.now += 1
        assert await shown(store, TOKENS) == [(0, 100)]


@on_a_loop
async def test_a_slow_holder_is_counted_again_when_it_comes_back(opened: Opened) -> None:
    clock = Clock(START + 100)
    async with running(opened, clock) as store:
        for name in ("renewed", "settled"):
            await store.reserve([TOKENS], name, 1, HUNDRED)
        clock.now += LEASE_S
        assert await shown(store, TOKENS) == [(0, 0)]
        await store.renew([TOKENS], ["renewed"])
        await store.settle([TOKENS], "settled", Amounts(tokens=60))
        assert await shown(store, TOKENS) == [(60, 100)]
        await store.renew([TOKENS], ["settled"])
        assert await shown(store, TOKENS) == [(60, 100)]


@on_a_loop
async def test_a_lowered_limit_refuses_new_claims_and_lets_running_ones_end(opened: Opened) -> None:
    low = Budget(route="m", limits=(limit(Unit.TOKENS, Per.DAY, 50),))
    async with running(opened) as store:
        await store.reserve([TOKENS], "a", 1, HUNDRED)
        assert isinstance(await store.reserve([low], "a", 2, Amounts(tokens=90)), Granted)
        assert isinstance(await store.reserve([low], "b", 1, Amounts(tokens=1)), Refusal)


@on_a_loop
async def test_every_month_begins_and_ends_on_the_same_days_in_every_store(opened: Opened) -> None:
    clock, month = Clock(), Budget(route="y", limits=(limit(Unit.USD, Per.MONTH, 10),))
    async with running(opened, clock) as store:
        for year, at in itertools.product((2026, 2028, 2100), range(1, 13)):
            begin, end = datetime(year, at, 1, tzinfo=UTC), datetime(year + at // 12, at % 12 + 1, 1, tzinfo=UTC)
            clock.now = begin.timestamp()
            assert await shown(store, month) == [(0, 0)]
            await store.reserve([month], f"{begin}", 1, Amounts(usd=10))
            await store.settle([month], f"{begin}", Amounts(usd=10))
            for day in range((end - begin).days):
                clock.now = begin.timestamp() + (day + 1) * 86_400 - 1
                found = await store.standings([month])
                assert (found[0].used, found[0].resets_at) == (10, end)


@on_a_loop
async def test_large_sums_stay_exact(opened: Opened) -> None:
    large = Budget(route="l", limits=(limit(Unit.USD, Per.MONTH, 9_000_000_000_000_000),))
    async with running(opened) as store:
        for at in range(3):
            await store.reserve([large], f"{at}", 1, Amounts(usd=2_999_999_999_999_999))
            await store.settle([large], f"{at}", Amounts(usd=2_999_999_999_999_999))
        assert await shown(store, large) == [(8_999_999_999_999_997, 0)]


@on_a_loop
async def test_a_clock_that_steps_back_opens_no_period_again(opened: Opened) -> None:
    clock = Clock()
    async with running(opened, clock) as store:
        await store.reserve([TOKENS], "a", 1, HUNDRED)
        clock.now += 4
        await store.settle([TOKENS], "a", Amounts(tokens=300))
        clock.now -= 2
        assert await shown(store, TOKENS) == [(300, 0)]


ALL = Budget(
    route="all",
    limits=(
        limit(Unit.USD, Per.HOUR, 500),
        limit(Unit.USD, Per.DAY, 900),
        limit(Unit.TOKENS, Per.MONTH, 1_500),
        limit(Unit.REQUESTS, Per.MINUTE, 12),
        limit(Unit.TOKENS, Per.MINUTE, 400),
        limit(Unit.REQUESTS, Per.PARALLEL, 4),
    ),
)
FIELDS = {Per.HOUR: ("year", "month", "day", "hour"), Per.DAY: ("year", "month", "day"), Per.MONTH: ("year", "month")}


class Oracle:
    """Keeps everything that ever happened, and adds it up anew each time it is asked."""

    def __init__(self) -> None:
        self.began: list[float] = []
        self.spent: list[tuple[float, Amounts]] = []
        self.holds: dict[str, tuple[int, Amounts, float]] = {}  # number, amounts, end of the lease

    def live(self, now: float) -> list[Amounts]:
        return [amounts for _, amounts, until in self.holds.values() if until > now]

    def of(self, each: Limit, now: float) -> tuple[int, int]:
        def amount(amounts: Amounts) -> int:
            return amounts.usd if each.unit is Unit.USD else amounts.tokens

        reserved = sum(map(amount, self.live(now)))
        if each.per is Per.PARALLEL:
            return 0, len(self.live(now))
        if each.unit is Unit.REQUESTS:
            return sum(math.floor(at) + 61 > math.floor(now) for at in self.began), 0
        if each.per is Per.MINUTE:
            return sum(amount(what) for at, what in self.spent if math.floor(at) + 61 > math.floor(now)), reserved
        here = [getattr(datetime.fromtimestamp(now, UTC), name) for name in FIELDS[each.per]]
        same = [
            amount(what)
            for at, what in self.spent
            if [getattr(datetime.fromtimestamp(at, UTC), n) for n in FIELDS[each.per]] == here
        ]
        return sum(same), reserved

    def grants(self, name: str, number: int, amounts: Amounts, now: float) -> bool:
        held = self.holds.get(name)
        live = held if held is not None and held[2] > now else None
        if live is not None and live[0] >= number:
            return True
        for each in ALL.limits:
            if each.per is Per.PARALLEL:
                more = int(live is None)
            elif each.unit is Unit.REQUESTS:
                more = int(number == 1)
            else:
                before = live[1] if live else NOTHING
                more = amounts.usd - before.usd if each.unit is Unit.USD else amounts.tokens - before.tokens
            if more > 0 and sum(self.of(each, now)) + more > each.amount:
                return False
        if number == 1:
            self.began.append(now)
        self.holds[name] = (number, amounts, now + LEASE_S)
        return True


AMOUNTS = st.builds(Amounts, usd=st.integers(0, 200), tokens=st.integers(0, 200))


class Books(RuleBasedStateMachine):
    """Any order of claims, ends, losses and passing time: the store says what the oracle says, and nothing is ever passed."""

    store: Limits
    clock: Clock
    runner: asyncio.Runner
    counter = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.oracle, self.round, self.names = Oracle(), next(Books.counter), 0
        self.budget = Budget(route=f"all{self.round}", limits=ALL.limits)
        self.clock.now = START - 30 + self.round  # each example in its own budget, none in the past of another

    def name(self, at: int) -> str:
        return f"{self.round}-{at}"

    @rule(amounts=AMOUNTS)
    def begin(self, amounts: Amounts) -> None:
        self.claim(self.names, 1, amounts)
        self.names += 1

    @precondition(lambda self: self.oracle.holds)
    @rule(amounts=AMOUNTS, data=st.data())
    def go_on(self, amounts: Amounts, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.oracle.holds)))
        self.claim(int(name.partition("-")[2]), self.oracle.holds[name][0] + data.draw(st.integers(0, 1)), amounts)

    def claim(self, at: int, number: int, amounts: Amounts) -> None:
        held = self.oracle.holds.get(self.name(at))
        if held is not None and held[2] <= self.clock.now and held[0] == number == 1:
            return  # the same first claim again after a whole lease: no caller waits that long for its answer
        wanted = self.oracle.grants(self.name(at), number, amounts, self.clock.now)
        verdict = self.runner.run(self.store.reserve([self.budget], self.name(at), number, amounts))

        assert isinstance(verdict, Granted) == wanted
        if isinstance(verdict, Refusal):
            assert verdict.wait_s > 0

    @precondition(lambda self: self.oracle.holds)
    @rule(share=st.floats(0, 1), data=st.data(), twice=st.booleans())
    def end(self, share: float, data: st.DataObject, twice: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.oracle.holds)))
        _, amounts, until = self.oracle.holds.pop(name)
        spent = Amounts(usd=int(amounts.usd * share), tokens=int(amounts.tokens * share)) if until > self.clock.now else NOTHING
        self.oracle.spent.append((self.clock.now, spent))
        for _ in range(1 + twice):
            self.runner.run(self.store.settle([self.budget], name, spent))

    @precondition(lambda self: self.oracle.holds)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        live = [name for name, held in self.oracle.holds.items() if held[2] > self.clock.now]
        for name in live:
            self.oracle.holds[name] = (*self.oracle.holds[name][:2], self.clock.now + LEASE_S)
        self.runner.run(self.store.renew([self.budget], live))

    @rule(seconds=st.sampled_from((0.25, 1, 7.5, 30, 61, 3_600, 86_400)))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @invariant()
    def stands_as_the_oracle_says(self) -> None:
        found = self.runner.run(self.store.standings([self.budget]))

        assert [(each.used, each.reserved) for each in found] == [self.oracle.of(each, self.clock.now) for each in ALL.limits]
        assert all(each.used + each.reserved <= each.limit.amount for each in found)


@pytest.mark.timeout(60)
def test_any_order_of_events_never_passes_a_budget(opened: Opened) -> None:
    clock = Clock()
    with asyncio.Runner() as runner:
        store = opened(clock)
        machine = type("Machine", (Books,), {"store": store, "clock": clock, "runner": runner})
        rules = settings(
            max_examples=30, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
        )
        run_state_machine_as_test(machine, settings=rules)
        runner.run(store.close())
