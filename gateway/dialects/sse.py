"""Server-sent events as bytes: where whole events end, what data they hold, and which of it the client did not ask for.

Lines end at CR, LF and CRLF only (not at U+2028 and its like). Bytes are passed on as they came; nothing is decoded.
"""

import re
from collections.abc import Iterator

from gateway.dialects import fields
from gateway.errors import RequestError

# Atomic, so that a CRLF is never taken for two line ends.
_EVENT = re.compile(rb".*?(?>\r\n|\n|\r)(?>\r\n|\n|\r)+", re.DOTALL)
# What the last brace closes is the whole event, so this key is the event's own: no need to read it. Both orders of OpenAI.
_NULL_LAST = re.compile(rb',"usage":null((?:,"obfuscation":"[^"\\]*")?\}(?:\r\n|\n|\r)*)\Z')
_OVERLAP = 3  # the longest line ends that may stand before an event's last byte


class Splitter:
    """Cuts a stream that arrives in any chunks at the ends of its events. Owns the bytes of the one that is not whole yet."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._last = b""

    @property
    def rest(self) -> bytes:
        """The bytes after the last whole event."""
        return b"".join(self._parts)

    def feed(self, chunk: bytes) -> bytes:
        """Return all bytes not yet returned up to the end of the last whole event; empty when no event got whole.

        An event ended by a lone CR is whole at once; an LF that turns out to belong to it comes with the next one.
        """
        window = self._last + chunk
        end = _last_end(window)
        self._last = window[-_OVERLAP:]
        if end <= len(window) - len(chunk):
            if chunk:
                self._parts.append(chunk)
            return b""
        cut = len(chunk) - (len(window) - end)
        block = b"".join([*self._parts, chunk[:cut]])
        self._parts = [chunk[cut:]] if cut < len(chunk) else []
        self._last = window[end:][-_OVERLAP:]
        return block


def _last_end(data: bytes) -> int:
    """Return where the last blank line ends, 0 when there is none. Every two line ends in a row hold one of these pairs."""
    end = data.rfind(b"\n\n")
    if b"\r" in data:
        end = max(end, data.rfind(b"\n\r"), data.rfind(b"\r\r"))
        if data[end + 1 : end + 3] == b"\r\n":
            end += 1
    return end + 2 if end >= 0 else 0


def events(data: bytes) -> Iterator[bytes]:
    """Yield each event's data, lines joined by LF, without events that have none; a last event that is not whole counts."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for block in data.split(b"\n\n"):
        if payload := _payload(block):
            yield payload


def _payload(block: bytes) -> bytes:
    if block.startswith(b"data: ") and b"\n" not in block:
        return block[6:]
    lines = [line[5:] for line in block.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(line[1:] if line.startswith(b" ") else line for line in lines)


def strip_usage(block: bytes) -> bytes:
    """Return whole events without the usage that only the gateway asked for; every other byte stays.

    Events with a usage and no choices go; `"usage": null` leaves the others. An event with neither choices nor usage
    (Azure's prompt filter) stays. Source: reference, usage-fields, sections 3 and 5.
    """
    if b'"usage"' not in block:
        return block
    return b"".join(_stripped(event) if b'"usage"' in event else event for event in _whole(block))


def _whole(block: bytes) -> list[bytes]:
    if b"\r" not in block:
        parts = block.split(b"\n\n")
        return [part + b"\n\n" for part in parts[:-1]] + parts[-1:]
    found = list(_EVENT.finditer(block))
    return [each[0] for each in found] + [block[found[-1].end() if found else 0 :]]


def _stripped(event: bytes) -> bytes:
    if (found := _NULL_LAST.search(event, max(event.rfind(b',"usage":null'), 0))) is not None:
        return event[: found.start()] + found[1]
    start = 6 if event.startswith(b"data: ") else 5
    payload = event[start:].rstrip(b"\r\n")
    if not event.startswith(b"data:") or b"\n" in payload or b"\r" in payload:
        return event
    try:
        parts, close = fields.split(payload)
    except RequestError:  # no JSON object: it is the client's to read
        return event
    values = {each.name: each.value for each in parts}
    if values.get("usage", b"null") != b"null":
        return b"" if b"".join(values.get("choices", b"").split()) == b"[]" else event
    if "usage" not in values or len(parts) == 1:
        return event
    return event[:start] + fields.join(fields.without(parts, "usage"), close) + event[start + len(payload) :]
