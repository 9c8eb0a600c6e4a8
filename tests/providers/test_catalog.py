"""The catalog on the map that the litellm package ships, and on small maps of our own."""

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from gateway.errors import ConfigurationError
from gateway.providers.catalog import Row, lookup, tokenizer
from gateway.routing import Prices


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-5", Row(window=400_000, input_limit=272_000, output_limit=128_000)),
        ("gpt-5.6", Row(window=1_050_000, input_limit=922_000, output_limit=128_000)),
        ("gpt-6.1-sol", Row(window=1_050_000, input_limit=922_000, output_limit=128_000)),
        ("gpt-5.5", Row(window=1_050_000, output_limit=128_000)),
        ("gpt-5.4", Row(window=1_050_000, output_limit=128_000)),
        ("gpt-5-chat-latest", Row(window=128_000, output_limit=16_384)),
        ("gpt-5.1-codex", Row(window=400_000, output_limit=128_000)),
        ("gpt-4o", Row(window=128_000, output_limit=16_384)),
        ("gpt-4.1", Row(window=1_047_576, output_limit=32_768)),
        ("claude-sonnet-5-5", Row(window=1_000_000, output_limit=128_000)),
    ],
)
def test_windows_are_read_by_what_the_row_means(model: str, expected: Row) -> None:
    row = lookup([("main", model)])["main", model]

    assert (row.window, row.input_limit, row.output_limit) == (expected.window, expected.input_limit, expected.output_limit)


def test_a_row_of_the_provider_is_found_and_goes_first(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text(json.dumps({"m": {"max_input_tokens": 10}, "gemini/m": {"max_input_tokens": 20.0}, "sample_spec": {}}))

    found = lookup([("gemini", "m"), ("other", "m"), ("gemini", "n"), ("x", "sample_spec")], path)

    assert found == {("gemini", "m"): Row(window=20), ("other", "m"): Row(window=10)}
    assert lookup([("xai", "grok-4.7")])["xai", "grok-4.7"].window == 500_000


def test_prices_are_per_million(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    costs = {"input_cost_per_token": 2.5e-06, "output_cost_per_token": 1e-05, "cache_read_input_token_cost": 0.0}
    path.write_text(
        json.dumps(
            {"m": costs, "free": {"input_cost_per_token": 0, "output_cost_per_token": 0}, "half": {"input_cost_per_token": 1}}
        )
    )

    found = lookup([("p", "m"), ("p", "free"), ("p", "half")], path)

    assert found["p", "m"].prices == Prices(input=2.5, cached=0.0, output=10.0)
    assert found["p", "free"].prices == Prices(input=0.0, output=0.0)
    assert found["p", "half"].prices is None


def test_long_contexts_have_prices_of_their_own() -> None:
    prices = lookup([("main", "gpt-5.6")])["main", "gpt-5.6"].prices

    assert prices is not None
    assert (prices.input, prices.cached, prices.cache_write, prices.cache_write_long) == pytest.approx((4, 0.4, 5, 10))
    assert [tier.above_tokens for tier in prices.tiers] == [272_000]
    longer = prices.at(272_001)
    assert (longer.input, longer.cached, longer.cache_write, longer.cache_write_long, longer.output) == pytest.approx(
        (8, 0.8, 10, 20, 30)
    )
    assert prices.at(272_000) is prices


def test_a_price_that_a_tier_leaves_out_grows_as_the_inputs(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    costs = {"input_cost_per_token": 1e-06, "output_cost_per_token": 5e-06, "cache_read_input_token_cost": 1e-07}
    path.write_text(json.dumps({"m": costs | {"input_cost_per_token_above_200k_tokens": 2e-06}}))

    prices = lookup([("p", "m")], path)["p", "m"].prices

    assert prices is not None
    longer = prices.at(200_001)
    assert (longer.input, longer.cached, longer.output) == pytest.approx((2.0, 0.2, 5.0))


@pytest.mark.parametrize("value", [None, "set to max input tokens", 0, -5, True, [1], {"a": 1}])
def test_a_figure_that_is_none_is_not_known(tmp_path: Path, value: object) -> None:
    path = tmp_path / "map.json"
    path.write_text(json.dumps({"m": {"max_input_tokens": value, "max_output_tokens": value}}))

    assert lookup([("p", "m")], path) == {("p", "m"): Row()}


def test_a_map_that_cannot_be_read_is_a_configuration_error(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text("{")

    with pytest.raises(ConfigurationError, match=r"map\.json cannot be read"):
        lookup([("p", "m")], path)
    with pytest.raises(ConfigurationError, match=r"none\.json cannot be read"):
        lookup([("p", "m")], tmp_path / "none.json")


def test_the_map_is_not_kept() -> None:
    lookup([("p", "gpt-4o")])
    tracemalloc.start()
    found = lookup([("p", "gpt-4o"), ("p", "gpt-5")])
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(found) == 2
    assert kept < 100_000 < peak


def test_litellm_is_never_imported() -> None:
    code = "import sys; from gateway.providers import catalog; catalog.lookup([('p', 'gpt-4o')]); print('litellm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        *((model, "o200k_base") for model in ("gpt-4o-mini", "gpt-4.1", "gpt-5.6-sol", "openai/gpt-6.1-sol", "o3-mini", "o1")),
        *((model, "o200k_base") for model in ("gpt-7", "gpt-oss-120b", "chatgpt-4o-latest")),
        *((model, "cl100k_base") for model in ("gpt-4", "gpt-4-turbo", "gpt-3.5-turbo", "gpt-35-turbo", "text-embedding-3-small")),
        *((model, "bytes") for model in ("claude-sonnet-5-5", "gemini-3-pro", "deepseek-chat", "o100-llama", "")),
    ],
)
def test_the_tokenizer_follows_the_name(model: str, expected: str) -> None:
    assert tokenizer(model) == expected
