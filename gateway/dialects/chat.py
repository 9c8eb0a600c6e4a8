"""The OpenAI chat dialect: a body cut into messages, facts read from each, edits put back, errors in its envelope.

Unknown roles, parts and fields are forwarded; refused is only what two readers could read differently (a key twice, NaN,
broken UTF-8) or what cannot be read at all. Source: reference, openai-wire.
"""

import json
from collections.abc import Iterable, Mapping

from gateway.context.digest import digest
from gateway.context.items import Item, Kind, Request
from gateway.dialects import contents, fields, parsing
from gateway.dialects.answers import Answer, read_reply, read_stream
from gateway.dialects.memo import Memo
from gateway.dialects.parsing import hint, without_gateway
from gateway.dialects.sse import strip_usage
from gateway.errors import GatewayError

__all__ = ["CHAT", "Answer", "Memo", "error_body", "error_event", "hint", "parse", "read_reply", "read_stream", "without_gateway"]

# The price of media in tokens when nothing is known of the provider's own rule. Source: design, "Runway and estimates".
MEDIA_TOKENS = 8_192  # what nothing is known of, and the most that audio or a file is priced
IMAGE_TOKENS = 2_500  # an image at OpenAI's usual details: at most 2,500 patches; `original` has no such bound
LOW_DETAIL_TOKENS = 85  # an image with `detail: low`, the same at any size
MEDIA_BYTES_PER_TOKEN = 3  # audio and files, of their decoded bytes

# Parts that are media, and where in each the inline bytes stand.
MEDIA = {"image_url": "url", "video_url": "url", "audio_url": "url", "input_audio": "data", "file": "file_data"}

KINDS = {
    "system": Kind.SYSTEM,
    "developer": Kind.SYSTEM,
    "user": Kind.USER,
    "assistant": Kind.ASSISTANT,
    "tool": Kind.RESULT,
    "function": Kind.RESULT,
}


def parse(body: bytes, memo: Memo) -> Request:
    """Return the request that a body holds. See `parsing.parse`."""
    return parsing.parse(body, memo, SHAPE)


def _item(raw: bytes, where: str) -> Item:
    """Return the item of one message, its facts read and every depth of it checked."""
    message = fields.mapping(fields.load(raw, where))
    role = fields.text(message.get("role"))
    kind = KINDS.get(role, Kind.OTHER)
    sizes = [_media(part) for part in fields.sequence(message.get("content"))]
    return Item(
        raw=raw,
        digest=digest(raw),
        kind=kind,
        role=role,
        opens=tuple(_opens(message)),
        answers=tuple(_answers(message, role)) if kind is Kind.RESULT else (),
        media_bytes=sum(inline for inline, _ in sizes),
        media_tokens=sum(tokens for _, tokens in sizes),
    )


def _opens(message: Mapping[str, object]) -> Iterable[str]:
    for call in fields.sequence(message.get("tool_calls")):
        if name := fields.text(fields.mapping(call).get("id")):
            yield name
    if name := fields.text(fields.mapping(message.get("function_call")).get("name")):
        yield name


def _answers(message: Mapping[str, object], role: str) -> Iterable[str]:
    if name := fields.text(message.get("name" if role == "function" else "tool_call_id")):
        yield name


def _media(part: object) -> tuple[int, int]:
    """Return a part's inline media in bytes of base64, and its price in tokens; (0, 0) when it is none."""
    held = [(key, value, len(_inline(key, value))) for key, value in fields.mapping(part).items() if key in MEDIA]
    return sum(size for _, _, size in held), sum(_price(key, value, size) for key, value, size in held)


def _price(key: str, value: object, base64_bytes: int) -> int:
    if key in ("input_audio", "file") and base64_bytes:
        return min(-(-base64_bytes * 3 // (4 * MEDIA_BYTES_PER_TOKEN)), MEDIA_TOKENS)
    # A file that is only named, like an image, has a size that is not known here.
    if key != "image_url":
        return MEDIA_TOKENS
    detail = fields.mapping(value).get("detail", "auto")
    return {"low": LOW_DETAIL_TOKENS, "auto": IMAGE_TOKENS, "high": IMAGE_TOKENS}.get(fields.text(detail), MEDIA_TOKENS)


def _inline(key: str, value: object) -> str:
    """Return the base64 that a media value holds: of a `data:` URL, or, where no URL is wanted, of the bare text."""
    held = fields.mapping(value).get(MEDIA[key]) if isinstance(value, dict) else value
    text = held if type(held) is str else ""
    if text[:5].lower() == "data:":
        return text[text.find(",") + 1 :]
    return text if MEDIA[key] != "url" else ""


def _without_media(part: object) -> object:
    if not _media(part)[0]:
        return part
    bare = dict(fields.mapping(part))
    for key in MEDIA.keys() & bare.keys():
        value, size = bare[key], len(_inline(key, bare[key]))
        if isinstance(value, dict) and size:
            bare[key] = {**value, MEDIA[key]: value[MEDIA[key]][:-size]}
        elif isinstance(value, str) and size:
            bare[key] = value[:-size]
    return bare


def error_body(error: GatewayError) -> bytes:
    """Return the error as the body that OpenAI's SDKs read."""
    return _envelope(error.message, error.type, error.param, error.code)


def error_event(message: str, code: str, type: str) -> bytes:
    """Return the event that ends a broken stream; SDKs raise on it. No `[DONE]` follows. Source: openai-wire, section 5."""
    return b"data: " + _envelope(message, type, None, code) + b"\n\n"


def _envelope(message: str, type_: str, param: str | None, code: str) -> bytes:
    error = {"message": fields.clean(message), "type": type_, "param": param, "code": code}
    return json.dumps({"error": error}, ensure_ascii=False, separators=(",", ":")).encode()


class Chat:
    """The chat dialect as the core sees it. An edited item has its own digest; its facts follow its bytes."""

    name = "chat"
    path = "chat/completions"

    def parse(self, body: bytes, memo: Memo) -> Request:
        return parse(body, memo)

    def hint(self, request: Request) -> str | None:
        return hint(request)

    def without_gateway(self, request: Request) -> tuple[Request, dict[str, object] | None]:
        return without_gateway(request)

    def read_reply(self, body: bytes) -> Answer:
        return read_reply(body)

    def read_stream(self, data: bytes) -> Answer:
        return read_stream(data)

    def silent(self, payload: bytes) -> bool:
        """None is: the first chunk goes to the client at once."""
        return False

    def ended(self, answer: Answer) -> bool:
        """A clean end without `[DONE]` is well when a finish reason came. Source: reference, openai-wire, section 5."""
        return answer.finished or answer.done

    def without_usage(self, block: bytes) -> bytes:
        return strip_usage(block)

    def error_body(self, error: GatewayError) -> bytes:
        return error_body(error)

    def error_event(self, message: str, *, code: str, type: str) -> bytes:
        return error_event(message, code, type)

    def texts(self, item: Item) -> tuple[str, ...]:
        """Return the texts of the content: itself, or those of its parts that have one. Unpaired surrogates read as U+FFFD."""
        return tuple(contents.texts(fields.mapping(fields.load(item.raw, "a message")).get("content")))

    def with_texts(self, item: Item, texts: tuple[str, ...]) -> Item:
        """Return the item with these texts, as many as `texts` gave. Texts that are equal keep their bytes.

        A part whose text got empty is left out, but for the first when no part would be left: providers refuse an empty list.
        Written anew, a text is escaped as the item was: to ASCII if the item is ASCII.
        """
        before = self.texts(item)
        if before == texts:
            return item
        if len(before) != len(texts):
            raise ValueError(f"an item of {len(before)} texts was given {len(texts)}")
        content = next(each.value for each in fields.split(item.raw)[0] if each.name == "content")
        return _edited(item, "content", contents.with_texts(content, iter(texts), ascii_only=item.raw.isascii()))

    def with_role(self, item: Item, role: str) -> Item:
        """Return the item under this role."""
        return _edited(item, "role", fields.quote(role))

    def with_result(self, item: Item, text: str) -> Item:
        """Return the item with this text as its whole content."""
        return _edited(item, "content", fields.quote(text, ascii_only=item.raw.isascii()))

    def note(self, text: str) -> Item:
        """Return a new user message of this text."""
        return _item(b'{"role":"user","content":' + fields.quote(text) + b"}", "a note")

    def wire_text(self, item: Item) -> str:
        """Return every key and scalar of the message, a line each, without inline media: what it costs, decoded."""
        message = dict(fields.mapping(fields.load(item.raw, "a message")))
        if item.media_bytes:
            message["content"] = [_without_media(part) for part in fields.sequence(message.get("content"))]
        return "\n".join(fields.leaves(message))

    def request_texts(self, request: Request) -> tuple[str, ...]:
        """Return every top-level field but the messages as raw JSON text (tools, schemas and all), for counting."""
        return tuple(each.value.decode() for each in request.fields if each.name != request.items_field)


SHAPE = parsing.Shape(items_field="messages", item=_item, limit_fields=("max_completion_tokens", "max_tokens"))
CHAT = Chat()


def _edited(item: Item, name: str, value: bytes) -> Item:
    return _item(fields.put(item.raw, name, value), "an edited message")
