"""The tokens that a provider reports, read from its answer into one shape. Knows JSON values, not bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

SANE_TOKENS = 2**53  # more than any window; a larger figure is a provider's mistake and would not survive JSON readers


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the provider reported them; None: not reported, which is not zero. Input is inclusive of cached and written."""

    input_tokens: int | None = None
    cached_tokens: int | None = None
    written_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None


def openai_usage(answer: Mapping[str, object]) -> Usage | None:
    """Return the usage of an OpenAI-shaped reply or chunk; None when it reports none. Never raises.

    Looks at `usage`, then `x_groq.usage`, then `choices[0].usage` (Moonshot), and takes the first that says anything.
    Source: reference, usage-fields, sections 10, 11 and 14.
    """
    for found in (answer.get("usage"), _object(answer.get("x_groq")).get("usage"), _first(answer.get("choices")).get("usage")):
        if isinstance(found, Mapping) and (usage := _figures(found)) is not None:
            return usage
    return None


def latest(before: Usage | None, after: Usage | None) -> Usage | None:
    """Return both reports of one stream as one: the last value of each figure wins, they are never summed."""
    if before is None or after is None:
        return before or after
    said = {each.name: getattr(after, each.name) for each in fields(after) if getattr(after, each.name) is not None}
    return _sane(replace(before, **said))


def _figures(usage: Mapping[str, object]) -> Usage | None:
    prompt, answer = _object(usage.get("prompt_tokens_details")), _object(usage.get("completion_tokens_details"))
    output, reasoning = _count(usage.get("completion_tokens")), _count(answer.get("reasoning_tokens"))
    found = Usage(
        input_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_some(prompt.get("cached_tokens"), usage.get("cached_tokens"), usage.get("prompt_cache_hit_tokens")),
        written_tokens=_some(
            prompt.get("cache_write_tokens"),
            prompt.get("cache_creation_input_tokens"),
            prompt.get("cache_creation_tokens"),
            prompt.get("created_cache_tokens"),  # vLLM
        ),
        output_tokens=output,
        reasoning_tokens=reasoning,
    )
    total = _count(usage.get("total_tokens"))
    # xAI leaves reasoning out of `completion_tokens` and shows it in the total alone.
    if output is not None and reasoning and found.input_tokens is not None and total == found.input_tokens + output + reasoning:
        found = replace(found, output_tokens=output + reasoning)
    return None if found == Usage() else _sane(found)


def _sane(usage: Usage) -> Usage:
    """A cached share above the whole is another wire format's figure: unreported, not clipped to look fine."""
    if usage.input_tokens is not None and (usage.cached_tokens or 0) + (usage.written_tokens or 0) > usage.input_tokens:
        usage = replace(usage, cached_tokens=None, written_tokens=None)
    if usage.output_tokens is not None and (usage.reasoning_tokens or 0) > usage.output_tokens:
        usage = replace(usage, reasoning_tokens=None)
    return usage


def _some(*values: object) -> int | None:
    return next((count for value in values if (count := _count(value)) is not None), None)


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= SANE_TOKENS or value != int(value):
        return None
    return int(value)


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _first(value: object) -> Mapping[str, object]:
    return _object(value[0]) if isinstance(value, Sequence) and not isinstance(value, str) and value else {}
