"""The arithmetic of budgets: values in, values out. Knows no store and no clock.

The rule is one line: what is used, what is reserved and what is claimed may together reach a limit and not pass it.
`lua.py` says the same to Redis; the contract suite holds both against each other.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from gateway.limits.base import NOTHING, Amounts, Budget, Granted, Hold, Limit, Per, Refusal, Standing, Tally, Unit

# A second's count leaves when 60 s have passed since the second's end, so that no 60 s ever hold more than the limit.
MINUTE_S = 61
BACK_S = 3_600  # a clock set back by more was wrong before: believing it longer could keep a budget shut for years
SOON_S = 1.0  # until what is only reserved may be free: nobody knows, and calls often end within a second


def period(per: Per, now: float) -> tuple[int, int]:
    """Return begin and end of the period in which `now` is, in seconds since 1970. Periods are UTC's."""
    at = datetime.fromtimestamp(now, UTC).replace(minute=0, second=0, microsecond=0)
    if per is Per.HOUR:
        return _seconds(at), _seconds(at) + 3_600
    at = at.replace(hour=0)
    if per is Per.DAY:
        return _seconds(at), _seconds(at) + 86_400
    first = at.replace(day=1)
    return _seconds(first), _seconds((first + timedelta(days=32)).replace(day=1))


def _seconds(at: datetime) -> int:
    return int(at.timestamp())


def advanced(budget: Budget, tally: Tally, now: float) -> Tally:
    """Return the tally at a later moment: periods that ended begin anew, seconds that passed are forgotten.

    A clock that went back a little changes nothing: the tally keeps its own later moment.
    """
    now = tally.now if now < tally.now <= now + BACK_S else now
    used = {}
    for limit in budget.limits:
        if limit.per.is_period:
            begin, _ = period(limit.per, now)
            kept = tally.used.get(limit.name, (begin, 0))
            used[limit.name] = kept if kept[0] == begin else (begin, 0)
    oldest = math.floor(now) - MINUTE_S
    minute = {unit: {at: count for at, count in seconds.items() if at > oldest} for unit, seconds in tally.minute.items()}
    return replace(tally, now=now, used=used, minute={unit: seconds for unit, seconds in minute.items() if seconds})


def used(limit: Limit, tally: Tally) -> int:
    """Return what counts as used against a limit."""
    if limit.per.is_period:
        return tally.used.get(limit.name, (0, 0))[1]
    return sum(tally.minute.get(limit.unit, {}).values()) if limit.per is Per.MINUTE else 0


def reserved(limit: Limit, tally: Tally) -> int:
    """Return what counts as reserved against a limit: requests of a minute are counted when they begin, so none."""
    if limit.per is Per.PARALLEL:
        return tally.calls
    return of_unit(limit.unit, tally.reserved)


def of_unit(unit: Unit, amounts: Amounts) -> int:
    return {Unit.USD: amounts.usd, Unit.TOKENS: amounts.tokens, Unit.REQUESTS: 0}[unit]


def wanted(limit: Limit, amounts: Amounts, held: Hold | None, number: int) -> int:
    """Return what a claim adds to a limit, beyond what the request holds already; negative when it holds more."""
    if limit.per is Per.PARALLEL:
        return 0 if held else 1
    if limit.unit is Unit.REQUESTS:
        return 1 if number == 1 else 0
    return of_unit(limit.unit, amounts) - (of_unit(limit.unit, held.amounts) if held else 0)


def passed(budget: Budget, tally: Tally, amounts: Amounts, held: Hold | None, number: int) -> tuple[Limit, ...]:
    """Return the limits that the claim would pass. One that adds nothing passes nothing, even where a limit was lowered."""
    found = []
    for limit in budget.limits:
        more = wanted(limit, amounts, held, number)
        if more > 0 and used(limit, tally) + reserved(limit, tally) + more > limit.amount:
            found.append(limit)
    return tuple(found)


def claimed(budget: Budget, tally: Tally, amounts: Amounts, held: Hold | None, number: int) -> tuple[Tally, Hold]:
    """Return the tally with the claim in place of what was held, and the hold. What admits it is `passed`."""
    before = held.amounts if held else NOTHING
    second = held.second if held else math.floor(tally.now)
    if number == 1:
        tally = _counted(tally, Unit.REQUESTS, second, 1)
    after = Amounts(
        usd=tally.reserved.usd - before.usd + amounts.usd, tokens=tally.reserved.tokens - before.tokens + amounts.tokens
    )
    tally = replace(tally, reserved=after, calls=tally.calls + (held is None))
    return tally, Hold(number=number, amounts=amounts, second=second)


def released(tally: Tally, held: Hold) -> Tally:
    """Return the tally without the hold."""
    usd, tokens = tally.reserved.usd - held.amounts.usd, tally.reserved.tokens - held.amounts.tokens
    return replace(tally, reserved=Amounts(usd=usd, tokens=tokens), calls=tally.calls - 1)


def renewed(tally: Tally, held: Hold) -> Tally:
    """Return the tally with a hold that had lapsed."""
    return replace(tally, reserved=tally.reserved + held.amounts, calls=tally.calls + 1)


def spent(budget: Budget, tally: Tally, amounts: Amounts) -> Tally:
    """Return the tally with what a call cost, counted now: a call that spans two periods counts in the one it ends in."""
    counts = dict(tally.used)
    for limit in budget.limits:
        if limit.per.is_period:
            begin, before = counts[limit.name]
            counts[limit.name] = (begin, before + of_unit(limit.unit, amounts))
    return _counted(replace(tally, used=counts), Unit.TOKENS, math.floor(tally.now), amounts.tokens)


def _counted(tally: Tally, unit: Unit, second: int, count: int) -> Tally:
    if not count:
        return tally
    seconds = dict(tally.minute.get(unit, {}))
    seconds[second] = seconds.get(second, 0) + count
    return replace(tally, minute={**tally.minute, unit: seconds})


def standings(budget: Budget, tally: Tally) -> tuple[Standing, ...]:
    """Return how each limit of the budget stands."""
    return tuple(
        Standing(
            budget=budget,
            limit=limit,
            used=used(limit, tally),
            reserved=reserved(limit, tally),
            at=datetime.fromtimestamp(tally.now, UTC),
            resets_at=resets_at(limit, tally),
        )
        for limit in budget.limits
    )


def resets_at(limit: Limit, tally: Tally) -> datetime | None:
    """Return when the limit is whole again if nothing more is used: the period's end, or a minute after the last second used."""
    if limit.per is Per.PARALLEL:
        return None
    if limit.per is Per.MINUTE:
        seconds = tally.minute.get(limit.unit, {})
        return datetime.fromtimestamp(max(seconds) + MINUTE_S if seconds else tally.now, UTC)
    return datetime.fromtimestamp(period(limit.per, tally.now)[1], UTC)


def wait_s(limit: Limit, tally: Tally, more: int) -> float:
    """Return in how many seconds the claim may pass, if nothing else is used until then.

    Exact where what is used stands in its way; where only running calls do, and where they do besides, it cannot be known
    when they end: then it is the soonest moment at which it may have room.
    """
    room = limit.amount - more
    if limit.per is Per.MINUTE and room >= 0:
        left = used(limit, tally)
        if left <= room:
            return SOON_S
        for second, count in sorted(tally.minute.get(limit.unit, {}).items()):
            left -= count
            if left <= room:
                return max(second + MINUTE_S - tally.now, 0.001)
    if limit.per is Per.MINUTE:
        return float(MINUTE_S)
    if limit.per is Per.PARALLEL or used(limit, tally) <= room:
        return SOON_S
    return period(limit.per, tally.now)[1] - tally.now


def refusal(asked: Sequence[tuple[Budget, Tally, Hold | None]], amounts: Amounts, number: int) -> Refusal:
    """Return the refusal of a claim that passes at least one limit: the one that takes longest to give way stands for it."""
    found: list[tuple[float, Standing, int]] = []
    for budget, tally, held in asked:
        for limit in passed(budget, tally, amounts, held, number):
            more = wanted(limit, amounts, held, number)
            standing = next(each for each in standings(budget, tally) if each.limit is limit)
            found.append((wait_s(limit, tally, more), standing, more))
    # One that can never pass is the reason, however soon another would give way.
    wait, standing, more = max(found, key=lambda each: (each[2] > each[1].limit.amount, each[0]))
    return Refusal(standing=standing, wanted=more, wait_s=wait, never=more > standing.limit.amount, standings=_all(asked))


def granted(asked: Sequence[tuple[Budget, Tally, Hold | None]]) -> Granted:
    return Granted(standings=_all(asked))


def _all(asked: Iterable[tuple[Budget, Tally, Hold | None]]) -> tuple[Standing, ...]:
    return tuple(each for budget, tally, _ in asked for each in standings(budget, tally))


def reserve(
    books: Mapping[str, tuple[Tally, Hold | None]], budgets: Sequence[Budget], amounts: Amounts, number: int
) -> tuple[Granted | Refusal, dict[str, tuple[Tally, Hold]]]:
    """Return the verdict on one claim over several budgets, and what changes for each by name: all of them, or nothing.

    `books` has for each budget its advanced tally and what the request holds there. A claim that was made before, by its
    number, is granted again and changes nothing.
    """
    asked = [(budget, *books[budget.name]) for budget in budgets]
    fresh = [each for each in asked if each[2] is None or each[2].number < number]
    if any(passed(budget, tally, amounts, held, number) for budget, tally, held in fresh):
        return refusal(fresh, amounts, number), {}
    made = {budget.name: claimed(budget, tally, amounts, held, number) for budget, tally, held in fresh}
    after = [(budget, made[budget.name][0] if budget.name in made else tally, held) for budget, tally, held in asked]
    return granted(after), made
