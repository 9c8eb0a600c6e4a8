"""Anthropic's Messages: system blocks and turns as items, results as whole turns, errors in its envelope.

A turn of the user's that holds `tool_result` blocks is a result for the core, whatever stands beside them: it cannot part from
its calls. Thinking is never read, edited or shortened; it goes whole or not at all. Source: reference, openai-wire, section 10.
"""

import json
from collections.abc import Iterable, Iterator, Mapping

from gateway.context.digest import digest
from gateway.context.items import Item, Kind, Request
from gateway.dialects import contents, fields, parsing
from gateway.dialects.answers import Answer
from gateway.dialects.chat import MEDIA_BYTES_PER_TOKEN, MEDIA_TOKENS
from gateway.dialects.memo import Memo
from gateway.dialects.messages_answers import read_reply, read_stream
from gateway.errors import GatewayError

SYSTEM = "system"  # the top-level field, and the role of its blocks
IMAGE_TOKENS = 4_784  # at the largest size that any model takes: 2,576 pixels a side at 28 by 28 a token; most take 1,568 at most
KINDS = {"user": Kind.USER, "assistant": Kind.ASSISTANT, "system": Kind.SYSTEM}
MEDIA = ("image", "document")
SIGNED = ("thinking", "redacted_thinking")

# A status that is not here is `api_error`.
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_STREAM_TYPES = {"upstream_timeout": "timeout_error", "overloaded": "overloaded_error"}
# Events that say nothing yet: while only these came, another target may still answer.
_SILENT = (b'{"type":"message_start"', b'{"type": "message_start"', b'{"type":"ping"', b'{"type": "ping"')


def _item(raw: bytes, where: str) -> Item:
    """Return the item of one turn, its facts read and every depth of it checked."""
    message = fields.mapping(fields.load(raw, where))
    role = fields.text(message.get("role"))
    blocks = [fields.mapping(each) for each in fields.sequence(message.get("content"))]
    answers = tuple(name for each in blocks if each.get("type") == "tool_result" and (name := fields.text(each.get("tool_use_id"))))
    result = role == "user" and any(each.get("type") == "tool_result" for each in blocks)
    media = [_media(each) for each in _with_inner(blocks)]
    return Item(
        raw=raw,
        digest=digest(raw),
        kind=Kind.RESULT if result else KINDS.get(role, Kind.OTHER),
        role=role,
        # Tools that run at the provider are answered in the same turn: only the client's own wait for a result.
        opens=tuple(name for each in blocks if each.get("type") == "tool_use" and (name := fields.text(each.get("id")))),
        answers=answers,
        media_bytes=sum(size for size, _ in media),
        media_tokens=sum(tokens for _, tokens in media),
    )


def _system(raw: bytes, where: str) -> Item:
    """Return the item of the system text, or of one of its blocks."""
    fields.load(raw, where)
    return Item(raw=raw, digest=digest(raw), kind=Kind.SYSTEM, role=SYSTEM, place=SYSTEM)


def _with_inner(blocks: Iterable[Mapping[str, object]]) -> Iterator[Mapping[str, object]]:
    for each in blocks:
        yield each
        if each.get("type") == "tool_result":
            yield from (fields.mapping(inner) for inner in fields.sequence(each.get("content")))


def _media(block: Mapping[str, object]) -> tuple[int, int]:
    """Return a block's inline media in bytes of base64, and its price in tokens; (0, 0) when it is none."""
    kind, source = block.get("type"), fields.mapping(block.get("source"))
    if kind not in MEDIA or source.get("type") in ("text", "content"):
        return 0, 0
    size = len(_base64(source))
    if kind == "image":
        return size, IMAGE_TOKENS
    return size, min(-(-size * 3 // (4 * MEDIA_BYTES_PER_TOKEN)), MEDIA_TOKENS) if size else MEDIA_TOKENS


def _base64(source: Mapping[str, object]) -> str:
    return fields.text(source.get("data")) if source.get("type") == "base64" else ""


def _without_media(value: object) -> object:
    """Return a block, or what it holds, without inline media."""
    block = fields.mapping(value)
    if block.get("type") == "tool_result" and isinstance(inner := block.get("content"), list):
        return {**block, "content": [_without_media(each) for each in inner]}
    if block.get("type") in MEDIA and _base64(source := fields.mapping(block.get("source"))):
        return {**block, "source": {**source, "data": ""}}
    return value


class Messages:
    """The dialect as the path and the core see it. An edited item has its own digest; its facts follow its bytes."""

    name = "messages"
    path = "messages"

    def parse(self, body: bytes, memo: Memo) -> Request:
        return parsing.parse(body, memo, SHAPE)

    def hint(self, request: Request) -> str | None:
        return parsing.hint(request)

    def without_gateway(self, request: Request) -> tuple[Request, Mapping[str, object] | None]:
        return parsing.without_gateway(request)

    def read_reply(self, body: bytes) -> Answer:
        return read_reply(body)

    def read_stream(self, data: bytes) -> Answer:
        return read_stream(data)

    def silent(self, payload: bytes) -> bool:
        """Whether an event says nothing yet: `message_start` and `ping`."""
        return payload.startswith(_SILENT)

    def ended(self, answer: Answer) -> bool:
        """`message_stop` came, or at least the stop reason that stands before it."""
        return answer.done or answer.finished

    def without_usage(self, block: bytes) -> bytes:
        """Return the block: usage is always told."""
        return block

    def error_body(self, error: GatewayError) -> bytes:
        return envelope(error.status, error.message)

    def error_event(self, message: str, *, code: str, type: str) -> bytes:
        return b"event: error\ndata: " + _envelope(_STREAM_TYPES.get(code, "api_error"), message) + b"\n\n"

    def texts(self, item: Item) -> tuple[str, ...]:
        """Return the texts of a turn, those of its results among them, or that of a system block; never thinking."""
        value = fields.load(item.raw, "an item")
        return tuple(contents.texts(fields.mapping(value).get("content") if not item.place else _as_content(value)))

    def with_texts(self, item: Item, texts: tuple[str, ...]) -> Item:
        """Return the item with these texts, as many as `texts` gave. See `contents.with_texts`."""
        before = self.texts(item)
        if before == texts:
            return item
        if len(before) != len(texts):
            raise ValueError(f"an item of {len(before)} texts was given {len(texts)}")
        ascii_only = item.raw.isascii()
        if item.place:
            quoted = fields.quote(texts[0], ascii_only=ascii_only)
            return _system(quoted if item.raw[:1] == b'"' else fields.put(item.raw, "text", quoted), "an edited block")
        content = next(each.value for each in fields.split(item.raw)[0] if each.name == "content")
        return _edited(item, contents.with_texts(content, iter(texts), ascii_only=ascii_only))

    def with_role(self, item: Item, role: str) -> Item:
        """Return the item under another role; a system block has none and stays."""
        return item if item.place else _item(fields.put(item.raw, "role", fields.quote(role)), "an edited turn")

    def with_result(self, item: Item, text: str) -> Item:
        """Return the item with this text as the content of each result; ids, flags, marks and other blocks stay."""
        quoted = fields.quote(text, ascii_only=item.raw.isascii())
        content = next(each.value for each in fields.split(item.raw)[0] if each.name == "content")
        raws, seams = fields.elements(content)
        made = (fields.put(raw, "content", quoted) if _is_result(raw) else raw for raw in raws)
        return _edited(item, b"".join(part for pair in zip(seams, (*made, b""), strict=True) for part in pair))

    def note(self, text: str) -> Item:
        """Return a new turn of the user's; the API joins turns of one role that follow each other."""
        return _item(b'{"role":"user","content":' + fields.quote(text) + b"}", "a note")

    def wire_text(self, item: Item) -> str:
        """Return every key and scalar of the item, a line each, without inline media: what it costs, decoded."""
        value = fields.load(item.raw, "an item")
        if item.media_bytes:
            message = fields.mapping(value)
            value = {**message, "content": [_without_media(each) for each in fields.sequence(message.get("content"))]}
        return "\n".join(fields.leaves(value))

    def request_texts(self, request: Request) -> tuple[str, ...]:
        """Return every top-level field but the turns and the system blocks as raw JSON text (tools and all), for counting."""
        held = {request.items_field, *(item.place for item in request.lead)}
        return tuple(each.value.decode() for each in request.fields if each.name not in held)


SHAPE = parsing.Shape(
    items_field="messages", item=_item, limit_fields=("max_tokens",), lead_field=SYSTEM, lead=_system, reports_usage=True
)
MESSAGES = Messages()


def _as_content(value: object) -> object:
    return value if isinstance(value, str) else [value]


def _edited(item: Item, content: bytes) -> Item:
    return _item(fields.put(item.raw, "content", content), "an edited turn")


def _is_result(raw: bytes) -> bool:
    return fields.mapping(fields.load(raw, "a block")).get("type") == "tool_result"


def envelope(status: int, message: str) -> bytes:
    """Return an error's body, of the type that its status has."""
    return _envelope(ERROR_TYPES.get(status, "api_error"), message)


def _envelope(kind: str, message: str) -> bytes:
    value = {"type": "error", "error": {"type": kind, "message": fields.clean(message)}}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
