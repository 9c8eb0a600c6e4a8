"""The values that a request is made of: its top-level fields, its items (messages) and its tools.

**A message is its bytes**: cut out of the body once, then only concatenated. Beside the bytes stand the few facts
that the core needs. Nothing here parses: a dialect reads the facts, the core only looks at them.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from gateway.context.digest import digest


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
    (base64) and are never counted as text; `media_tokens` is their flat price. `place` names the top-level field it stands
    in where that is not the conversation's own: `system` of Anthropic's Messages, `instructions` of Responses.
    """

    raw: bytes
    digest: bytes
    kind: Kind
    role: str
    opens: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    media_bytes: int = 0
    media_tokens: int = 0
    place: str = ""


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


def _unbared(item: Item, halves: tuple[bytes, bytes]) -> Item:
    """Return the item as it stands in a list: a bare string between the two halves of an object."""
    if item.raw[:1] != b'"':
        return item
    raw = item.raw.join(halves)
    return replace(item, raw=raw, digest=digest(raw))


_TEXT_BLOCK = (b'{"type":"text","text":', b"}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A parsed body, and the draft that is edited into a prompt. Assembling an unedited one gives the body's own bytes.

    `seams` are the bytes around the items: one more than there are items, the first with the opening bracket, the last
    with the closing one. `tools` is empty when there are none or when they are not a plain list; then the field is opaque.
    `output_limit` is the request's own limit in tokens (`max_completion_tokens`, else `max_tokens`), None when it names none.

    Items that have a `place` come first, whatever the order of the fields: a provider reads them first. They are a view of
    that field, whose value holds their bytes; only the others, `turns`, stand at `items_field`. An item that is a bare JSON
    string becomes an object between the two halves of `bare` where it must stand in a list.
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
    bare: tuple[bytes, bytes] = (b'{"role":"user","content":', b"}")

    @property
    def lead(self) -> tuple[Item, ...]:
        """The items that stand in a field of their own, ahead of the conversation."""
        count = next((n for n, item in enumerate(self.items) if not item.place), len(self.items))
        return self.items[:count]

    @property
    def turns(self) -> tuple[Item, ...]:
        """The items of the conversation."""
        return self.items[len(lead) :] if (lead := self.lead) else self.items

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
        """Return a request with other items: joined by plain commas, opened and closed as before. Those with a place go first."""
        lead = tuple(item for item in items if item.place)
        turns = tuple(item for item in items if not item.place) if lead else items
        if len(lead) > 1:
            lead = tuple(_unbared(item, _TEXT_BLOCK) for item in lead)
        made = self if lead == self.lead else self._with_lead(lead)
        opening, closing = self.seams[0], self.seams[-1]
        if b"[" not in opening:
            if len(turns) == 1 and turns[0].raw[:1] == b'"':
                return replace(made, items=(*lead, *turns), seams=(b"", b""))
            opening, closing = b"[", b"]"
            turns = tuple(_unbared(item, self.bare) for item in turns)  # only a body without a list has a bare string
        elif not self.turns:  # one seam then holds both brackets
            opening, closing = opening[: opening.index(b"[") + 1], opening[opening.index(b"[") + 1 :]
        seams = (opening, *(b"," for _ in turns[1:]), closing) if turns else (opening + closing,)
        if turns and made.value(made.items_field) is None:
            made = made.with_value(made.items_field, b"")
        return replace(made, items=(*lead, *turns), seams=seams)

    def _with_lead(self, lead: tuple[Item, ...]) -> "Request":
        """Return a request whose leading field holds these items, and is not there when there are none."""
        if not lead:
            return self.without(self.lead[0].place)
        if len(lead) == 1 and lead[0].raw[:1] == b'"':
            return self.with_value(lead[0].place, lead[0].raw)
        return self.with_value(lead[0].place, b"[" + b",".join(item.raw for item in lead) + b"]")

    def pieces(self) -> Iterator[bytes]:
        """Yield the body's bytes in order, every item and every field value a piece of its own."""
        for each in self.fields:
            yield each.lead
            if each.name != self.items_field:
                yield each.value
                continue
            yield self.seams[0]
            for item, seam in zip(self.turns, self.seams[1:], strict=True):
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
