"""What an answer of Anthropic's Messages says, plain or streamed, for the records. Never raises.

Tool calls are told in the shape that every record has, chat's; the stop reason is the provider's own word.
"""

import json
from collections.abc import Iterable, Mapping

from gateway.cache import usage
from gateway.dialects import fields, sse
from gateway.dialects.answers import Answer, ToolCall, object_of

CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


def read_reply(body: bytes) -> Answer:
    """Return what a JSON reply says; bytes that are no JSON object give an `error`."""
    reply = object_of(body)
    if reply is None:
        return Answer(error="the answer is not a JSON object", readable=False)
    blocks = [fields.mapping(each) for each in fields.sequence(reply.get("content"))]
    reason = fields.text(reply.get("stop_reason")) or None
    return Answer(
        text="".join(fields.text(each.get("text")) for each in blocks if each.get("type") == "text"),
        tool_calls=tuple(_call(each, json.dumps(each.get("input", {}))) for each in blocks if each.get("type") in CALLS),
        finish_reason=reason,
        usage=usage.of(usage.Wire.MESSAGES, [reply]),
        finished=reason is not None,
        done=True,
        error=error_of(reply),
    )


def read_stream(data: bytes) -> Answer:
    """Return what the bytes of a whole stream say; blocks are put together from their pieces."""
    events, error = list[Mapping[str, object]](), None
    for payload in sse.events(data):
        event = object_of(payload)
        if event is None:
            error = error or "an event is not a JSON object"
            continue
        events.append(event)
        error = error or error_of(event)
    blocks = list(_blocks(events))
    deltas = [fields.mapping(each.get("delta")) for each in events if each.get("type") == "message_delta"]
    reasons = [reason for each in deltas if (reason := fields.text(each.get("stop_reason")))]
    return Answer(
        text="".join(said for block, said in blocks if block.get("type") == "text"),
        tool_calls=tuple(_call(block, said) for block, said in blocks if block.get("type") in CALLS),
        finish_reason=reasons[-1] if reasons else None,
        usage=usage.of(usage.Wire.MESSAGES, events),
        finished=bool(reasons),
        done=any(each.get("type") == "message_stop" for each in events),
        error=error,
    )


def error_of(value: Mapping[str, object]) -> str | None:
    """Return the message of an error envelope, None for any other value."""
    found = value.get("error")
    if not found:
        return None
    return fields.text(fields.mapping(found).get("message")) or "the provider sent an error without a message"


def _blocks(events: Iterable[Mapping[str, object]]) -> Iterable[tuple[Mapping[str, object], str]]:
    """Yield each block as it began, with its text or the JSON of its input."""
    made: dict[str, tuple[Mapping[str, object], list[str]]] = {}
    for event in events:
        index = str(event.get("index"))
        if event.get("type") == "content_block_start":
            block = fields.mapping(event.get("content_block"))
            made[index] = (block, [fields.text(block.get("text"))])
        elif event.get("type") == "content_block_delta" and index in made:
            delta = fields.mapping(event.get("delta"))
            made[index][1].append(fields.text(delta.get("text")) or fields.text(delta.get("partial_json")))
    for block, pieces in made.values():
        said = "".join(pieces)
        # A call without arguments may send none, and one that begins whole sends no pieces.
        yield block, said or (json.dumps(block.get("input") or {}) if block.get("type") in CALLS else "")


def _call(block: Mapping[str, object], arguments: str) -> ToolCall:
    made = {"name": fields.text(block.get("name")), "arguments": fields.clean(arguments)}
    return {"id": fields.text(block.get("id")), "type": "function", "function": made}
