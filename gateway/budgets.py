"""The budgets that settings name, and the store that counts them: what `wiring` is for everything else."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from gateway.errors import ConfigurationError
from gateway.limits.base import Budget, Limits, Unit
from gateway.limits.redis import RedisLimits
from gateway.limits.sqlite import SQLiteLimits
from gateway.pipeline import Aim
from gateway.settings import Settings


def open_limits(settings: Settings) -> Limits:
    """Return the store of budgets, which is where the ledger is: the same Redis, or a file beside the ledger's."""
    ledger, lease_s = settings.ledger, settings.budgets.lease_s
    url = ledger.url.reveal()
    if url.startswith("sqlite:"):
        path = url.removeprefix("sqlite:").removeprefix("//") or "gateway.db"
        return SQLiteLimits(f"{path}-budgets", ledger.timeout_s, lease_s)
    return RedisLimits(url, ledger.timeout_s, lease_s, ledger.pool)


def budgets_of(settings: Settings, aims: Mapping[tuple[str, str], Aim]) -> tuple[Budget, ...]:
    """Return every budget that is configured. ConfigurationError where money is counted and a target's price is not known.

    An unknown cost is not 0: such a budget would never be used up.
    """
    routes = [Budget(route=each.name, limits=each.budget.limits) for each in settings.routes]
    keys = [Budget(key=each.name, limits=each.limits) for each in settings.auth.keys]
    paid = {each.route for each in routes if _counts_money(each)}
    for key, budget in zip(settings.auth.keys, keys, strict=True):
        if _counts_money(budget):
            paid |= {each.name for each in settings.routes if any(fnmatchcase(each.name, pattern) for pattern in key.routes)}
    unpriced = sorted({aim.target.name for (route, _), aim in aims.items() if aim.prices is None and route in paid})
    if unpriced:
        raise ConfigurationError(
            f"a budget of money (`spend`) covers targets whose price is not known: {', '.join(unpriced)}; "
            "give each `prices: {input: …, output: …}` in USD per million tokens (0 where it is free), or leave `spend` out"
        )
    return tuple(each for each in (*routes, *keys) if each.limits)


def _counts_money(budget: Budget) -> bool:
    return any(limit.unit is Unit.USD for limit in budget.limits)
