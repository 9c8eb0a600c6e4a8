"""Budgets counted in this process alone: the double that everything else is tested on."""

import time
from collections.abc import Callable, Iterable, Sequence

from gateway.errors import LimitsUnavailable
from gateway.limits import books
from gateway.limits.base import Amounts, Budget, Granted, Hold, Refusal, Standing, Tally


class DictShelf:
    """See `books.Shelf`."""

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}
        self._live: dict[str, dict[str, tuple[Hold, float]]] = {}
        self._lapsed: dict[str, dict[str, tuple[Hold, float]]] = {}

    def tally(self, budget: str) -> Tally | None:
        return self._tallies.get(budget)

    def put_tally(self, budget: str, tally: Tally) -> None:
        self._tallies[budget] = tally

    def hold(self, budget: str, hold: str) -> tuple[Hold, bool] | None:
        for shelf, lapsed in ((self._live, False), (self._lapsed, True)):
            if found := shelf.get(budget, {}).get(hold):
                return found[0], lapsed
        return None

    def put_hold(self, budget: str, hold: str, value: Hold, until: float) -> None:
        self._lapsed.get(budget, {}).pop(hold, None)
        self._live.setdefault(budget, {})[hold] = (value, until)

    def drop_hold(self, budget: str, hold: str) -> None:
        for shelf in (self._live, self._lapsed):
            shelf.get(budget, {}).pop(hold, None)

    def lapse(self, budget: str, now: float, forget: float) -> Iterable[Hold]:
        live, lapsed = self._live.setdefault(budget, {}), self._lapsed.setdefault(budget, {})
        gone = [(name, value) for name, (value, until) in live.items() if until <= now]
        for name, value in gone:
            del live[name]
            lapsed[name] = (value, now)
        for name in [name for name, (_, since) in lapsed.items() if since < forget]:
            del lapsed[name]
        return [value for _, value in gone]


class MemoryLimits:
    """See `base.Limits`. `unavailable` set to a reason makes every call fail with it, as a store would."""

    def __init__(self, lease_s: float = 60, *, clock: Callable[[], float] = time.time, unavailable: str | None = None) -> None:
        self.unavailable = unavailable
        self._shelf, self._lease_s, self._clock = DictShelf(), lease_s, clock

    async def reserve(self, budgets: Sequence[Budget], hold: str, number: int, amounts: Amounts) -> Granted | Refusal:
        self._available()
        return books.reserve(self._shelf, budgets, hold, number, amounts, now=self._clock(), lease_s=self._lease_s)

    async def settle(self, budgets: Sequence[Budget], hold: str, spent: Amounts) -> tuple[Standing, ...]:
        self._available()
        return books.settle(self._shelf, budgets, hold, spent, now=self._clock())

    async def renew(self, budgets: Sequence[Budget], holds: Sequence[str]) -> None:
        self._available()
        books.renew(self._shelf, budgets, holds, now=self._clock(), lease_s=self._lease_s)

    async def standings(self, budgets: Sequence[Budget]) -> tuple[Standing, ...]:
        self._available()
        return books.standings(self._shelf, budgets, now=self._clock())

    async def close(self) -> None:
        """Nothing is held open."""

    def _available(self) -> None:
        if self.unavailable is not None:
            raise LimitsUnavailable(self.unavailable)
