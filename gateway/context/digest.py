"""SHA-256 digests and the rolling chain over items. Knows bytes only."""

import hashlib
from collections.abc import Iterable

EMPTY = bytes(32)


def digest(data: bytes) -> bytes:
    """Return the SHA-256 of the bytes (32 bytes)."""
    return hashlib.sha256(data).digest()


def link(chain: bytes, item: bytes) -> bytes:
    """Return the chain digest after one more item digest (both 32 bytes)."""
    return hashlib.sha256(chain + item).digest()


def chain(digests: Iterable[bytes], start: bytes = EMPTY) -> list[bytes]:
    """Return the chain digest after each item, in order: `result[i]` stands for items 0..i."""
    links = []
    for item in digests:
        start = link(start, item)
        links.append(start)
    return links
