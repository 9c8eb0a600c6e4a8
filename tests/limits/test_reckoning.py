from datetime import UTC, datetime

import pytest

from gateway.limits import reckoning
from gateway.limits.base import NOTHING, Amounts, Budget, Hold, Limit, Per, Refusal, Tally, Unit

NOON = datetime(2026, 2, 28, 12, 30, 15, tzinfo=UTC).timestamp()


def limit(unit: Unit, per: Per, amount: int) -> Limit:
    return Limit(unit=unit, per=per, amount=amount)


def moment(*parts: int) -> float:
    return datetime(*parts, tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc] # year, month, day, hour …


@pytest.mark.parametrize(
    ("per", "begin", "end"),
    [
        (Per.HOUR, moment(2026, 2, 28, 12), moment(2026, 2, 28, 13)),
        (Per.DAY, moment(2026, 2, 28), moment(2026, 3, 1)),
        (Per.MONTH, moment(2026, 2, 1), moment(2026, 3, 1)),
    ],
)
def test_periods_are_those_of_the_calendar(per: Per, begin: float, end: float) -> None:
    assert reckoning.period(per, NOON) == (begin, end)
    assert reckoning.period(per, end)[0] == end


@pytest.mark.parametrize(
    ("one", "tally", "more", "wait_s"),
    [
        (limit(Unit.TOKENS, Per.DAY, 10), Tally(now=NOON, used={"tokens/day": (0, 8)}), 3, moment(2026, 3, 1) - NOON),
        (limit(Unit.TOKENS, Per.DAY, 10), Tally(now=NOON, used={"tokens/day": (0, 7)}, reserved=Amounts(tokens=3)), 3, 1),
        (limit(Unit.TOKENS, Per.MINUTE, 10), Tally(now=NOON, minute={Unit.TOKENS: {int(NOON) - 20: 4, int(NOON) - 5: 4}}), 4, 41),
        (limit(Unit.TOKENS, Per.MINUTE, 10), Tally(now=NOON, minute={Unit.TOKENS: {int(NOON) - 20: 4, int(NOON) - 5: 4}}), 8, 56),
        (limit(Unit.TOKENS, Per.MINUTE, 10), Tally(now=NOON, reserved=Amounts(tokens=9)), 3, 1),
        (limit(Unit.TOKENS, Per.MINUTE, 10), Tally(now=NOON), 11, 61),
        (limit(Unit.REQUESTS, Per.PARALLEL, 1), Tally(now=NOON, calls=1), 1, 1),
    ],
)  # fmt: skip
def test_the_wait_is_until_enough_of_what_is_used_is_forgotten(one: Limit, tally: Tally, more: int, wait_s: float) -> None:
    assert reckoning.wait_s(one, tally, more) == wait_s


def test_the_longest_wait_stands_for_a_refusal_and_what_can_never_pass_before_all() -> None:
    soon, late = limit(Unit.TOKENS, Per.MINUTE, 5), limit(Unit.USD, Per.MONTH, 5)
    budget = Budget(route="m", limits=(soon, late))
    full = Tally(now=NOON, used={"usd/month": (int(moment(2026, 2, 1)), 5)}, minute={Unit.TOKENS: {int(NOON): 5}})

    both, _ = reckoning.reserve({budget.name: (full, None)}, [budget], Amounts(usd=1, tokens=1), 1)
    never, _ = reckoning.reserve({budget.name: (full, None)}, [budget], Amounts(usd=1, tokens=6), 1)

    assert isinstance(both, Refusal)
    assert (both.standing.limit, both.never, both.wait_s) == (late, False, moment(2026, 3, 1) - NOON)
    assert isinstance(never, Refusal)
    assert (never.standing.limit, never.never) == (soon, True)
    assert len(never.standings) == 2


def test_a_tally_moves_on_and_forgets_what_has_passed() -> None:
    budget = Budget(route="m", limits=(limit(Unit.TOKENS, Per.HOUR, 5), limit(Unit.REQUESTS, Per.MINUTE, 5)))
    hour = int(moment(2026, 2, 28, 12))
    tally = Tally(now=NOON, used={"tokens/hour": (hour, 3)}, minute={Unit.REQUESTS: {int(NOON): 2}}, calls=1)

    assert reckoning.advanced(budget, tally, NOON + 60.9).minute == {Unit.REQUESTS: {int(NOON): 2}}
    assert reckoning.advanced(budget, tally, NOON + 61).minute == {}
    assert reckoning.advanced(budget, tally, NOON + 61).used == {"tokens/hour": (hour, 3)}
    assert reckoning.advanced(budget, tally, hour + 3_600).used == {"tokens/hour": (hour + 3_600, 0)}
    assert reckoning.advanced(budget, tally, NOON - 10).now == NOON
    assert reckoning.advanced(budget, tally, NOON - 4_000).now == NOON - 4_000


def test_standings_tell_when_a_limit_is_whole_again() -> None:
    budget = Budget(
        key="k", limits=(limit(Unit.REQUESTS, Per.MINUTE, 5), limit(Unit.REQUESTS, Per.PARALLEL, 2), limit(Unit.USD, Per.DAY, 9))
    )
    tally = Tally(now=NOON, used={"usd/day": (0, 4)}, minute={Unit.REQUESTS: {int(NOON) - 3: 2}}, reserved=Amounts(usd=1), calls=1)

    rate, parallel, usd = reckoning.standings(budget, tally)

    assert (rate.used, rate.remaining) == (2, 3)
    assert rate.resets_at == datetime.fromtimestamp(int(NOON) - 3 + 61, UTC)
    assert (parallel.reserved, parallel.remaining, parallel.resets_at) == (1, 1, None)
    assert (usd.used, usd.reserved, usd.remaining, usd.resets_at) == (4, 1, 4, datetime(2026, 3, 1, tzinfo=UTC))


def test_what_is_claimed_and_released_leaves_no_trace_but_the_request() -> None:
    budget = Budget(route="m", limits=(limit(Unit.TOKENS, Per.DAY, 5),))
    tally, held = reckoning.claimed(budget, Tally(now=NOON), Amounts(usd=3, tokens=4), None, 1)

    assert held == Hold(number=1, amounts=Amounts(usd=3, tokens=4), second=int(NOON))
    assert reckoning.released(tally, held) == Tally(now=NOON, minute={Unit.REQUESTS: {int(NOON): 1}})
    assert reckoning.renewed(reckoning.released(tally, held), held) == tally
    assert NOTHING + held.amounts == held.amounts
