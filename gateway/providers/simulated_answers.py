"""What a simulated model answers: a message as one completion or as stream chunks, and JSON that fits a simple schema."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CREATED = 1_764_547_200  # fixed: the same request gets the same bytes
PIECES = 4  # of a text or of arguments in a stream
DEPTH = 12  # of a schema; one that refers to itself ends there
CALL_TOKENS = 8  # what the frame of one call costs beside its name and arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer. `usage` is complete; `asked_usage`: the stream's client wants it."""

    id: str
    model: str
    message: Mapping[str, Any]
    finish_reason: str
    usage: Mapping[str, Any]
    choices: int
    stream: bool
    asked_usage: bool

    @classmethod
    def make(
        cls,
        number: int,
        body: Mapping[str, Any],
        message: Mapping[str, Any],
        usage: Mapping[str, Any],
        room: int,
        count: Callable[[str], int],
    ) -> "Answer":
        """Return the answer to a body, the message cut where `room` tokens are used up (`finish_reason` length)."""
        calls, content = message.get("tool_calls"), message.get("content")
        finish = "tool_calls" if calls else "stop"
        if content and count(content) > room:
            content, finish, calls = _cut(content, room, count), "length", None
        spoken = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
        called = [call["function"] for call in calls or ()]
        output = max(1, count(content or "") + sum(count(each["name"] + each["arguments"]) + CALL_TOKENS for each in called))
        choices = body.get("n") or 1
        return cls(
            id=f"chatcmpl-simulated{number}",
            model=body["model"],
            message=spoken,
            finish_reason=finish,
            usage={**usage, "completion_tokens": output * choices, "total_tokens": usage["prompt_tokens"] + output * choices},
            choices=choices,
            stream=bool(body.get("stream")),
            asked_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        )


def _cut(text: str, room: int, count: Callable[[str], int]) -> str:
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(text[:middle]) <= room else (low, middle - 1)
    return text[:low]


def default_message(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a short answer that depends on the body alone: JSON for a schema, a call where one is demanded, else a text."""
    wanted, forced = body.get("response_format") or {}, _forced(body)
    if forced is not None:
        arguments = json.dumps(fill(forced.get("parameters") or {}))
        call = {"id": "call_simulated", "type": "function", "function": {"name": forced["name"], "arguments": arguments}}
        return {"content": None, "tool_calls": [call]}
    if wanted.get("type") == "json_schema":
        return {"content": json.dumps(fill(wanted["json_schema"].get("schema") or {}))}
    if wanted.get("type") == "json_object":
        return {"content": "{}"}
    return {"content": f"This is a simulated answer to {len(body['messages'])} messages."}


def _forced(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the function that must be called, None when that is left to the model."""
    choice = body.get("tool_choice")
    functions = [tool["function"] for tool in body.get("tools") or () if tool["type"] == "function"]
    if choice == "required":
        return next(iter(functions), None)
    name = choice.get("function", {}).get("name") if isinstance(choice, dict) else None
    return next((each for each in functions if each["name"] == name), None)


def fill(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None, depth: int = 0) -> Any:
    """Return a value that fits a simple JSON Schema: every property present, the first of each choice."""
    root = schema if root is None else root
    if depth > DEPTH:
        return None
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if schema.get("enum"):
        return schema["enum"][0]
    for name in ("anyOf", "oneOf", "allOf"):
        if schema.get(name):
            return fill(schema[name][0], root, depth + 1)
    if "$ref" in schema:
        return fill(_referred(schema["$ref"], root), root, depth + 1)
    return _typed(schema, root, depth)


def _typed(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: fill(inner, root, depth + 1) for name, inner in (schema.get("properties") or {}).items()}
    if kind == "array":
        return [fill(schema.get("items") or {}, root, depth + 1)] * schema.get("minItems", 0)
    if kind in ("integer", "number"):
        return schema.get("minimum", 0)
    return {"boolean": False, "null": None}.get(kind, "simulated".ljust(schema.get("minLength", 0), "."))


def _referred(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for step in reference.removeprefix("#/").split("/") if reference != "#" else ():
        found = found.get(step, {})
    return found if isinstance(found, dict) else {}


def completion(answer: Answer) -> dict[str, Any]:
    """Return the body of an answer that is not streamed."""
    choice = {"message": answer.message, "finish_reason": answer.finish_reason, "logprobs": None}
    choices = [{"index": index, **choice} for index in range(answer.choices)]
    return {**_frame(answer, "chat.completion"), "choices": choices, "usage": answer.usage}


def chunks(answer: Answer) -> Iterator[bytes]:
    """Yield the events of a stream: role, pieces, finish, usage where it was asked for, the end."""
    frame = _frame(answer, "chat.completion.chunk")
    extra = {"usage": None} if answer.asked_usage else {}
    for index in range(answer.choices):
        for delta, finish in _deltas(answer):
            choice = {"index": index, "delta": delta, "finish_reason": finish, "logprobs": None}
            yield _event({**frame, "choices": [choice], **extra})
    if answer.asked_usage:
        yield _event({**frame, "choices": [], "usage": answer.usage})
    yield b"data: [DONE]\n\n"


def _deltas(answer: Answer) -> Iterator[tuple[dict[str, Any], str | None]]:
    content, calls = answer.message["content"], answer.message.get("tool_calls") or ()
    yield {"role": "assistant", "content": None if content is None else ""}, None
    for piece in pieces(content or ""):
        yield {"content": piece}, None
    for index, call in enumerate(calls):
        head = {
            "index": index,
            "id": call["id"],
            "type": "function",
            "function": {"name": call["function"]["name"], "arguments": ""},
        }
        yield {"tool_calls": [head]}, None
        for piece in pieces(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}, None
    yield {}, answer.finish_reason


def pieces(text: str) -> Iterator[str]:
    """Yield a text in the pieces of a stream."""
    size = max(1, -(-len(text) // PIECES))
    return (text[at : at + size] for at in range(0, len(text), size))


def _frame(answer: Answer, kind: str) -> dict[str, Any]:
    return {"id": answer.id, "object": kind, "created": CREATED, "model": answer.model, "system_fingerprint": "fp_simulated"}


def _event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"
