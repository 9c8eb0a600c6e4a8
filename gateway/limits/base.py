"""What a budget is, and the port of the stores that keep count of it.

All amounts are whole numbers of the unit's smallest part, so that sums are exact in every store: billionths of a USD,
tokens, requests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from gateway.errors import LimitsUnavailable as LimitsUnavailable

NANO = 1_000_000_000  # parts of a USD: the cheapest token known costs 20 of them


class Unit(StrEnum):
    USD = "usd"
    TOKENS = "tokens"
    REQUESTS = "requests"


class Per(StrEnum):
    """Over what a limit counts: the running hour, day or month (UTC), any 60 seconds, or what runs at this moment."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
    MINUTE = "minute"
    PARALLEL = "parallel"

    @property
    def is_period(self) -> bool:
        return self in (Per.HOUR, Per.DAY, Per.MONTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """At most `amount` of a unit. Names are unique within a budget."""

    unit: Unit
    per: Per
    amount: int

    @property
    def name(self) -> str:
        return f"{self.unit}/{self.per}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of one route or of one key: exactly one of both is named."""

    route: str = ""
    key: str = ""
    limits: tuple[Limit, ...]

    @property
    def name(self) -> str:
        return f"route:{self.route}" if self.route else f"key:{self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """What a call costs, or may cost at most: billionths of a USD, and tokens. Neither is negative."""

    usd: int = 0
    tokens: int = 0

    def __add__(self, other: "Amounts") -> "Amounts":
        return Amounts(usd=self.usd + other.usd, tokens=self.tokens + other.tokens)


NOTHING = Amounts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What one request has reserved in one budget. `number` grows with each claim of that request, `second` is its first's."""

    number: int
    amounts: Amounts
    second: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How far one budget is used. `now` (seconds since 1970, the store's own clock) is when that was so.

    `used` has for each limit over a period the begin of the period and what was used in it; `minute` what was used in each
    of the last seconds; `reserved` the sum over the `calls` that run. Empty maps where nothing was counted yet.
    """

    now: float
    used: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    minute: Mapping[Unit, Mapping[int, int]] = field(default_factory=dict)
    reserved: Amounts = NOTHING
    calls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One limit as it stands at a moment of the store's clock. `resets_at` None: it frees itself when a running call ends."""

    budget: Budget
    limit: Limit
    used: int
    reserved: int
    at: datetime
    resets_at: datetime | None

    @property
    def resets_in_s(self) -> float | None:
        return None if self.resets_at is None else (self.resets_at - self.at).total_seconds()

    @property
    def used_ratio(self) -> float:
        """Used and reserved over the limit; a limit of nothing is used up."""
        return (self.used + self.reserved) / self.limit.amount if self.limit.amount else 1.0

    @property
    def remaining(self) -> int:
        return max(0, self.limit.amount - self.used - self.reserved)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Which limit would be passed, by how much, and in how many seconds the same claim may pass it.

    `never`: the claim is larger than the whole limit. `standings` are those of every budget that was asked.
    """

    standing: Standing
    wanted: int
    wait_s: float
    never: bool
    standings: tuple[Standing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The claim is reserved in every budget that was asked; these are their standings with it."""

    standings: tuple[Standing, ...]


class Limits(Protocol):
    """A store of counts. Every call is bounded by the store's `timeout_s`, and raises LimitsUnavailable beyond it.

    A `hold` is an id that no other request has. Reserving or settling twice under one id and number counts once, so that
    a lost answer may be asked for again. A hold that is neither settled nor renewed within the lease stops counting.
    """

    async def reserve(self, budgets: Sequence[Budget], hold: str, number: int, amounts: Amounts) -> Granted | Refusal:
        """Reserve `amounts` in place of what the hold had so far, in every budget or in none.

        A request's first claim (`number` 1) also counts one request and takes one of its budgets' parallel calls. Nothing
        is reserved when a budget would be passed.
        """
        ...

    async def settle(self, budgets: Sequence[Budget], hold: str, spent: Amounts) -> tuple[Standing, ...]:
        """Count what the request cost, let go of what it held, and return how the limits stand with that.

        The second time, and for an unknown hold: nothing is counted, and nothing returned. So of all processes only one
        sees a budget pass a share of its limit.
        """
        ...

    async def renew(self, budgets: Sequence[Budget], holds: Sequence[str]) -> None:
        """Keep these holds for another lease, those that lapsed meanwhile included; those settled stay settled."""
        ...

    async def standings(self, budgets: Sequence[Budget]) -> tuple[Standing, ...]:
        """Return how every limit stands, in the order of the budgets and of their limits."""
        ...

    async def close(self) -> None: ...
