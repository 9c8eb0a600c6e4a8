from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cache.usage import Usage, Wire, latest, of, openai_usage

NAN = float("nan")


def read(usage: Mapping[str, object]) -> Usage | None:
    return openai_usage({"usage": usage})


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 2}, Usage(input_tokens=10, output_tokens=2)),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0}}, Usage(input_tokens=10, cached_tokens=0)),
        (
            {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}, "cached_tokens": 5},
            Usage(input_tokens=10, cached_tokens=4),
        ),
        ({"prompt_tokens": 10, "prompt_tokens_details": None, "cached_tokens": 5}, Usage(input_tokens=10, cached_tokens=5)),
        (
            {"prompt_tokens": 396, "prompt_cache_hit_tokens": 256, "prompt_cache_miss_tokens": 140},
            Usage(input_tokens=396, cached_tokens=256),
        ),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 7}},
            Usage(input_tokens=9, cached_tokens=1, written_tokens=7),
        ),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cache_creation_input_tokens": 7}},
            Usage(input_tokens=9, written_tokens=7),
        ),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"created_cache_tokens": 7}}, Usage(input_tokens=9, written_tokens=7)),
        (
            {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 7}},
            Usage(output_tokens=9, reasoning_tokens=7),
        ),
        ({"prompt_tokens": 3.0}, Usage(input_tokens=3)),
    ],
)
def test_each_spelling_is_read(usage: Mapping[str, object], expected: Usage) -> None:
    assert expected == read(usage)


@pytest.mark.parametrize("figure", [True, -1, NAN, float("inf"), 1.5, "7", None, [7], 10**30])
def test_what_is_no_count_is_not_reported(figure: object) -> None:
    assert Usage(output_tokens=1) == read({"prompt_tokens": figure, "completion_tokens": 1})


@pytest.mark.parametrize("details", [{"cached_tokens": 11}, {"cached_tokens": 6, "cache_write_tokens": 5}])
def test_a_share_above_the_whole_is_unreported(details: Mapping[str, object]) -> None:
    """Aggregators pass figures of another format through; clipped they would look fine."""
    assert Usage(input_tokens=10) == read({"prompt_tokens": 10, "prompt_tokens_details": details})


def test_reasoning_that_only_the_total_shows_is_output() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 17, "completion_tokens_details": {"reasoning_tokens": 5}}

    assert Usage(input_tokens=10, output_tokens=7, reasoning_tokens=5) == read(usage)


@pytest.mark.parametrize(
    "answer",
    [
        {"x_groq": {"usage": {"prompt_tokens": 3}}},
        {"choices": [{"usage": {"prompt_tokens": 3}}], "usage": None},
        {"usage": {"prompt_tokens": 3}, "x_groq": {"usage": {"prompt_tokens": 4}}},
    ],
)
def test_other_places_are_read_once(answer: Mapping[str, object]) -> None:
    assert Usage(input_tokens=3) == openai_usage(answer)


@pytest.mark.parametrize("answer", [{}, {"usage": None}, {"usage": 3}, {"usage": {}}, {"choices": "x", "x_groq": []}])
def test_no_usage_is_none(answer: Mapping[str, object]) -> None:
    assert openai_usage(answer) is None


def test_the_last_value_of_each_figure_wins() -> None:
    first = Usage(input_tokens=10, cached_tokens=4, output_tokens=1)

    assert Usage(input_tokens=10, cached_tokens=4, output_tokens=9) == latest(first, Usage(output_tokens=9))
    assert first == latest(None, first) == latest(first, None)
    assert latest(None, None) is None


CHAT_5_6 = {
    "prompt_tokens": 2006, "completion_tokens": 300, "total_tokens": 2306,
    "prompt_tokens_details": {"cached_tokens": 1920, "cache_write_tokens": 80, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 64},
}  # fmt: skip
RESPONSES = {
    "input_tokens": 2006, "output_tokens": 300, "total_tokens": 2306, "output_tokens_details": {"reasoning_tokens": 64},
    "input_tokens_details": {
        "cached_tokens": 1920, "cache_write_tokens": 80, "cache_write_tokens_details": {"ttl_30m_tokens": 50, "ttl_12h_tokens": 30},
    },
}  # fmt: skip
MESSAGES = {
    "input_tokens": 6, "cache_creation_input_tokens": 80, "cache_read_input_tokens": 1920, "output_tokens": 300,
    "cache_creation": {"ephemeral_5m_input_tokens": 50, "ephemeral_1h_input_tokens": 30},
}  # fmt: skip
COMPACTION = {"type": "compaction", "input_tokens": 100, "cache_read_input_tokens": 10, "output_tokens": 40}
FULL = Usage(input_tokens=2006, cached_tokens=1920, written_tokens=80, output_tokens=300)

SHAPES: list[tuple[str, Wire, list[dict[str, object]], Usage | None, float | None]] = [
    ("openai chat", Wire.CHAT, [{"usage": CHAT_5_6}], replace(FULL, reasoning_tokens=64), 1920 / 2006),
    ("openai chat, streamed", Wire.CHAT,
     [{"choices": [{}], "usage": None}, {"choices": [], "usage": CHAT_5_6}], replace(FULL, reasoning_tokens=64), 1920 / 2006),
    ("azure: empty choices that are not the usage chunk", Wire.CHAT,
     [{"choices": [], "prompt_filter_results": []}, {"choices": [], "usage": CHAT_5_6}],
     replace(FULL, reasoning_tokens=64), 1920 / 2006),
    ("openai chat, cut before its usage", Wire.CHAT, [{"choices": [{}], "usage": None}], None, None),
    ("openai responses", Wire.RESPONSES, [{"object": "response", "usage": RESPONSES}],
     replace(FULL, reasoning_tokens=64, written_long_tokens=30), 1920 / 2006),
    ("openai responses, streamed", Wire.RESPONSES,
     [{"type": "response.created", "response": {"usage": None}}, {"type": "response.completed", "response": {"usage": RESPONSES}}],
     replace(FULL, reasoning_tokens=64, written_long_tokens=30), 1920 / 2006),
    ("anthropic", Wire.MESSAGES, [{"type": "message", "usage": MESSAGES}], replace(FULL, written_long_tokens=30), 1920 / 2006),
    ("anthropic, streamed: cumulative, the input side told once", Wire.MESSAGES,
     [{"type": "message_start", "message": {"usage": MESSAGES | {"output_tokens": 1}}},
      {"type": "message_delta", "usage": {"output_tokens": 20}}, {"type": "message_delta", "usage": {"output_tokens": 300}}],
     replace(FULL, written_long_tokens=30), 1920 / 2006),
    ("anthropic, streamed: the input side told again", Wire.MESSAGES,
     [{"type": "message_start", "message": {"usage": {
         "input_tokens": 210, "cache_creation_input_tokens": 3300, "cache_read_input_tokens": 100, "output_tokens": 1}}},
      {"type": "message_delta", "usage": {
          "input_tokens": 210, "cache_creation_input_tokens": 3300, "cache_read_input_tokens": 100, "output_tokens": 20}}],
     Usage(input_tokens=3610, cached_tokens=100, written_tokens=3300, output_tokens=20), 100 / 3610),
    ("anthropic, streamed: server tools raise the input", Wire.MESSAGES,
     [{"type": "message_start", "message": {"usage": {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 1}}},
      {"type": "message_delta", "usage": {"input_tokens": 110, "cache_read_input_tokens": None, "output_tokens": 20}}],
     Usage(input_tokens=200, cached_tokens=90, written_tokens=0, output_tokens=20), 90 / 200),
    ("anthropic, nothing said of caching", Wire.MESSAGES, [{"usage": {"input_tokens": 10, "output_tokens": 1}}],
     Usage(input_tokens=10, output_tokens=1), None),
    ("anthropic, a compaction beside it", Wire.MESSAGES,
     [{"usage": MESSAGES | {"iterations": [{"type": "message"}, COMPACTION]}}],
     Usage(input_tokens=2116, cached_tokens=1930, written_tokens=80, output_tokens=340, written_long_tokens=30), 1930 / 2116),
    ("bedrock invoke-model, streamed", Wire.MESSAGES,
     [{"type": "message_stop", "amazon-bedrock-invocationMetrics": {
         "inputTokenCount": 6, "outputTokenCount": 300, "cacheReadInputTokenCount": 1920, "cacheWriteInputTokenCount": 80}}],
     FULL, 1920 / 2006),
    ("bedrock converse", Wire.CONVERSE,
     [{"usage": {"inputTokens": 6, "outputTokens": 300, "totalTokens": 2306, "cacheReadInputTokens": 1920,
                 "cacheWriteInputTokens": 80,
                 "cacheDetails": [{"ttl": "1h", "inputTokens": 30}, {"ttl": "5m", "inputTokens": 50}]}}],
     replace(FULL, written_long_tokens=30), 1920 / 2006),
    ("bedrock converse, streamed", Wire.CONVERSE,
     [{"messageStop": {}}, {"metadata": {"usage": {"inputTokens": 6, "outputTokens": 300, "cacheReadInputTokens": 1920}}}],
     Usage(input_tokens=1926, cached_tokens=1920, written_tokens=0, output_tokens=300), 1920 / 1926),
    ("gemini, streamed: each chunk cumulative", Wire.GEMINI,
     [{"usageMetadata": {"promptTokenCount": 2006, "totalTokenCount": 2006}},
      {"usageMetadata": {"promptTokenCount": 2006, "cachedContentTokenCount": 1920, "candidatesTokenCount": 200,
                         "thoughtsTokenCount": 100, "totalTokenCount": 2306}}],
     Usage(input_tokens=2006, cached_tokens=1920, output_tokens=300, reasoning_tokens=100), 1920 / 2006),
    ("gemini: a miss leaves the figure out", Wire.GEMINI,
     [{"usageMetadata": {"promptTokenCount": 50, "toolUsePromptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 60}}],
     Usage(input_tokens=57, cached_tokens=0, output_tokens=3), 0.0),
    ("gemini: thoughts folded into candidates", Wire.GEMINI,
     [{"usageMetadata": {"promptTokenCount": 50, "candidatesTokenCount": 30, "thoughtsTokenCount": 20, "totalTokenCount": 80}}],
     Usage(input_tokens=50, cached_tokens=0, output_tokens=30, reasoning_tokens=20), 0.0),
    ("deepseek", Wire.CHAT,
     [{"usage": {"prompt_tokens": 396, "completion_tokens": 1, "prompt_cache_hit_tokens": 256, "prompt_cache_miss_tokens": 140,
                 "prompt_tokens_details": {"cached_tokens": 256}}}],
     Usage(input_tokens=396, cached_tokens=256, output_tokens=1), 256 / 396),
    ("xai: reasoning beside completion", Wire.CHAT,
     [{"usage": {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 125, "prompt_tokens_details": {"cached_tokens": 64},
                 "completion_tokens_details": {"reasoning_tokens": 20}, "num_sources_used": 0}}],
     Usage(input_tokens=100, cached_tokens=64, output_tokens=25, reasoning_tokens=20), 0.64),
    ("mistral: no figure", Wire.CHAT, [{"choices": [{}], "usage": {"prompt_tokens": 9, "completion_tokens": 1}}],
     Usage(input_tokens=9, output_tokens=1), None),
    ("groq, streamed", Wire.CHAT,
     [{"x_groq": {"id": "r"}}, {"choices": [{}], "x_groq": {"usage": {
         "prompt_tokens": 100, "completion_tokens": 5, "queue_time": 0.1, "prompt_tokens_details": {"cached_tokens": 50}}}}],
     Usage(input_tokens=100, cached_tokens=50, output_tokens=5), 0.5),
    ("moonshot: in the choice, top-level figure", Wire.CHAT,
     [{"choices": [{"usage": {"prompt_tokens": 512, "completion_tokens": 5, "cached_tokens": 256}}]}],
     Usage(input_tokens=512, cached_tokens=256, output_tokens=5), 0.5),
    ("dashscope, explicit", Wire.CHAT,
     [{"usage": {"prompt_tokens": 2000, "completion_tokens": 5, "prompt_tokens_details": {
         "cached_tokens": 1500, "cache_creation_input_tokens": 400, "cache_creation": {"ephemeral_5m_input_tokens": 400},
         "cache_type": "ephemeral"}}}],
     Usage(input_tokens=2000, cached_tokens=1500, written_tokens=400, output_tokens=5), 0.75),
    ("openrouter", Wire.CHAT,
     [{"usage": {"prompt_tokens": 100, "completion_tokens": 5, "cost": 0.1, "cost_details": {"upstream_inference_cost": 0.1},
                 "prompt_tokens_details": {"cached_tokens": 80, "cache_write_tokens": 10}}}],
     Usage(input_tokens=100, cached_tokens=80, written_tokens=10, output_tokens=5), 0.8),
    ("vllm, continuous", Wire.CHAT,
     [{"usage": {"prompt_tokens": 100, "completion_tokens": 1, "prompt_tokens_details": None}},
      {"usage": {"prompt_tokens": 100, "completion_tokens": 9, "prompt_tokens_details": {
          "cached_tokens": 96, "created_cache_tokens": 4}}}],
     Usage(input_tokens=100, cached_tokens=96, written_tokens=4, output_tokens=9), 0.96),
    ("vllm, without the flag", Wire.CHAT,
     [{"usage": {"prompt_tokens": 100, "completion_tokens": 9, "prompt_tokens_details": None}}],
     Usage(input_tokens=100, output_tokens=9), None),
    ("llama.cpp", Wire.CHAT,
     [{"usage": {"prompt_tokens": 100, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 99}},
       "timings": {"cache_n": 99, "prompt_n": 1}}],
     Usage(input_tokens=100, cached_tokens=99, output_tokens=9), 0.99),
    ("ollama: unknown, not zero", Wire.CHAT, [{"usage": {"prompt_tokens": 100, "completion_tokens": 9, "total_tokens": 109}}],
     Usage(input_tokens=100, output_tokens=9), None),
    ("litellm: the repeated figures are read once", Wire.CHAT,
     [{"usage": {"prompt_tokens": 2006, "completion_tokens": 300,
                 "cache_read_input_tokens": 1920, "cache_creation_input_tokens": 80,
                 "prompt_tokens_details": {"cached_tokens": 1920, "cache_write_tokens": 80, "cache_creation_tokens": 80,
                                           "cache_creation_token_details": {"ephemeral_1h_input_tokens": 30}, "text_tokens": 6}}}],
     replace(FULL, written_long_tokens=30), 1920 / 2006),
]  # fmt: skip


@pytest.mark.parametrize(("wire", "answers", "expected", "ratio"), [row[1:] for row in SHAPES], ids=[row[0] for row in SHAPES])
def test_each_shape_of_the_reference_gives_its_ratio(
    wire: Wire, answers: list[dict[str, object]], expected: Usage | None, ratio: float | None
) -> None:
    usage = of(wire, answers)

    assert expected == usage
    reported = usage is not None and usage.cached_tokens is not None and usage.input_tokens
    assert ratio == (
        None if usage is None or not reported else pytest.approx((usage.cached_tokens or 0) / (usage.input_tokens or 1))
    )


NAMES = ["usage", "usageMetadata", "message", "metadata", "response", "iterations", "input_tokens", "inputTokens", "cacheDetails",
         "cached_tokens", "prompt_tokens", "prompt_tokens_details", "promptTokenCount", "type"]  # fmt: skip
VALUES = st.recursive(
    st.none() | st.integers(-5, 2**60) | st.text(max_size=3) | st.floats(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(list(Wire)), st.lists(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3), max_size=3))
def test_nothing_that_a_provider_says_breaks_the_reading(wire: Wire, answers: list[dict[str, object]]) -> None:
    usage = of(wire, answers)

    if usage is not None and usage.input_tokens is not None:
        assert (usage.cached_tokens or 0) + (usage.written_tokens or 0) <= usage.input_tokens
