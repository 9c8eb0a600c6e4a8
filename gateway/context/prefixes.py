"""Values worked out for the first items of earlier requests, so that a request that continues one goes on from there.

A cache and nothing else: what is found was made from the very same items, and without it the same value is made anew.
Safe to share between threads, since values are frozen and each access is one dictionary operation.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.context.items import Item

V = TypeVar("V")

LIMIT_BYTES = 64 << 20  # of the items that values were made from; most of them are in the dialect's memo anyway
LOOK_BACK = 64  # items that one turn adds at most, or it is worked out from the first


@dataclass(frozen=True, slots=True)
class _Kept(Generic[V]):
    items: tuple[Item, ...]
    size_bytes: int
    value: V


class Prefixes(Generic[V]):
    """Values by the items they were made from and a key for all else they depend on. The least recently used go first."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._half = limit_bytes // 2
        self._young: dict[tuple[Hashable, int, bytes], _Kept[V]] = {}
        self._old: dict[tuple[Hashable, int, bytes], _Kept[V]] = {}
        self._size = 0

    def longest(self, items: tuple[Item, ...], key: Hashable) -> tuple[int, V] | None:
        """Return the value of the longest known prefix of these items, and how many items that has; None when none is known."""
        for count in range(len(items), max(0, len(items) - LOOK_BACK), -1):
            name = (key, count, items[count - 1].digest)
            found = self._young.get(name) or self._old.get(name)
            # Items are most often the same objects, and then a thousand are compared in some microseconds.
            if found is not None and found.items == items[:count]:
                return count, found.value
        return None

    def keep(self, items: tuple[Item, ...], key: Hashable, value: V, instead_of: int = 0) -> None:
        """Keep the value of these items; the one of the first `instead_of`, which it continues, is let go."""
        if not items:
            return
        before = self._young.pop((key, instead_of, items[instead_of - 1].digest), None) if instead_of else None
        size = (before.size_bytes if before else 0) + sum(len(item.raw) for item in items[instead_of if before else 0 :])
        self._size -= before.size_bytes if before else 0
        if self._size + size > self._half and self._young:
            self._old, self._young, self._size = self._young, {}, 0
        name = (key, len(items), items[-1].digest)
        replaced = self._young.get(name)
        self._size += size - (replaced.size_bytes if replaced else 0)
        self._young[name] = _Kept(items, size, value)
