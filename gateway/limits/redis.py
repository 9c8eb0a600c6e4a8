"""Budgets counted on Redis, by any number of processes: a script for each budget keeps its books in one step.

The keys of a budget are of one slot, those of two budgets need not be: a claim goes to all of its budgets in one trip, and
what some granted is undone when another refuses. Between both another call may be refused for the sake of a claim that
then fails; none is ever granted too much. The server's clock counts, so that gateways need not agree on the time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import redis.asyncio
from redis import exceptions
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.errors import LimitsUnavailable
from gateway.limits import reckoning
from gateway.limits.base import NOTHING, Amounts, Budget, Granted, Hold, Refusal, Standing, Tally, Unit
from gateway.limits.lua import BOOKS, BOOKS_SHA

PREFIX = "gw:budget:"
KEYS = ("tally", "minute", "holds", "live", "lapsed")
Answer = list[bytes | int]
Command = tuple[Budget, tuple[str | int, ...]]


class RedisLimits:
    """See `base.Limits`. The URL is `redis://`, `rediss://` or `unix://`; it never shows in an error."""

    def __init__(
        self, url: str, timeout_s: float, lease_s: float, pool: int = 16, *, clock: Callable[[], float] | None = None
    ) -> None:
        self._timeout_s, self._lease_s, self._clock = timeout_s, lease_s, clock
        self._pool = redis.asyncio.BlockingConnectionPool.from_url(
            url,
            max_connections=pool,
            timeout=timeout_s,
            protocol=2,
            decode_responses=False,
            socket_connect_timeout=timeout_s,
            socket_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
        )
        self._client = redis.asyncio.Redis(connection_pool=self._pool)

    async def reserve(self, budgets: Sequence[Budget], hold: str, number: int, amounts: Amounts) -> Granted | Refusal:
        words = ("reserve", hold, number, amounts.usd, amounts.tokens)
        answers = await self._run([(budget, words) for budget in budgets])
        read = [(budget, *_read(budget, answer)) for budget, answer in zip(budgets, answers, strict=True)]
        refused = [
            (budget, tally, held) for budget, answer, (_, tally, held) in zip(budgets, answers, read, strict=True) if not answer[0]
        ]
        if not refused:
            return reckoning.granted(read)
        if undone := [_undo(budget, hold, number, held) for budget, tally, held in read if (budget, tally, held) not in refused]:
            await self._run(undone)
        return reckoning.refusal(refused, amounts, number)

    async def settle(self, budgets: Sequence[Budget], hold: str, spent: Amounts) -> tuple[Standing, ...]:
        return await self._standings(budgets, ("settle", hold, spent.usd, spent.tokens))

    async def renew(self, budgets: Sequence[Budget], holds: Sequence[str]) -> None:
        await self._run([(budget, ("renew", *holds)) for budget in budgets])

    async def standings(self, budgets: Sequence[Budget]) -> tuple[Standing, ...]:
        return await self._standings(budgets, ("standing",))

    async def _standings(self, budgets: Sequence[Budget], words: tuple[str | int, ...]) -> tuple[Standing, ...]:
        answers = await self._run([(budget, words) for budget in budgets])
        return tuple(
            each
            for budget, answer in zip(budgets, answers, strict=True)
            if answer[0]
            for each in reckoning.standings(budget, _read(budget, answer)[0])
        )

    async def close(self) -> None:
        await self._pool.disconnect(inuse_connections=True)

    async def _run(self, commands: Sequence[Command]) -> list[Answer]:
        """Return the script's answer to each command, in one trip. A lost answer is asked for once more: all of it counts once."""
        try:
            async with asyncio.timeout(self._timeout_s):
                try:
                    return await self._trip(commands)
                except exceptions.NoScriptError:
                    await cast(Awaitable[Any], self._client.script_load(BOOKS))
                    return await self._trip(commands)
                except (exceptions.ConnectionError, exceptions.ReadOnlyError, OSError) as error:
                    if isinstance(error, exceptions.AuthenticationError | exceptions.BusyLoadingError):
                        raise
                    await self._pool.disconnect(inuse_connections=False)  # they had gone stale, or lead to a server that gave way
                    return await self._trip(commands)
        except TimeoutError:
            raise LimitsUnavailable(f"the store of budgets did not answer within {self._timeout_s:g} s") from None
        except (exceptions.RedisError, OSError) as error:
            # `from None`: the library's error names the server's address.
            raise LimitsUnavailable(f"the store of budgets failed ({type(error).__name__})") from None

    async def _trip(self, commands: Sequence[Command]) -> list[Answer]:
        now = "" if self._clock is None else f"{self._clock():.6f}"
        async with self._client.pipeline(transaction=False) as pipe:
            for budget, words in commands:
                limits = " ".join(f"{limit.name} {limit.amount}" for limit in budget.limits)
                pipe.evalsha(BOOKS_SHA, len(KEYS), *_keys(budget), words[0], now, str(self._lease_s), limits, *words[1:])
            return await pipe.execute()


def _keys(budget: Budget) -> list[str]:
    return [f"{{{PREFIX}{budget.name}}}:{name}" for name in KEYS]


def _undo(budget: Budget, hold: str, number: int, held: Hold | None) -> Command:
    if held is not None and held.number >= number:  # granted before, and asked for again: what was there before is not known
        return budget, ("standing",)
    before = held or Hold(number=0, amounts=NOTHING, second=0)
    return budget, ("undo", hold, before.number, before.amounts.usd, before.amounts.tokens)


def _read(budget: Budget, answer: Answer) -> tuple[Tally, Hold | None]:
    """Return the tally that the script reports, and what the hold had before."""
    now, rest = float(answer[1]), [bytes(each) for each in answer[2:] if isinstance(each, bytes)]
    periods = [limit.name for limit in budget.limits if limit.per.is_period]
    at = 2 * len(periods)
    used = {name: (int(rest[2 * index + 1]), int(rest[2 * index])) for index, name in enumerate(periods)}
    usd, tokens, calls, number, held_usd, held_tokens, second = map(int, rest[at : at + 7])
    minute: dict[Unit, dict[int, int]] = {}
    pairs = rest[at + 7 :]
    for field, count in zip(pairs[::2], pairs[1::2], strict=True):
        unit, _, when = field.decode().partition(":")
        minute.setdefault(Unit(unit), {})[int(when)] = int(count)
    tally = Tally(now=now, used=used, minute=minute, reserved=Amounts(usd=usd, tokens=tokens), calls=calls)
    held = Hold(number=number, amounts=Amounts(usd=held_usd, tokens=held_tokens), second=second) if number else None
    return tally, held
