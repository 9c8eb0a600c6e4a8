"""What a strict provider refuses, as tables and small checks over a parsed body. Knows nothing of HTTP or of caches.

Source: reference, openai-wire, sections 1 to 3. Where the real wording is known, it is used.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

MAXIMUM_MARKS = 4
MAXIMUM_NAME = 64
MAXIMUM_METADATA = 16

Check = Callable[[Any], bool]


class Refusal(Exception):
    """The provider's error answer: status, and what stands in the error object."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.type = "server_error" if status >= 500 else "invalid_request_error"


def _int(low: int, high: int) -> Check:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _number(low: float, high: float) -> Check:
    return lambda value: isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _is(*types: type) -> Check:
    return lambda value: isinstance(value, types) and (bool in types or not isinstance(value, bool))


def _one_of(*values: str) -> Check:
    return lambda value: isinstance(value, str) and value in values


def _stop(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and 0 < len(value) <= 4 and all(isinstance(each, str) for each in value)
    )


def _metadata(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and len(value) <= MAXIMUM_METADATA
        and all(len(key) <= 64 and isinstance(each, str) and len(each) <= 512 for key, each in value.items())
    )


LARGE = 2**63 - 1
FIELDS: Mapping[str, Check] = {
    "model": _is(str),
    "messages": _is(list),
    "tools": _is(list),
    "tool_choice": _is(str, dict),
    "parallel_tool_calls": _is(bool),
    "functions": _is(list),
    "function_call": _is(str, dict),
    "response_format": _is(dict),
    "reasoning_effort": _one_of("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    "verbosity": _one_of("low", "medium", "high"),
    "prompt_cache_key": _is(str),
    "prompt_cache_options": _is(dict),
    "prompt_cache_retention": _one_of("in_memory", "24h"),
    "max_completion_tokens": _int(1, LARGE),
    "max_tokens": _int(1, LARGE),
    "temperature": _number(0, 2),
    "top_p": _number(0, 1),
    "frequency_penalty": _number(-2, 2),
    "presence_penalty": _number(-2, 2),
    "seed": _int(-LARGE, LARGE),
    "stop": _stop,
    "n": _int(1, 128),
    "logit_bias": _is(dict),
    "logprobs": _is(bool),
    "top_logprobs": _int(0, 20),
    "stream": _is(bool),
    "stream_options": _is(dict),
    "store": _is(bool),
    "metadata": _metadata,
    "safety_identifier": _is(str),
    "user": _is(str),
    "service_tier": _one_of("auto", "default", "flex", "scale", "priority", "fast"),
    "modalities": _is(list),
    "audio": _is(dict),
    "prediction": _is(dict),
    "moderation": _is(dict),
    "web_search_options": _is(dict),
}
# Null means absent for these alone; for the others it is a wrong type. Source: openai/openai-openapi, `nullable`.
NOT_NULL = frozenset(
    {"model", "messages", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "response_format", "user"}
)
PARTS: Mapping[str, Sequence[str]] = {
    "developer": ("text",),
    "system": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text",),
    "function": (),
}
INNER: Mapping[str, type] = {"text": str, "refusal": str, "image_url": dict, "input_audio": dict, "file": dict}


def parse(raw: bytes) -> dict[str, Any]:
    """Return the body; Refusal for broken UTF-8 or JSON, a duplicate key, NaN, a lone surrogate, or no object."""
    try:
        body = json.loads(raw.decode(), object_pairs_hook=_unique, parse_constant=_constant)
        if b"\\u" in raw:
            json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise Refusal("We could not parse the JSON body of your request. The OpenAI API expects a JSON payload.") from None
    if not isinstance(body, dict):
        raise Refusal("We could not parse the JSON body of your request: it is not an object.")
    return body


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("duplicate key")
    return made


def _constant(name: str) -> NoReturn:
    raise ValueError(name)


def check(body: Mapping[str, Any], *, output_limit: int, marks: bool, lenient: bool) -> None:
    """Return when a provider would take the body; Refusal otherwise. `lenient`: unknown fields pass."""
    _fields(body, lenient)
    _messages(body["messages"])
    _tools(body)
    _format(body)
    _output(body, output_limit)
    _marks(body, marks, lenient)


def _fields(body: Mapping[str, Any], lenient: bool) -> None:
    for name, value in body.items():
        rule = FIELDS.get(name)
        if rule is None:
            if not lenient:
                raise Refusal(f"Unrecognized request argument supplied: {name}", param=name, code="unknown_parameter")
            continue
        if (value is None and name in NOT_NULL) or (value is not None and not rule(value)):
            raise Refusal(f"Invalid type or value for '{name}'.", param=name, code="invalid_value")
    if "messages" not in body:
        raise Refusal("Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter")
    if body.get("stream_options") is not None and not body.get("stream"):
        raise Refusal("The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options")
    if not body.get("logprobs") and body.get("top_logprobs"):
        raise Refusal("'top_logprobs' needs 'logprobs' to be true.", param="top_logprobs")


def _messages(messages: Sequence[Any]) -> None:
    """Check each message and how calls and results pair: results follow their calls directly, one for each id."""
    if not messages:
        raise Refusal("Invalid 'messages': empty array.", param="messages", code="empty_array")
    open_ids: list[str] = []
    answered: list[str] = []
    for at, message in enumerate(messages):
        where = f"messages[{at}]"
        _message(message, where)
        if message["role"] == "tool":
            _result(message["tool_call_id"], open_ids, answered, where)
            continue
        _closed(open_ids, f"messages[{at}].role")
        open_ids, answered = [call["id"] for call in message.get("tool_calls") or ()], []
    _closed(open_ids, "messages")


def _result(call_id: str, open_ids: list[str], answered: list[str], where: str) -> None:
    if call_id in open_ids:
        open_ids.remove(call_id)
        answered.append(call_id)
        return
    if call_id in answered:
        raise Refusal(f"Invalid parameter: duplicate value for 'tool_call_id' of '{call_id}'.", param=f"{where}.tool_call_id")
    raise Refusal(
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
        param=f"{where}.role",
    )


def _closed(open_ids: Sequence[str], where: str) -> None:
    if open_ids:
        raise Refusal(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
            f"The following tool_call_ids did not have response messages: {', '.join(open_ids)}",
            param=where,
        )


def _message(message: Any, where: str) -> None:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or role not in PARTS:
        raise Refusal(
            f"Invalid value for '{where}.role'. Supported values are: {', '.join(PARTS)}.", param=where, code="invalid_value"
        )
    if not isinstance(message.get("name", ""), str) or (role == "function" and "name" not in message):
        raise Refusal(f"Invalid type for '{where}.name'.", param=f"{where}.name", code="invalid_type")
    calls = message.get("tool_calls")
    if calls is not None:
        _calls(calls, role, where)
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise Refusal(f"Missing required parameter: '{where}.tool_call_id'.", param=where, code="missing_required_parameter")
    may_be_null = role == "function" or (
        role == "assistant" and bool({"tool_calls", "function_call", "refusal", "audio"} & message.keys())
    )
    _content(message.get("content"), role, where + ".content", may_be_null)


def _content(content: Any, role: str, where: str, may_be_null: bool) -> None:
    if isinstance(content, str) or (content is None and may_be_null):
        return
    if not isinstance(content, list) or not content:
        raise Refusal(f"Invalid type for '{where}': expected a string or a list of parts.", param=where, code="invalid_type")
    for at, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str) or kind not in PARTS[role] or not isinstance(part.get(kind), INNER[kind]):
            raise Refusal(f"Invalid content part at '{where}[{at}]'.", param=f"{where}[{at}]", code="invalid_value")


def _calls(calls: Any, role: str, where: str) -> None:
    good = role == "assistant" and isinstance(calls, list) and bool(calls) and all(_call(call) for call in calls)
    if not good or len({call["id"] for call in calls}) != len(calls):
        raise Refusal(
            f"Invalid '{where}.tool_calls': each needs an id of its own, a type, a name and arguments.", param=f"{where}.tool_calls"
        )


def _call(call: Any) -> bool:
    if not isinstance(call, dict) or not isinstance(call.get("id"), str) or call.get("type") not in ("function", "custom"):
        return False
    inner = call.get(call["type"])
    text = "arguments" if call["type"] == "function" else "input"
    return isinstance(inner, dict) and isinstance(inner.get("name"), str) and isinstance(inner.get(text), str)


def _tools(body: Mapping[str, Any]) -> None:
    tools = body.get("tools")
    if tools is None:
        for name in ("tool_choice", "parallel_tool_calls"):
            if name in body and body[name] != "none":
                raise Refusal(f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.", param=name)
        return
    if not tools:
        raise Refusal("Invalid 'tools': empty array. Expected an array with minimum length 1.", param="tools", code="empty_array")
    for at, tool in enumerate(tools):
        kind = tool.get("type") if isinstance(tool, dict) else None
        inner = tool.get(kind) if kind in ("function", "custom") else None
        if not isinstance(inner, dict) or not _named(inner.get("name")) or not isinstance(inner.get("parameters", {}), dict):
            raise Refusal(
                f"Missing or invalid 'tools[{at}].function.name' or parameters.", param=f"tools[{at}]", code="invalid_value"
            )


def _named(name: Any) -> bool:
    return (
        isinstance(name, str)
        and 0 < len(name) <= MAXIMUM_NAME
        and all(char.isascii() and (char.isalnum() or char in "_-") for char in name)
    )


def _format(body: Mapping[str, Any]) -> None:
    wanted = body.get("response_format")
    if wanted is None:
        return
    schema = wanted.get("json_schema")
    if wanted.get("type") not in ("text", "json_object", "json_schema"):
        raise Refusal("Invalid value for 'response_format.type'.", param="response_format.type", code="invalid_value")
    if wanted["type"] == "json_schema" and not (isinstance(schema, dict) and isinstance(schema.get("name"), str)):
        raise Refusal("Missing required parameter: 'response_format.json_schema.name'.", param="response_format.json_schema")
    if wanted["type"] == "json_object" and "json" not in json.dumps(body["messages"]).lower():
        raise Refusal(
            "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
            param="messages",
        )


def _output(body: Mapping[str, Any], limit: int) -> None:
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        raise Refusal(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
            code="invalid_parameter_combination",
        )
    asked = requested_output(body)
    if asked is not None and asked > limit:
        raise Refusal(
            f"max_tokens is too large: {asked}. This model supports at most {limit} completion tokens.",
            param="max_tokens",
            code="invalid_value",
        )


def requested_output(body: Mapping[str, Any]) -> int | None:
    """Return the request's own output limit in tokens, None when it names none."""
    asked: int | None = body.get("max_completion_tokens") or body.get("max_tokens")
    return asked


def _marks(body: Mapping[str, Any], allowed: bool, lenient: bool) -> None:
    """Check the cache marks: a mark stands on a tool, a message or a content part. Source: provider-caching, section 4."""
    parts = [part for message in body["messages"] for part in (message, *(_list(message.get("content"))))]
    marked = [each for each in (*(body.get("tools") or ()), *parts) if "cache_control" in each]
    if marked and not allowed and not lenient:
        raise Refusal("Unrecognized request argument supplied: cache_control", param="cache_control", code="unknown_parameter")
    if not allowed:
        return
    if len(marked) > MAXIMUM_MARKS:
        raise Refusal(
            f"A maximum of {MAXIMUM_MARKS} blocks with cache_control may be provided. Found {len(marked)}.", param="cache_control"
        )
    for each in marked:
        mark = each["cache_control"]
        if not isinstance(mark, dict) or mark.get("type") != "ephemeral" or mark.get("ttl", "5m") not in ("5m", "1h"):
            raise Refusal("cache_control: type must be 'ephemeral' and ttl '5m' or '1h'.", param="cache_control")
        if each.get("text", each.get("content", "-")) in ("", None):
            raise Refusal("cache_control cannot be set for empty text blocks", param="cache_control")


def _list(content: Any) -> Sequence[Any]:
    return content if isinstance(content, list) else ()
