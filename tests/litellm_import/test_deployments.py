from typing import Any

import pytest

from gateway.litellm_import.deployments import Deployments, number
from gateway.litellm_import.tables import Fate


def added(**params: Any) -> Deployments:
    made = Deployments()
    made.add(("model_list", 0), {"model_name": "m", "litellm_params": params})
    return made


@pytest.mark.parametrize(
    ("params", "name", "provider"),
    [
        ({"model": "gpt-5.6"}, "openai", {"base_url": "https://api.openai.com/v1", "api_key": "${OPENAI_API_KEY}"}),
        ({"model": "claude-x"}, "anthropic",
         {"kind": "anthropic", "base_url": "https://api.anthropic.com", "api_key": "${ANTHROPIC_API_KEY}"}),
        ({"model": "ollama/q", "api_base": "http://h:1/v1"}, "ollama", {"base_url": "http://h:1/v1", "api_key": "none"}),
        ({"model": "ollama/q", "api_base": "http://h:1/"}, "ollama", {"base_url": "http://h:1/v1", "api_key": "none"}),
        ({"model": "openai/a/b", "api_base": "os.environ/BASE", "api_key": "os.environ/K"}, "openai",
         {"base_url": "${BASE}", "api_key": "${K}"}),
        ({"model": "bedrock/x", "aws_region_name": "r", "aws_secret_access_key": "s"}, "bedrock",
         {"kind": "litellm", "litellm_provider": "bedrock", "api_key": "none",
          "options": {"aws_region_name": "r", "aws_secret_access_key": "${AWS_SECRET_ACCESS_KEY}"}}),
        ({"model": "azure/d 1", "api_base": "https://a/", "api_key": "os.environ/K", "api_version": "v"}, "azure",
         {"base_url": "https://a/openai/deployments/d%201", "api_key": "none", "headers": {"api-key": "${K}"},
          "query": {"api-version": "v"}}),
        ({"model": "x", "custom_llm_provider": "openai", "api_base": "http://h/v1", "api_key": "none", "timeout": 3,
          "stream_timeout": "4"},
         "openai", {"base_url": "http://h/v1", "api_key": "none", "timeout": {"total_s": 3, "first_byte_s": 4}}),
    ],
)  # fmt: skip
def test_a_deployment_becomes_a_provider(params: dict[str, Any], name: str, provider: dict[str, Any]) -> None:
    assert {name: provider} == added(**params).providers


def test_equal_providers_are_one_and_others_are_counted() -> None:
    made = added(model="openai/a")
    made.add(("model_list", 1), {"model_name": "n", "litellm_params": {"model": "openai/b"}})
    made.add(("model_list", 2), {"model_name": "n", "litellm_params": {"model": "openai/b", "api_key": "os.environ/OTHER"}})

    assert list(made.providers) == ["openai", "openai-2"]
    assert [target["provider"] for target in made.routes["n"]["targets"]] == ["openai", "openai-2"]


def test_rates_of_deployments_add_up_and_prices_are_per_million() -> None:
    made = added(model="openai/a", rpm=5, input_cost_per_token="1e-6", output_cost_per_token=0.000002)
    made.add(("model_list", 1), {"model_name": "m", "litellm_params": {"model": "azure/a", "rpm": 6}})

    assert made.routes["m"]["budget"] == {"requests_per_minute": 11}
    assert made.routes["m"]["targets"][0]["prices"] == {"input": 1, "output": 2}


def test_a_key_in_the_file_moves_to_the_environment() -> None:
    made = added(model="groq/a", api_key="gsk-literal")

    assert made.providers["groq"]["api_key"] == "${GROQ_API_KEY}"
    assert made.said["model_list", 0, "litellm_params", "api_key"][0] is Fate.CHANGED


@pytest.mark.parametrize(("value", "read"), [("1e-5", 1e-5), (3, 3), (3.0, 3), (True, None), (None, None), ("x", None), (-1, None)])
def test_numbers_are_read_as_litellm_reads_them(value: object, read: float | None) -> None:
    assert read == number(value)
