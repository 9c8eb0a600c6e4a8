"""What requests do with budgets: claim the worst case before each attempt, settle the true cost at the end, always.

Owns which budgets a request has, the holds of this process, and what is still owed to a store that is away. Knows no HTTP.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from gateway.errors import LimitExceeded, LimitsUnavailable
from gateway.limits.base import NOTHING, Amounts, Budget, Limits, Refusal, Standing
from gateway.limits.reckoning import SOON_S
from gateway.limits.refusals import exceeded, headers

LOG = logging.getLogger("gateway.limits")
GRACE_S = 0.03  # a client that has its answer may call again before its call before was settled: a refusal looks twice
OWED = 10_000  # settlements kept for a store that is away; beyond that the oldest are lost, and the log says so
AGAIN_S = 1.0


class Watcher(Protocol):
    """Who is told how budgets stand. All methods are cheap and never raise."""

    def stands(self, standings: Sequence[Standing]) -> None:
        """Whenever a store has told it."""
        ...

    def settled(self, standings: Sequence[Standing], spent: Amounts) -> None:
        """When a call has been counted: how its budgets stand with it, once for each call over all processes."""
        ...


class Reservations:
    """All reservations of one process. `store` None: no budget is configured, and everything is let through."""

    def __init__(
        self,
        store: Limits | None = None,
        budgets: Sequence[Budget] = (),
        *,
        lease_s: float = 60,
        new_id: Callable[[], str] = lambda: "",
        watchers: Sequence[Watcher] = (),
    ) -> None:
        self._store, self._lease_s, self.new_id, self.watchers = store, lease_s, new_id, tuple(watchers)
        self.budgets = tuple(budgets)
        self._by_name: Mapping[str, Budget] = {each.name: each for each in budgets}
        self._live: dict[str, Reservation] = {}
        self._owed: list[tuple[tuple[Budget, ...], str, Amounts]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeper: asyncio.Task[None] | None = None

    def open(self, key: str) -> "Reservation":
        """Return the reservation of one request by the key of this name. It holds nothing yet; it must be closed."""
        return Reservation(self, key)

    async def standings(self) -> tuple[Standing, ...]:
        """Return how every configured limit stands. Raises LimitsUnavailable."""
        if self._store is None or not self.budgets:
            return ()
        found = await self._store.standings(self.budgets)
        self.tell(found)
        return found

    def of(self, route: str, key: str) -> tuple[Budget, ...]:
        """Return the budgets that a call of this route by this key counts against."""
        names = (f"route:{route}", f"key:{key}")
        return tuple(self._by_name[name] for name in names if name in self._by_name)

    async def reserve(self, held: "Reservation", number: int, amounts: Amounts) -> dict[str, str]:
        """Reserve, and return the headers that tell how rates stand. Raises LimitExceeded and LimitsUnavailable."""
        assert self._store is not None
        verdict = await self._store.reserve(held.budgets, held.id, number, amounts)
        if isinstance(verdict, Refusal) and verdict.wait_s == SOON_S and not verdict.never:
            await asyncio.sleep(GRACE_S)
            verdict = await self._store.reserve(held.budgets, held.id, number, amounts)
        self.tell(verdict.standings)
        if isinstance(verdict, Refusal):
            raise exceeded(verdict)
        return headers(verdict.standings)

    def keep(self, held: "Reservation") -> None:
        """Renew this one until it is settled or let go."""
        self._live[held.id] = held
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep())

    def let_go(self, held: "Reservation") -> None:
        self._live.pop(held.id, None)

    def tell(self, standings: Sequence[Standing]) -> None:
        for each in self.watchers:
            each.stands(standings)

    def settle(self, held: "Reservation", spent: Amounts) -> None:
        """Settle in a task of its own: the request's own may be cancelled again and again."""
        self.let_go(held)
        task = asyncio.get_running_loop().create_task(self._settle(held, spent))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _settle(self, held: "Reservation", spent: Amounts) -> None:
        if held.asking is not None:  # a claim whose asker has gone may still be under way, and would come after its end
            await asyncio.gather(held.asking, return_exceptions=True)
        await self._pay(held.budgets, held.id, spent)

    async def _pay(self, budgets: tuple[Budget, ...], hold: str, spent: Amounts) -> bool:
        assert self._store is not None
        try:
            found = await self._store.settle(budgets, hold, spent)
        except LimitsUnavailable as error:
            LOG.warning("what a call cost waits for the store of budgets: %s", error.message)
            self._owed.append((budgets, hold, spent))
            if len(self._owed) > OWED:
                LOG.error("what %d calls cost is lost: the store of budgets was away for too long", len(self._owed) - OWED)
                del self._owed[: len(self._owed) - OWED]
            return False
        self.tell(found)
        for each in self.watchers:
            each.settled(found, spent)
        return True

    async def _keep(self) -> None:
        """Renew what runs, three times a lease, and pay what is owed, until the process ends."""
        assert self._store is not None
        pause_s = min(self._lease_s / 3, AGAIN_S)
        renewed_at = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(pause_s)
            await self._pay_owed()
            now = asyncio.get_running_loop().time()
            if now - renewed_at < self._lease_s / 3:
                continue
            try:
                for budget in self.budgets:
                    if holds := [each.id for each in self._live.values() if budget in each.budgets]:
                        await self._store.renew((budget,), holds)
                renewed_at = now
            except LimitsUnavailable as error:  # lapsed holds come back with the next renewal, or with their settlement
                LOG.warning("the holds of running calls cannot be renewed: %s", error.message)

    async def _pay_owed(self) -> None:
        owed, self._owed = self._owed, []
        for at, each in enumerate(owed):
            if not await self._pay(*each):
                self._owed += owed[at + 1 :]
                return

    def use(self, budgets: Sequence[Budget]) -> None:
        """Take these budgets from now on; calls that run end against those that they began with."""
        self.budgets, self._by_name = tuple(budgets), {each.name: each for each in budgets}

    async def drain(self, timeout_s: float) -> None:
        """Settle what has ended, at most so long, and let go of the store."""
        if self._keeper is not None:
            self._keeper.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_s)
        if self._store is not None:
            await self._pay_owed()
            if self._owed:
                LOG.error("what %d calls cost could not be counted; their holds lapse by themselves", len(self._owed))
            await self._store.close()


class Reservation:
    """What one request holds. Each claim is ended by `spent`, in any order; `close` says that no claim follows.

    When the last claim has ended and it is closed, all of it is settled in one step.
    """

    def __init__(self, desk: Reservations, key: str) -> None:
        self._desk, self._key = desk, key
        self.id = ""
        self.budgets: tuple[Budget, ...] = ()
        self.asking: asyncio.Task[dict[str, str]] | None = None
        self._number = 0
        self._open: list[Amounts] = []
        self._spent = NOTHING
        self._held = False  # whether the store may hold something under our id
        self._closed = False

    async def claim(self, route: str, worst: Amounts) -> dict[str, str]:
        """Reserve the worst case of one more attempt, and return what response headers say of the rates.

        Raises LimitExceeded when a budget would be passed, LimitsUnavailable when that cannot be known: nothing may be
        sent then. An attempt before this one that has not ended stays reserved too.
        """
        if not self._number:
            self.budgets = self._desk.of(route, self._key)
        if not self.budgets:
            return {}
        self.id = self.id or self._desk.new_id()
        self._number += 1
        held, self._held = self._held, True
        amounts = sum(self._open, self._spent + worst)
        self._desk.keep(self)
        self.asking = asyncio.get_running_loop().create_task(self._desk.reserve(self, self._number, amounts))
        try:
            found = await asyncio.shield(self.asking)
        except LimitExceeded:
            self._held = held
            raise
        self._open.append(worst)
        return found

    def spent(self, amounts: Amounts, worst: Amounts) -> None:
        """End the claim of this worst case with what it cost."""
        if self.budgets:
            self._open.remove(worst)
            self._spent += amounts
            self._end()

    def close(self) -> None:
        """No claim follows."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        if not self._closed or self._open:
            return
        if self._held:
            self._held = False
            self._desk.settle(self, self._spent)
        else:
            self._desk.let_go(self)
