"""The four operations of a store that keeps its books by itself, one at a time: memory, and SQLite within a transaction.

Redis does the same in its script. Knows the shelf on which books stand, nothing of how it keeps them.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from gateway.limits import reckoning
from gateway.limits.base import Amounts, Budget, Granted, Hold, Refusal, Standing, Tally

# How long a lapsed hold is remembered, so that the cost of a call whose process was only slow is still counted.
LAPSED_S = 86_400


class Shelf(Protocol):
    """Where tallies and holds are kept, by the budget's name. A hold is live, lapsed, or not there."""

    def tally(self, budget: str) -> Tally | None: ...

    def put_tally(self, budget: str, tally: Tally) -> None: ...

    def hold(self, budget: str, hold: str) -> tuple[Hold, bool] | None:
        """Return the hold and whether it lapsed."""
        ...

    def put_hold(self, budget: str, hold: str, value: Hold, until: float) -> None:
        """Keep a live hold until then, whatever it was before."""
        ...

    def drop_hold(self, budget: str, hold: str) -> None: ...

    def lapse(self, budget: str, now: float, forget: float) -> Iterable[Hold]:
        """Turn the live holds whose time is up into lapsed ones, and return them; forget those that lapsed before `forget`."""
        ...


def opened(shelf: Shelf, budget: Budget, now: float) -> Tally:
    """Return the budget's tally at this moment, without what lapsed; so it stands on the shelf from now on."""
    tally = reckoning.advanced(budget, shelf.tally(budget.name) or Tally(now=now), now)
    for hold in shelf.lapse(budget.name, tally.now, tally.now - LAPSED_S):
        tally = reckoning.released(tally, hold)
    shelf.put_tally(budget.name, tally)
    return tally


def reserve(
    shelf: Shelf, budgets: Sequence[Budget], hold: str, number: int, amounts: Amounts, *, now: float, lease_s: float
) -> Granted | Refusal:
    books = {}
    for budget in budgets:
        tally, found = opened(shelf, budget, now), shelf.hold(budget.name, hold)
        books[budget.name] = (tally, found[0] if found and not found[1] else None)
    verdict, made = reckoning.reserve(books, budgets, amounts, number)
    for name, (tally, value) in made.items():
        shelf.put_tally(name, tally)
        shelf.put_hold(name, hold, value, tally.now + lease_s)
    return verdict


def settle(shelf: Shelf, budgets: Sequence[Budget], hold: str, spent: Amounts, *, now: float) -> tuple[Standing, ...]:
    settled: list[Standing] = []
    for budget in budgets:
        tally = opened(shelf, budget, now)
        found = shelf.hold(budget.name, hold)
        if found is None:
            continue
        value, lapsed = found
        tally = tally if lapsed else reckoning.released(tally, value)
        tally = reckoning.spent(budget, tally, spent)
        shelf.put_tally(budget.name, tally)
        shelf.drop_hold(budget.name, hold)
        settled += reckoning.standings(budget, tally)
    return tuple(settled)


def renew(shelf: Shelf, budgets: Sequence[Budget], holds: Sequence[str], *, now: float, lease_s: float) -> None:
    for budget in budgets:
        tally = opened(shelf, budget, now)
        for hold in holds:
            found = shelf.hold(budget.name, hold)
            if found is None:
                continue
            value, lapsed = found
            tally = reckoning.renewed(tally, value) if lapsed else tally
            shelf.put_hold(budget.name, hold, value, tally.now + lease_s)
        shelf.put_tally(budget.name, tally)


def standings(shelf: Shelf, budgets: Sequence[Budget], *, now: float) -> tuple[Standing, ...]:
    return tuple(each for budget in budgets for each in reckoning.standings(budget, opened(shelf, budget, now)))
