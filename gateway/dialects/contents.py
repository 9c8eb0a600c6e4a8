"""The texts of a content, which is one text or a list of blocks, and those texts put back into its bytes.

The same for chat's parts and Anthropic's blocks: a block with a `text` holds one, a `tool_result` holds a content of its own.
"""

from collections.abc import Iterator

from gateway.dialects import fields


def texts(content: object) -> Iterator[str]:
    """Yield the texts of a content in order, such that they can be encoded."""
    if type(content) is str:
        yield fields.clean(content)
    for block in fields.sequence(content):
        yield from _of_block(block)


def _of_block(block: object) -> Iterator[str]:
    held = fields.mapping(block)
    if held.get("type") == "tool_result":
        yield from texts(held.get("content"))
    elif type(text := held.get("text")) is str:
        yield fields.clean(text)


def with_texts(content: bytes, given: Iterator[str], *, ascii_only: bool) -> bytes:
    """Return the JSON of a content with these texts, of which it takes as many as `texts` gives. Equal ones keep their bytes.

    A block whose text got empty is left out, but for the first when none would be left: providers refuse an empty list.
    """
    if content[:1] == b'"':
        was, text = fields.clean(str(fields.load(content, "a text"))), next(given)
        return content if was == text else fields.quote(text, ascii_only=ascii_only)
    raws, seams = fields.elements(content)
    kept: list[tuple[bytes, bytes]] = []
    emptied: list[tuple[bytes, bytes]] = []
    for seam, raw in zip(seams, raws, strict=False):
        block = fields.load(raw, "a block")
        was_texts = tuple(_of_block(block))
        now = tuple(next(given) for _ in was_texts)
        if now == was_texts:
            kept.append((seam, raw))
        elif fields.mapping(block).get("type") == "tool_result":
            inner = next(each.value for each in fields.split(raw)[0] if each.name == "content")
            kept.append((seam, fields.put(raw, "content", with_texts(inner, iter(now), ascii_only=ascii_only))))
        else:
            made = fields.put(raw, "text", fields.quote(now[0], ascii_only=ascii_only))
            (kept if now[0] else emptied).append((seam, made))
    kept = kept or emptied[:1]
    # What opens the list stays what opens it, whichever block comes first now.
    return b"".join([seams[0], kept[0][1], *(seam + raw for seam, raw in kept[1:]), seams[-1]])
