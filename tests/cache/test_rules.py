import re
from dataclasses import fields

import pytest

from gateway.cache import rules
from gateway.cache.rules import OVERRIDES, TABLE, Mark, Rule, Stable, Trigger, overridden, resolve

OPENAI, CLAUDE = "api.openai.com", "api.anthropic.com"


@pytest.mark.parametrize(
    ("host", "model", "name", "trigger", "minimum", "step"),
    [
        (OPENAI, "gpt-5.6", "openai", Trigger.BOUNDARIES, 1_024, 1),
        (OPENAI, "gpt-6.1-sol", "openai", Trigger.BOUNDARIES, 1_024, 1),
        (OPENAI, "gpt-5.5", "openai_5_5", Trigger.AUTOMATIC, 1_024, 2_048),
        (OPENAI, "gpt-5.4-mini", "openai_older", Trigger.AUTOMATIC, 1_024, 128),
        (OPENAI, "gpt-4o", "openai_older", Trigger.AUTOMATIC, 1_024, 128),
        ("x.openai.azure.com", "gpt-5.6", "azure", Trigger.BOUNDARIES, 1_024, 1),
        ("x.openai.azure.com", "gpt-35-turbo", "azure_older", Trigger.AUTOMATIC, 1_024, 128),
        ("x.openai.azure.com", "gpt-4o", "azure_older", Trigger.AUTOMATIC, 1_024, 128),
        (CLAUDE, "claude-opus-5-5", "anthropic", Trigger.MARKS, 512, 1),
        (CLAUDE, "claude-sonnet-5-5", "anthropic", Trigger.MARKS, 512, 1),
        (CLAUDE, "claude-sonnet-5", "anthropic", Trigger.MARKS, 1_024, 1),
        (CLAUDE, "claude-sonnet-4-6", "anthropic", Trigger.MARKS, 1_024, 1),
        (CLAUDE, "claude-opus-4-8", "anthropic", Trigger.MARKS, 1_024, 1),
        (CLAUDE, "claude-opus-4-1-20250805", "anthropic", Trigger.MARKS, 1_024, 1),
        (CLAUDE, "claude-opus-4-7", "anthropic", Trigger.MARKS, 2_048, 1),
        (CLAUDE, "claude-3-5-haiku-latest", "anthropic", Trigger.MARKS, 2_048, 1),
        (CLAUDE, "claude-haiku-4-5", "anthropic", Trigger.MARKS, 4_096, 1),
        ("generativelanguage.googleapis.com", "gemini-2.5-pro", "gemini", Trigger.AUTOMATIC, 2_048, 1),
        ("generativelanguage.googleapis.com", "gemini-3.1-pro", "gemini", Trigger.AUTOMATIC, 4_096, 1),
        ("api.deepseek.com", "deepseek-chat", "deepseek", Trigger.AUTOMATIC, 64, 64),
        ("api.x.ai", "grok-4.5", "xai", Trigger.AUTOMATIC, 1_024, 128),
        ("api.mistral.ai", "mistral-large-latest", "mistral", Trigger.AUTOMATIC, 64, 64),
        ("api.groq.com", "openai/gpt-oss-120b", "groq", Trigger.AUTOMATIC, 1_024, 1),
        ("api.moonshot.ai", "kimi-k3", "moonshot", Trigger.AUTOMATIC, 256, 256),
        ("dashscope-intl.aliyuncs.com", "qwen3-max", "qwen", Trigger.AUTOMATIC, 1_024, 1),
        ("openrouter.ai", "anthropic/claude-opus-5", "openrouter", Trigger.MARKS, 512, 1),
        ("openrouter.ai", "openai/gpt-5.6", "openrouter", Trigger.BOUNDARIES, 1_024, 1),
        ("openrouter.ai", "openrouter/auto", "openrouter", Trigger.AUTOMATIC, 1_024, 1),
        ("127.0.0.1", "anything", "prefix", Trigger.AUTOMATIC, 1_024, 1),
    ],
)
def test_each_provider_has_its_rule(host: str, model: str, name: str, trigger: Trigger, minimum: int, step: int) -> None:
    rule = resolve("auto", host=host, model=model)

    assert (name, trigger, minimum, step) == (rule.name, rule.trigger, rule.minimum_tokens, rule.step_tokens)


@pytest.mark.parametrize(
    ("litellm_provider", "model", "name", "minimum"),
    [
        ("bedrock", "anthropic.claude-opus-4-7", "bedrock", 4_096),
        ("bedrock", "amazon.nova-pro", "prefix", 1_024),
        ("vertex_ai", "claude-opus-5", "anthropic", 512),
        ("vertex_ai", "gemini-2.5-pro", "gemini", 2_048),
        ("cohere", "command-r", "prefix", 1_024),
        ("groq", "llama", "groq", 1_024),
    ],
)
def test_a_provider_behind_litellm_has_its_own_rule(litellm_provider: str, model: str, name: str, minimum: int) -> None:
    rule = resolve("auto", host="", model=model, kind="litellm", litellm_provider=litellm_provider)

    assert (name, minimum) == (rule.name, rule.minimum_tokens)


def test_the_native_adapter_has_the_anthropic_rule_at_any_address() -> None:
    assert resolve("auto", host="127.0.0.1", model="claude-opus-5", kind="anthropic").name == "anthropic"


def test_a_name_in_the_settings_goes_before_the_host() -> None:
    assert resolve("anthropic", host=OPENAI, model="m").trigger is Trigger.MARKS
    assert resolve("none", host=OPENAI, model="m").trigger is Trigger.NONE


@pytest.mark.parametrize("rule", TABLE.values(), ids=lambda rule: rule.name)
def test_each_row_is_sound(rule: Rule) -> None:
    names = {each.name for each in fields(rule)}

    assert set(rule.uncertain) <= names
    assert (rule.mark is None) == (rule.maximum_marks == 0)
    assert rule.trigger is not Trigger.MARKS or rule.look_back == 20
    assert rule.maximum_marks <= 4
    assert (rule.key_field is None and rule.header is None) or rule.stable is not None
    assert rule.lifetime_s > 0
    assert rule.step_tokens >= 1
    assert rule.name == "none" or rule.minimum_tokens >= 1
    assert all(re.compile(pattern) for pattern, _ in (*rule.minimums, *rule.reads))
    assert (rule.write_long is None) <= (rule.long_lifetime_s is None or rule.write == 1.0)


def test_reads_cost_what_the_model_says() -> None:
    def read(host: str, model: str) -> float | None:
        return resolve("auto", host=host, model=model).read

    assert [read(OPENAI, model) for model in ("gpt-4o", "gpt-4.1", "gpt-5.4")] == [0.5, 0.25, 0.1]
    assert [read(CLAUDE, model) for model in ("claude-opus-5", "claude-opus-5-5", "claude-fable-5-1")] == [0.1, 0.05, 0.025]


def test_hints_are_stable_by_what_the_provider_wants() -> None:
    """OpenAI's key parts caches, so one for each conversation would lose what they share; xAI's pins a conversation."""
    openai, xai = resolve("auto", host=OPENAI, model="gpt-5.6"), resolve("auto", host="api.x.ai", model="grok-4.7")

    assert (openai.key_field, openai.header, openai.stable) == ("prompt_cache_key", None, Stable.PREFIX)
    assert (xai.key_field, xai.header, xai.stable) == (None, "x-grok-conv-id", Stable.LINEAGE)
    assert resolve("auto", host="openrouter.ai", model="openai/gpt-5.6").header == "x-session-id"


def test_marks_are_spelled_as_the_provider_takes_them() -> None:
    assert resolve("auto", host=OPENAI, model="gpt-5.6").mark is Mark.BREAKPOINT
    assert resolve("auto", host=OPENAI, model="gpt-5.4").mark is None
    assert resolve("auto", host="openrouter.ai", model="anthropic/claude-opus-5").mark is Mark.CACHE_CONTROL


def test_settings_override_a_figure_and_settle_it() -> None:
    rule = overridden(TABLE["prefix"], {"minimum_tokens": 16, "lifetime_s": None, "read": 0.2})

    assert (rule.minimum_tokens, rule.lifetime_s, rule.read) == (16, 300.0, 0.2)
    assert rule.uncertain == ("lifetime_s",)
    assert set(OVERRIDES) <= {each.name for each in fields(Rule)}


def test_every_provider_of_the_reference_has_a_row() -> None:
    assert {
        "openai", "openai_older", "azure", "anthropic", "bedrock", "gemini", "deepseek", "xai", "mistral", "groq", "moonshot",
        "qwen", "qwen_explicit", "openrouter", "vllm", "sglang", "llamacpp", "ollama", "minimax", "zai", "together", "fireworks",
    } <= set(rules.NAMES)  # fmt: skip
