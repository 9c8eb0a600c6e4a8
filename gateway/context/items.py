"""The values that a request is made of: its top-level fields, its items (messages) and its tools.

**A message is its bytes**: cut out of the body once, then only concatenated. Beside the bytes stand the few facts
that the core needs. Nothing here parses: a dialect reads the facts, the core only looks at them.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol


class Kind(StrEnum):
    """What an item is for the core, whatever its dialect calls the role."""

    SYSTEM = "system"  # system and developer turns
    USER = "user"
    ASSISTANT = "assistant"
    RESULT = "result"  # an answer to a call: `tool`, `function`
    OTHER = "other"  # a role that is not known here; forwarded untouched


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One message. `raw` is its JSON exactly as the client sent it, without surrounding white space.

    `opens` are the ids of the calls it makes, `answers` those it answers, both in order, possibly empty and not unique
    over a conversation (pairing is by the nearest call). `media_bytes` are the bytes of `raw` that are inline media
    (base64) and are never counted as text; `media_tokens` is their flat price.
    """

    raw: bytes
    digest: bytes
    kind: Kind
    role: str
    opens: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    media_bytes: int = 0
    media_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool definition, its own bytes. `name` is "" when the definition has none that can be read."""

    raw: bytes
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One top-level field of the body.

    `lead` is every byte from the end of the value before (or the start of the body) up to this value: brace or comma,
    white space, the key, the colon. So the body is each `lead + value` in order, then `Request.close`. `value` is
    empty for the field that holds the items: those stand in `Request.items`, with their seams.
    """

    name: str
    lead: bytes
    value: bytes


def _key(name: str) -> bytes:
    return json.dumps(name, ensure_ascii=False).encode() + b":"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A parsed body, and the draft that is edited into a prompt. Assembling an unedited one gives the body's own bytes.

    `seams` are the bytes around the items: one more than there are items, the first with the opening bracket, the last
    with the closing one. `tools` is empty when there are none or when they are not a plain list; then the field is opaque.
    `output_limit` is the request's own limit in tokens (`max_completion_tokens`, else `max_tokens`), None when it names none.
    """

    fields: tuple[Field, ...]
    close: bytes
    items: tuple[Item, ...]
    seams: tuple[bytes, ...]
    items_field: str = "messages"
    tools: tuple[Tool, ...] = ()
    model: str = ""
    stream: bool = False
    include_usage: bool = False
    output_limit: int | None = None
    output_limit_field: str | None = None

    def value(self, name: str) -> bytes | None:
        """Return the raw JSON of a top-level field, None when it is absent."""
        for each in self.fields:
            if each.name == name:
                return each.value
        return None

    def with_value(self, name: str, value: bytes) -> "Request":
        """Return a request whose field has this value, the key where it was; a missing field is added last."""
        if any(each.name == name for each in self.fields):
            fields = tuple(replace(each, value=value) if each.name == name else each for each in self.fields)
        else:
            lead = (b"," if self.fields else b"{") + _key(name)
            fields = (*self.fields, Field(name=name, lead=lead, value=value))
        # With no field left, the closing bytes hold the opening brace: see `without`.
        return replace(self, fields=fields, close=self.close if self.fields else self.close[1:])

    def without(self, name: str) -> "Request":
        """Return a request that lacks a top-level field; the rest stays legal JSON, every other byte as it is."""
        kept = [each for each in self.fields if each.name != name]
        if kept and kept[0] is not self.fields[0]:
            first = kept[0]
            kept[0] = replace(
                first, lead=self.fields[0].lead[: self.fields[0].lead.index(b"{") + 1] + first.lead.partition(b",")[2]
            )
        close = self.close if kept else b"{" + self.close
        return replace(self, fields=tuple(kept), close=close) if len(kept) < len(self.fields) else self

    def renamed(self, old: str, new: str) -> "Request":
        """Return a request whose field has another name, at its place; a field that has that name already gives way."""
        if all(each.name != old for each in self.fields):
            return self
        made = self.without(new) if old != new else self
        fields = (
            replace(each, name=new, lead=(b"{" if n == 0 else b",") + _key(new)) if each.name == old else each
            for n, each in enumerate(made.fields)
        )
        return replace(made, fields=tuple(fields), items_field=new if old == made.items_field else made.items_field)

    def with_items(self, items: tuple[Item, ...]) -> "Request":
        """Return a request with other items: joined by plain commas, opened and closed as before."""
        opening, closing = self.seams[0], self.seams[-1]
        if not self.items:  # one seam then holds both brackets
            opening, closing = opening[: opening.index(b"[") + 1], opening[opening.index(b"[") + 1 :]
        seams = (opening, *(b"," for _ in items[1:]), closing) if items else (opening + closing,)
        return replace(self, items=items, seams=seams)

    def pieces(self) -> Iterator[bytes]:
        """Yield the body's bytes in order, every item and every field value a piece of its own."""
        for each in self.fields:
            yield each.lead
            if each.name != self.items_field:
                yield each.value
                continue
            yield self.seams[0]
            for item, seam in zip(self.items, self.seams[1:], strict=True):
                yield item.raw
                yield seam
        yield self.close

    def body(self) -> bytes:
        """Return the whole body."""
        return b"".join(self.pieces())


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """How many estimated tokens each segment of a prompt holds; `moved` of them were relocated to the tail."""

    stable: int = 0
    semi: int = 0
    dynamic: int = 0
    moved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What is sent to one target. `request.body()` are its bytes; `tail` is how many last items are context notes.

    `tail` items (moved volatile text) are no part of the growing prefix.
    """

    request: Request
    body: bytes
    digest: bytes
    segments: Segments = field(default_factory=Segments)
    tail: int = 0


class Dialect(Protocol):
    """What the core may ask of the dialect that a request came in. All pure, none raises on an item it parsed itself."""

    name: str

    def texts(self, item: Item) -> tuple[str, ...]:
        """Return the item's content texts in order (a string content is one text), without media or calls."""
        ...

    def with_texts(self, item: Item, texts: tuple[str, ...]) -> Item:
        """Return the item with those texts in place of its own; every other byte stays. An emptied text part is left out."""
        ...

    def with_role(self, item: Item, role: str) -> Item:
        """Return the item under another role; every other byte stays."""
        ...

    def with_result(self, item: Item, text: str) -> Item:
        """Return a result item whose whole content is this text; ids, flags and every other byte stay."""
        ...

    def note(self, text: str) -> Item:
        """Return a new item in user role that holds this text."""
        ...

    def wire_text(self, item: Item) -> str:
        """Return all that the item puts on the wire as text (names, ids, arguments, unknown fields), without media."""
        ...

    def request_texts(self, request: Request) -> tuple[str, ...]:
        """Return all that a request puts on the wire beside its items, as texts to be counted."""
        ...
