from collections.abc import Mapping

import pytest

from gateway.cache.usage import Usage, latest, openai_usage

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
