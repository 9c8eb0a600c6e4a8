"""What earlier requests already proved, so that the work on a request grows with what is new in it.

Holds nothing that changes a result: a parse with a full memo, an empty one or none gives the same values. Safe to share
between threads, since entries are frozen and each access is one dictionary operation; a lost race costs a second look.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.context.items import Field, Item, Tool

V = TypeVar("V")

LIMIT_BYTES = 128 * 2**20
HEAD_BYTES = 2_048  # requests that continue one another share at least these; shorter ones are parsed at once anyway
CANDIDATES = 32  # conversations with the same head: they often share the whole system prompt
TRIED = 3  # of those, newest first, that are searched for a part in common when none is continued whole
PROBE_BYTES = 64
SMALL_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Seen:
    """A parsed body up to the end of its last item: `prefix` are its bytes, `fields` those up to the items' own.

    `seams` are those before each item, `ends` where each item ends. All that stands in `prefix` was checked.
    """

    prefix: bytes
    fields: tuple[Field, ...]
    items: tuple[Item, ...]
    seams: tuple[bytes, ...]
    ends: tuple[int, ...]

    def continued(self, body: bytes) -> bool:
        """Whether the body starts with the whole prefix. Its last bytes are looked at first: they tell conversations apart."""
        start = max(len(self.prefix) - PROBE_BYTES, 0)
        return body.startswith(self.prefix[start:], start) and body.startswith(self.prefix)

    def same(self, other: "Seen") -> bool:
        """Whether both have the same bytes. Their ends are looked at first: histories that share a head differ there."""
        mine, its = self.prefix, other.prefix
        return len(mine) == len(its) and mine[-PROBE_BYTES:] == its[-PROBE_BYTES:] and mine == its

    def shared(self, body: bytes) -> int:
        """Return how many of the first items the body shares, with every byte up to their end."""
        low, high, reached = 0, len(self.ends), 0
        while low < high:
            middle = (low + high + 1) // 2
            if body.startswith(self.prefix[reached : self.ends[middle - 1]], reached):
                low, reached = middle, self.ends[middle - 1]
            else:
                high = middle - 1
        return low


class Memo:
    """Items, checked values and recent requests by their bytes, within `limit_bytes` in all (least recently used go first)."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._items = _Cache[Item](limit_bytes // 2)
        self._values = _Cache[tuple[Tool, ...]](limit_bytes // 16)
        self._heads = _Cache[tuple[Seen, ...]](limit_bytes // 4)
        self._largest = limit_bytes // 16  # one huge picture does not push out everything else

    def item(self, raw: bytes, make: Callable[[bytes], Item]) -> Item:
        """Return the item of these bytes, made now if they are new."""
        if len(raw) > self._largest:
            return make(raw)
        item = self._items.get(raw)
        if item is None:
            item = make(raw)
            self._items.put(item.raw, item, 2 * len(raw))
        return item

    def value(self, raw: bytes, make: Callable[[bytes], tuple[Tool, ...]]) -> tuple[Tool, ...]:
        """Return the tools that a field's bytes hold (empty for most fields), checked now if they are new."""
        if len(raw) > self._largest:
            return make(raw)
        tools = self._values.get(raw)
        if tools is None:
            tools = make(raw)
            self._values.put(raw, tools, 2 * len(raw))
        return tools

    def longest(self, body: bytes) -> tuple[Seen, int] | None:
        """Return the recent request that shares most with this one, and how many of its items; None when none shares any."""
        candidates = self._heads.get(body[:HEAD_BYTES]) if len(body) > HEAD_BYTES else None
        if not candidates:
            return None
        whole = max((each for each in candidates if each.continued(body)), key=lambda each: len(each.prefix), default=None)
        if whole is not None:
            return whole, len(whole.items)
        count, seen = max(((each.shared(body), each) for each in candidates[:TRIED]), key=lambda pair: pair[0])
        return (seen, count) if count else None

    def knows(self, body: bytes) -> bool:
        """Whether little of the body is new, so that parsing it is quick."""
        found = self.longest(body)
        return found is not None and len(body) - found[0].ends[found[1] - 1] <= SMALL_BYTES

    def remember(self, seen: Seen, *, instead_of: Seen | None = None) -> None:
        """Keep a request for those that continue it; the one that it continues whole itself is let go."""
        size = len(seen.prefix)
        if not HEAD_BYTES < size <= self._largest or not seen.items:
            return
        head = seen.prefix[:HEAD_BYTES]
        others = [each for each in self._heads.get(head) or () if each is not instead_of and not each.same(seen)]
        kept = (seen, *others[: CANDIDATES - 1])
        self._heads.put(head, kept, sum(len(each.prefix) for each in kept))


class _Cache(Generic[V]):
    """Two generations: new and used entries are in the young one; when that is full, the old one is dropped and they swap.

    Within twice half the limit, no order to keep at each access, and a size miscounted in a race is put right at the swap.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._half = limit_bytes // 2
        self._young: dict[bytes, tuple[V, int]] = {}
        self._old: dict[bytes, tuple[V, int]] = {}
        self._size = 0

    def get(self, key: bytes) -> V | None:
        found = self._young.get(key)
        if found is None:
            found = self._old.get(key)
            if found is None:
                return None
            self.put(key, *found)
        return found[0]

    def put(self, key: bytes, value: V, size: int) -> None:
        size += 512  # what an entry itself takes, about
        if self._size + size > self._half and self._young:
            self._old, self._young, self._size = self._young, {}, 0
        replaced = self._young.get(key)
        self._young[key] = (value, size - 512)
        self._size += size - (replaced[1] + 512 if replaced else 0)
