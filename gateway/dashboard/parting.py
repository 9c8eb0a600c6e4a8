"""Two prompts side by side: what each is made of, and the byte where they part. Pure: bytes in, text out.

A provider renders the tools first, then the instructions, then the messages, whatever order a body has them in; so that is
the order in which two prompts are compared.
"""

from dataclasses import dataclass

import msgspec

from gateway.replay import first_difference

BEFORE = 240  # bytes shown before the parting, and behind it: a few lines, so that both fit beside each other
BEHIND = 900
OPENING = 160  # characters of a part's text shown while it is folded
SHOWN_BYTES = 200_000  # of one part, on a page


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a prompt: its role or field, and its bytes as they were sent."""

    name: str
    raw: bytes

    @property
    def opening(self) -> str:
        return visible(self.raw[: OPENING * 4])[:OPENING]

    @property
    def text(self) -> str:
        return visible(self.raw[:SHOWN_BYTES])

    @property
    def is_long(self) -> bool:
        return len(self.raw) > SHOWN_BYTES


@dataclass(frozen=True, slots=True)
class Side:
    """What one prompt holds around the parting: the end of what both share, and how it goes on."""

    shared: str
    own: str
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """Where two prompts part: in the part `index` (both of the same place), at the byte `offset` of it.

    `shared_bytes` are those before it, of `whole_bytes` in the second prompt. `ended`: one prompt only goes on where the
    other ends. `part` is the name of the part that differs.
    """

    index: int
    part: str
    offset: int
    shared_bytes: int
    whole_bytes: int
    ended: bool
    before: Side
    after: Side


class _Body(msgspec.Struct):
    tools: msgspec.Raw = msgspec.Raw(b"")
    system: msgspec.Raw = msgspec.Raw(b"")
    instructions: msgspec.Raw = msgspec.Raw(b"")
    messages: list[msgspec.Raw] = []
    input: msgspec.Raw = msgspec.Raw(b"")


class _Message(msgspec.Struct):
    role: str = ""
    type: str = ""


def parts(body: bytes) -> tuple[Part, ...]:
    """Return what a prompt is made of, in the order a provider renders it; one part for a body that cannot be cut."""
    try:
        found = msgspec.json.decode(body, type=_Body)
        items = list(found.messages)
        if found.input and bytes(found.input).startswith(b"["):
            items += msgspec.json.decode(found.input, type=list[msgspec.Raw])
        elif found.input:
            items.append(found.input)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return (Part("body", body),)
    fields = (("tools", found.tools), ("system", found.system), ("instructions", found.instructions))
    return (*(Part(name, bytes(raw)) for name, raw in fields if raw), *(Part(_role(raw), bytes(raw)) for raw in items))


def _role(raw: msgspec.Raw) -> str:
    try:
        message = msgspec.json.decode(raw, type=_Message)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "message"
    return message.role or message.type or "message"


def part(one: bytes, other: bytes) -> Parting | None:
    """Return where two prompts part; None when a provider renders both alike."""
    first, second = parts(one), parts(other)
    index = next(
        (at for at, (mine, theirs) in enumerate(zip(first, second, strict=False)) if mine != theirs), min(len(first), len(second))
    )
    if index == len(first) == len(second):
        return None
    mine = first[index].raw if index < len(first) else b""
    theirs = second[index].raw if index < len(second) else b""
    offset = _whole(mine, first_difference(mine, theirs))
    shared = sum(len(each.raw) for each in first[:index])
    return Parting(
        index=index,
        part=second[index].name if index < len(second) else first[index].name,
        offset=offset,
        shared_bytes=shared + offset,
        whole_bytes=sum(len(each.raw) for each in second),
        ended=not mine or not theirs,
        before=_side(first, index, offset),
        after=_side(second, index, offset),
    )


def _whole(raw: bytes, offset: int) -> int:
    """Return the start of the character that the offset is in: half a character cannot be shown."""
    while 0 < offset < len(raw) and raw[offset] & 0xC0 == 0x80:
        offset -= 1
    return offset


def _side(found: tuple[Part, ...], index: int, offset: int) -> Side:
    raw = found[index].raw if index < len(found) else b""
    start = _whole(raw, max(0, offset - BEFORE))
    end = _whole(raw, min(len(raw), offset + BEHIND))
    lead = raw[start:offset]
    if start == 0 and 0 < index <= len(found) and len(lead) < BEFORE:
        previous = found[index - 1].raw
        lead = previous[_whole(previous, max(0, len(previous) - (BEFORE - len(lead)))) :] + b"\n" + lead
    return Side(visible(lead), visible(raw[offset:end]), end < len(raw) or index + 1 < len(found))


# Characters that would hide or reorder others on a page are shown by name: what is compared must be what is seen.
_HIDDEN = {each: f"⟨U+{each:04X}⟩" for each in (*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x206A), 0xFEFF)}
_HIDDEN |= {each: chr(0x2400 + each) for each in range(0x20) if each not in (0x09, 0x0A)} | {0x7F: "␡"}


def visible(raw: bytes) -> str:
    """Return bytes as text in which every character can be seen; bytes that are no UTF-8 become U+FFFD."""
    return raw.decode("utf-8", "replace").translate(_HIDDEN)
