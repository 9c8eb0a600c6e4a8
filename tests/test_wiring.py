from pathlib import Path

import pytest

from gateway.errors import ConfigurationError
from gateway.ledger.redis import RedisLedger
from gateway.ledger.sqlite import SQLiteLedger
from gateway.providers.catalog import Row
from gateway.providers.windows import Limits
from gateway.settings import load
from gateway.wiring import new_id, open_ledger, policy_of, rule_of
from tests.test_app import TEXT, settings


def test_ids_are_distinct_and_sort_by_time() -> None:
    made = [new_id() for _ in range(1_000)]

    assert {len(each) for each in made} == {32}
    assert len(set(made)) == 1_000
    assert [each[:12] for each in made] == sorted(each[:12] for each in made)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_a_ledger_is_what_its_address_says(tmp_path: Path) -> None:
    for url, kind in ((f"sqlite:{tmp_path / 'a.db'}", SQLiteLedger), ("redis://127.0.0.1:9/0", RedisLedger)):
        ledger = open_ledger(url, 0.2)
        assert type(ledger) is kind
        await ledger.close()
    with pytest.raises(ConfigurationError, match=r"mongodb:"):
        open_ledger("mongodb://user:word@127.0.0.1/", 1)


def test_a_policy_takes_the_settings_first_then_the_catalog_then_careful_figures(caplog: pytest.LogCaptureFixture) -> None:
    made = settings()
    route, provider = made.routes[0], made.providers["up"]
    row = Row(window=8_000, output_limit=500, prices=None)
    unsized = load(TEXT.replace("window_tokens: 60, ", ""), source="test", env={}).routes[0].targets[0]

    named = policy_of(route, route.targets[0], provider, row)
    listed = policy_of(route, unsized, provider, row)
    split = policy_of(route, unsized, provider, Row(window=8_000, input_limit=6_000, output_limit=2_000, prices=None))
    unknown = policy_of(route, unsized, provider, None)
    told = policy_of(route, unsized, provider, row, Limits(window=4_000, input_limit=3_500))
    over = policy_of(route, route.targets[0], provider, row, Limits(window=4_000))

    assert (named.window.tokens, named.window.source, named.reserve_tokens, named.window.output_limit) == (60, "yaml", 15, 500)
    assert (listed.window.tokens, listed.window.source, listed.reserve_tokens) == (8_000, "litellm", 2_000)
    assert (split.window.tokens, split.ceiling_tokens) == (8_000, 6_000)
    assert (unknown.window.tokens, unknown.ceiling_tokens, unknown.reserve_tokens) == (None, 131_072, 8_192)
    assert (told.window.tokens, told.window.source, told.window.output_limit, told.ceiling_tokens) == (
        4_000,
        "provider",
        500,
        3_500,
    )
    assert (over.window.tokens, over.window.source) == (60, "yaml")
    assert [each.levelname for each in caplog.records] == ["WARNING"]


def test_a_ledger_url_that_cannot_be_read_is_said_without_it() -> None:
    with pytest.raises(ConfigurationError) as error:
        open_ledger("redis://user:secret@127.0.0.1:notaport/0", 1)

    assert "secret" not in error.value.message


def test_a_cache_rule_is_told_by_the_address_and_corrected_by_the_settings() -> None:
    text = "providers: {u: {base_url: 'https://api.mistral.ai/v1', api_key: none, cache: {lifetime_s: 77}}}\n"
    made = load(text + "routes: [{name: r, targets: [{provider: u, model: m}]}]", source="f", env={})

    rule = rule_of(made.providers["u"], "mistral-large-latest")

    assert (rule.name, rule.step_tokens, rule.lifetime_s) == ("mistral", 64, 77)
