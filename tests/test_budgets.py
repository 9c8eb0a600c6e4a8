import asyncio
from pathlib import Path

import pytest

from gateway.budgets import budgets_of, open_limits
from gateway.errors import ConfigurationError
from gateway.limits.redis import RedisLimits
from gateway.limits.sqlite import SQLiteLimits
from gateway.settings import Settings, load
from gateway.wiring import aims_of, upstream_of

HASH = "0" * 64
TEXT = """
ledger: {url: 'LEDGER'}
auth: {keys: [{name: k, sha256: 'HASH', routes: ['paid*'], KEY}]}
providers: {up: {base_url: 'http://127.0.0.1:9/v1', api_key: none}}
routes:
  - {name: paid, models: [p], targets: [{provider: up, model: nobody-knows-it, window_tokens: 1000, PRICES}], budget: {ROUTE}}
  - {name: free, models: [f], targets: [{provider: up, model: nor-this, window_tokens: 1000}]}
""".replace("HASH", HASH)  # fmt: skip


def settings(
    *, key: str = "tenant: t", route: str = "margin: 0.02", prices: str = "safety: 1.0", ledger: str = "sqlite:x.db"
) -> Settings:
    text = TEXT.replace("KEY", key).replace("ROUTE", route).replace("PRICES", prices).replace("LEDGER", ledger)
    return load(text, source="test", env={})


def names(made: Settings) -> list[str]:
    aims = aims_of(made, {name: upstream_of(each) for name, each in made.providers.items()})
    return [f"{each.name}: {', '.join(limit.name for limit in each.limits)}" for each in budgets_of(made, aims)]


def test_only_routes_and_keys_with_limits_have_a_budget() -> None:
    assert names(settings()) == []
    assert len(names(settings(route="max_parallel: 2, tokens: {limit: 5, per: day}"))) == 1
    assert len(names(settings(key="budget: {requests_per_minute: 3}", route="max_parallel: 2"))) == 2


@pytest.mark.parametrize("where", ["route", "key"])
def test_money_on_a_target_without_prices_is_refused(where: str) -> None:
    money = "spend: {usd: 1, per: day}"
    limits = {"route": money} if where == "route" else {"key": f"budget: {{{money}}}"}
    with pytest.raises(ConfigurationError, match="up/nobody-knows-it") as error:
        names(settings(**limits))

    assert "nor-this" not in error.value.message
    assert len(names(settings(**limits, prices="prices: {input: 1, output: 2}"))) == 1


def test_budgets_are_counted_where_the_ledger_is(tmp_path: Path) -> None:
    async def run() -> None:
        for url, kind in ((f"sqlite:{tmp_path / 'l.db'}", SQLiteLimits), ("redis://127.0.0.1:9/0", RedisLimits)):
            store = open_limits(settings(ledger=url))
            assert type(store) is kind
            await store.close()

    asyncio.run(run())
