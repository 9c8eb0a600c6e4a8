"""The tokens that a provider reports, read from its answer into one shape. Knows JSON values, not bytes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import reduce

SANE_TOKENS = 2**53  # more than any window; a larger figure is a provider's mistake and would not survive JSON readers


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the provider reported them; None: not reported, which is not zero. Input is inclusive of cached and written.

    `written_long_tokens` are those of the written ones that are kept for the longer of two lifetimes (1h, 12h).
    """

    input_tokens: int | None = None
    cached_tokens: int | None = None
    written_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    written_long_tokens: int | None = None


class Wire(StrEnum):
    """Which format an answer has. The same words mean other things in another one, so this is never guessed from them."""

    CHAT = "chat"  # OpenAI chat completions and all that is shaped like it; litellm's normalised usage too
    RESPONSES = "responses"
    MESSAGES = "messages"  # Anthropic, also on Vertex, and Bedrock's InvokeModel with its body
    CONVERSE = "converse"  # Bedrock
    GEMINI = "gemini"  # generateContent, also on Vertex


def of(wire: Wire, answers: Iterable[Mapping[str, object]]) -> Usage | None:
    """Return the usage of one answer: of its one body, or of its events in order. None when none is reported. Never raises.

    The last value of each field counts, fields are never summed: what a stream repeats is cumulative. Source: reference,
    usage-fields, sections 3 to 14.
    """
    if wire is Wire.CHAT:
        return reduce(latest, map(openai_usage, answers), None)
    told: dict[str, object] = {}
    for each in answers:
        _put(told, _REPORTS[wire](each))
    return _READERS[wire](told) if told else None


def _put(told: dict[str, object], report: Mapping[str, object]) -> None:
    for name, value in report.items():
        known = told.get(name)
        if isinstance(value, Mapping) and isinstance(known, dict):
            _put(known, value)
        elif value is not None:
            told[name] = dict(value) if isinstance(value, Mapping) else value


def _responses_report(answer: Mapping[str, object]) -> Mapping[str, object]:
    """A reply's own usage, or that of the `response` in `response.completed`, `.incomplete` and `.failed`."""
    return _object(answer.get("usage")) or _object(_object(answer.get("response")).get("usage"))


def _messages_report(answer: Mapping[str, object]) -> Mapping[str, object]:
    """A reply's or `message_delta`'s own usage, or that of the `message` in `message_start`; InvokeModel's metrics by its names."""
    report = _object(answer.get("usage")) or _object(_object(answer.get("message")).get("usage"))
    metrics = _object(answer.get("amazon-bedrock-invocationMetrics"))
    return report or {name: metrics[other] for name, other in _METRICS.items() if other in metrics}


_METRICS = {
    "input_tokens": "inputTokenCount",
    "output_tokens": "outputTokenCount",
    "cache_read_input_tokens": "cacheReadInputTokenCount",
    "cache_creation_input_tokens": "cacheWriteInputTokenCount",
}


def _converse_report(answer: Mapping[str, object]) -> Mapping[str, object]:
    """A reply's usage, or that of the stream's `metadata` event."""
    return _object(answer.get("usage")) or _object(_object(answer.get("metadata")).get("usage"))


def _gemini_report(answer: Mapping[str, object]) -> Mapping[str, object]:
    return _object(answer.get("usageMetadata"))


def _responses(told: Mapping[str, object]) -> Usage | None:
    details, answer = _object(told.get("input_tokens_details")), _object(told.get("output_tokens_details"))
    return _told(
        Usage(
            input_tokens=_count(told.get("input_tokens")),
            cached_tokens=_count(details.get("cached_tokens")),
            written_tokens=_count(details.get("cache_write_tokens")),
            output_tokens=_count(told.get("output_tokens")),
            reasoning_tokens=_count(answer.get("reasoning_tokens")),
            written_long_tokens=_count(_object(details.get("cache_write_tokens_details")).get("ttl_12h_tokens")),
        )
    )


def _messages(told: Mapping[str, object]) -> Usage | None:
    """Input is what was neither read nor written: the whole is the sum. Passes of a compaction are billed beside it."""
    found = _exclusive(
        told.get("input_tokens"),
        told.get("cache_read_input_tokens"),
        told.get("cache_creation_input_tokens"),
        told.get("output_tokens"),
        _object(told.get("output_tokens_details")).get("thinking_tokens"),
        _object(told.get("cache_creation")).get("ephemeral_1h_input_tokens"),
    )
    passes = told.get("iterations")
    if found is None or not isinstance(passes, Sequence) or isinstance(passes, str):
        return found
    beside = [_messages(dict(each)) for each in passes if _object(each).get("type") == "compaction"]
    return _told(reduce(_plus, (each for each in beside if each is not None), found))


def _plus(one: Usage, other: Usage) -> Usage:
    def both(name: str) -> int | None:
        told: list[int] = [count for usage in (one, other) if (count := getattr(usage, name)) is not None]
        return sum(told) if told else None

    return Usage(**{each.name: both(each.name) for each in fields(Usage)})


def _converse(told: Mapping[str, object]) -> Usage | None:
    details = told.get("cacheDetails")
    rows = [] if isinstance(details, str) or not isinstance(details, Sequence) else list(map(_object, details))
    longer = [_count(each.get("inputTokens")) for each in rows if each.get("ttl") == "1h"]
    return _exclusive(
        told.get("inputTokens"),
        told.get("cacheReadInputTokens"),
        told.get("cacheWriteInputTokens"),
        told.get("outputTokens"),
        None,
        sum(each or 0 for each in longer) if longer else None,
    )


def _exclusive(fresh: object, read: object, written: object, output: object, thought: object, longer: object) -> Usage | None:
    """One of the two cache figures alone says that the other is 0; neither, that caching is not reported."""
    parts = _count(fresh), _count(read), _count(written)
    reported = parts[1] is not None or parts[2] is not None
    return _told(
        Usage(
            input_tokens=None if parts[0] is None else sum(each or 0 for each in parts),
            cached_tokens=parts[1] or 0 if reported else None,
            written_tokens=parts[2] or 0 if reported else None,
            output_tokens=_count(output),
            reasoning_tokens=_count(thought),
            written_long_tokens=_count(longer),
        )
    )


def _gemini(told: Mapping[str, object]) -> Usage | None:
    """No `cachedContentTokenCount` is no hit: zeros are left out. Thoughts are output beside the rest, or in it by the total."""
    prompt, tools = _count(told.get("promptTokenCount")), _count(told.get("toolUsePromptTokenCount")) or 0
    output, thoughts = _count(told.get("candidatesTokenCount")), _count(told.get("thoughtsTokenCount"))
    total = _count(told.get("totalTokenCount"))
    folded = None not in (prompt, output, total) and total == (prompt or 0) + (output or 0) + tools
    return _told(
        Usage(
            input_tokens=None if prompt is None else prompt + tools,
            cached_tokens=None if prompt is None else _count(told.get("cachedContentTokenCount")) or 0,
            output_tokens=output if folded or thoughts is None else (output or 0) + thoughts,
            reasoning_tokens=thoughts,
        )
    )


def _told(usage: Usage) -> Usage | None:
    return None if usage == Usage() else _sane(usage)


_REPORTS: Mapping[Wire, Callable[[Mapping[str, object]], Mapping[str, object]]] = {
    Wire.RESPONSES: _responses_report,
    Wire.MESSAGES: _messages_report,
    Wire.CONVERSE: _converse_report,
    Wire.GEMINI: _gemini_report,
}
_READERS: Mapping[Wire, Callable[[Mapping[str, object]], Usage | None]] = {
    Wire.RESPONSES: _responses,
    Wire.MESSAGES: _messages,
    Wire.CONVERSE: _converse,
    Wire.GEMINI: _gemini,
}


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
        written_long_tokens=_some(
            _object(prompt.get("cache_write_tokens_details")).get("ttl_12h_tokens"),
            _object(prompt.get("cache_creation_token_details")).get("ephemeral_1h_input_tokens"),  # litellm
        ),
    )
    total = _count(usage.get("total_tokens"))
    # xAI leaves reasoning out of `completion_tokens` and shows it in the total alone.
    if output is not None and reasoning and found.input_tokens is not None and total == found.input_tokens + output + reasoning:
        found = replace(found, output_tokens=output + reasoning)
    return _told(found)


def _sane(usage: Usage) -> Usage:
    """A cached share above the whole is another wire format's figure: unreported, not clipped to look fine."""
    if usage.input_tokens is not None and (usage.cached_tokens or 0) + (usage.written_tokens or 0) > usage.input_tokens:
        usage = replace(usage, cached_tokens=None, written_tokens=None, written_long_tokens=None)
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
