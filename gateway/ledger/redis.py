"""The ledger on Redis Streams (6.2 or newer; one server, Sentinel or a Cluster), sharded by lineage.

A lineage's records and the bodies they need are in one shard, which is one slot: `{gw:SHARD}:ledger` and
`{gw:SHARD}:body:DIGEST`. `redis_shard` appends to one of them; here entries are dealt out and the streams read as one.
Nothing here needs Redis to be up before the first append, and every wait is bounded.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from gateway.errors import SnapshotUnavailable
from gateway.ledger import codec
from gateway.ledger.records import Entry, Record
from gateway.ledger.redis_shard import Durability, Shard
from gateway.redis_servers import RedisFailed, RedisServers, shards_of

_COUNT = b"{gw:0}:shards"  # how many streams there are: the store says it, so that every process and command agrees
_CLUSTER_SHARDS = 16  # enough to spread over a few nodes, few enough to read as one
_PAGE = 256  # stream entries or bodies a read: bounded memory
_OFF_LOOP_BYTES = 524_288  # more than this is verified in a thread: 5 ms of the event loop
_CLOCK_SLACK = timedelta(minutes=10)  # the stream's ids are the server's clock, `at` is the gateway's


class RedisLedger:
    """See `gateway.ledger.base.Ledger`. `pool` connections are for reading; appends have one for each shard beside them.

    The URL is as `RedisServers` reads it; `shards=N` in its query asks for so many streams (1, on a Cluster 16). They can
    become more and never fewer. It never shows in an error or a log line. `gateway` names this process.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float,
        pool: int = 16,
        *,
        durability: Durability = Durability.APPENDED,
        gateway: str = "",
    ) -> None:
        self._timeout_s, self._durability, self._gateway = timeout_s, durability, gateway
        self._servers = RedisServers(url, timeout_s, pool)
        self._wanted = shards_of(url) or (_CLUSTER_SHARDS if self._servers.clustered else 1)
        self._shards: tuple[Shard, ...] = ()
        self._last = 0  # the shard that bodies were found in last: those of one prompt are in one
        self._closed = False

    async def append(self, entry: Entry) -> None:
        shards = await self._open()
        parts = _dealt(entry, len(shards))
        if len(parts) == 1:
            number, part = parts.popitem()
            await shards[number].append(part)
            return
        # Entries of several lineages are ends of calls that share an append: each record counts once, so a part may be repeated.
        results = await asyncio.gather(*(shards[number].append(part) for number, part in parts.items()), return_exceptions=True)
        for each in results:
            if isinstance(each, BaseException):
                raise each

    async def read(self, *, since: datetime | None = None, newest_first: bool = False) -> AsyncIterator[Record]:
        first = b"-" if since is None else str(max(0, int((since - _CLOCK_SLACK).timestamp() * 1000))).encode()
        shards = await self._open(again=True)
        streams = [_Stream(self._ask, shard.stream, first, newest_first=newest_first) for shard in shards]
        async for _, raw in _merged(streams, newest_first=newest_first):
            record = codec.loads(raw)
            if since is None or record.at >= since:
                yield record

    async def follow(self, cursor: str = "") -> AsyncIterator[tuple[str, Record]]:
        places = _places(cursor)
        shards = await self._open(again=True)
        firsts = [b"(" + places[at] if at in places else b"-" for at in range(len(shards))]
        streams = [_Stream(self._ask, shard.stream, first) for shard, first in zip(shards, firsts, strict=True)]
        async for number, raw in _merged(streams):
            places[number] = streams[number].at
            yield _cursor(places), codec.loads(raw)

    async def find(self, snapshot_id: str) -> tuple[Record, ...]:
        shards = await self._open(again=True)
        kept = await asyncio.gather(*(self._ask("HVALS", each.prefix + b"snapshot:" + snapshot_id.encode()) for each in shards))
        found = []
        for shard, ids in zip(shards, kept, strict=True):
            for each in sorted(ids, key=_place):
                rows: list[Any] = await self._ask("XRANGE", shard.stream, each, each)
                found += [codec.loads(raw) for _, fields in rows if (raw := _record(fields)) is not None]
        return tuple(found)

    async def bodies(self, digests: Iterable[bytes]) -> Mapping[bytes, bytes]:
        wanted = list(dict.fromkeys(digests))
        found: dict[bytes, bytes] = {}
        shards = await self._open()
        for at in range(0, len(wanted), _PAGE):
            page = wanted[at : at + _PAGE]
            stored = await self._stored(page, shards)
            values = [stored.get(each) for each in page]
            if sum(len(each or b"") for each in values) > _OFF_LOOP_BYTES:
                found.update(await asyncio.to_thread(_verified, page, values))
            else:
                found.update(_verified(page, values))
        return found

    async def ready(self) -> None:
        """Every shard takes a write, on the very way that appends go: busy readers are no reason to be away."""
        await asyncio.gather(*(each.ready() for each in await self._open()))

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(each.close() for each in self._shards))
        await self._servers.close()

    async def _open(self, *, again: bool = False) -> tuple[Shard, ...]:
        """Return the shards, as many as the store says; `again`: another gateway may have added some."""
        if self._closed:
            raise SnapshotUnavailable("the ledger is closed")
        if self._shards and not again:
            return self._shards
        said = await self._ask("GET", _COUNT)
        count = max(int(said or 0), self._wanted)
        if count > int(said or 0):
            await self._ask("SET", _COUNT, str(count).encode())
        for number in range(len(self._shards), count):
            made = Shard(self._servers, self._timeout_s, number, count, self._durability, self._gateway)
            self._shards = (*self._shards, made)
        return self._shards

    async def _stored(self, page: Sequence[bytes], shards: Sequence[Shard]) -> dict[bytes, bytes]:
        """Return what is stored of these: the shard that had the last ones is asked first, all others for what it lacks."""

        async def look(number: int, names: Sequence[bytes]) -> dict[bytes, bytes]:
            keys = [shards[number].prefix + b"body:" + each.hex().encode() for each in names]
            values: list[bytes | None] = await self._ask("MGET", *keys)
            return {name: value for name, value in zip(names, values, strict=True) if value is not None}

        found = await look(self._last, page)
        lacking = [each for each in page if each not in found]
        if lacking and len(shards) > 1:
            others = [number for number in range(len(shards)) if number != self._last]
            for number, more in zip(others, await asyncio.gather(*(look(each, lacking) for each in others)), strict=True):
                if more:
                    self._last = number
                found |= more
        return found

    async def _ask(self, command: str, key: bytes, *arguments: bytes | str | int) -> Any:
        try:
            return await self._servers.ask(key, command, key, *arguments)
        except RedisFailed as error:
            raise SnapshotUnavailable(error.reason) from None


class _Stream:
    """One shard's stream, read a page at a time. `at` is the id of the entry that was taken last."""

    def __init__(self, ask: Any, name: bytes, first: bytes, *, newest_first: bool = False) -> None:
        self._ask, self._name, self._first, self._newest_first = ask, name, first, newest_first
        self._last = b"+"
        self._rows: list[Any] = []
        self._ended = False
        self.at = b""

    async def head(self) -> bytes | None:
        """Return the id of the next entry, None at the end. Somebody else's entries are passed over."""
        while True:
            while self._rows and _record(self._rows[-1][1]) is None:
                self._rows.pop()
            if self._rows:
                return bytes(self._rows[-1][0])
            if self._ended:
                return None
            await self._page()

    def take(self) -> bytes:
        self.at, fields = self._rows.pop()
        raw = _record(fields)
        assert raw is not None
        return raw

    async def _page(self) -> None:
        way = ("XREVRANGE", self._last, self._first) if self._newest_first else ("XRANGE", self._first, self._last)
        rows = await self._ask(way[0], self._name, *way[1:], "COUNT", _PAGE)
        self._ended = len(rows) < _PAGE
        if rows:
            edge = b"(" + rows[-1][0]
            self._first, self._last = (self._first, edge) if self._newest_first else (edge, self._last)
        self._rows = rows[::-1]


async def _merged(streams: Sequence[_Stream], *, newest_first: bool = False) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the number of a stream and its next record, by the entries' ids: the time each server wrote them."""
    heads = {at: _place(head) for at, each in enumerate(streams) if (head := await each.head()) is not None}
    while heads:
        number = (max if newest_first else min)(heads, key=heads.__getitem__)
        yield number, streams[number].take()
        head = await streams[number].head()
        if head is None:
            del heads[number]
        else:
            heads[number] = _place(head)


def _dealt(entry: Entry, count: int) -> dict[int, Entry]:
    """Return the entry's parts by shard. A record goes where its lineage is; one without has its snapshot to go by."""
    if count == 1 or not entry.records:
        return {0: entry}
    dealt: dict[int, list[Record]] = {}
    for record in entry.records:
        number = zlib.crc32((record.lineage or codec.group(record)).encode("utf-8", "replace")) % count
        dealt.setdefault(number, []).append(record)
    if len(dealt) == 1:
        return dict.fromkeys(dealt, entry)
    return {number: _part(tuple(records), entry.bodies) for number, records in dealt.items()}


def _part(records: tuple[Record, ...], bodies: Mapping[bytes, bytes]) -> Entry:
    made = codec.entry(records, bodies)
    needed = [*made.roots, *(child for node in made.nodes if node in bodies for child in codec.children(bodies[node]))]
    return replace(made, bodies={each: bodies[each] for each in needed if each in bodies})


def _place(name: bytes) -> tuple[int, int]:
    milliseconds, _, number = name.partition(b"-")
    return int(milliseconds), int(number)


def _places(cursor: str) -> dict[int, bytes]:
    """Return the id behind which to go on for each shard. A cursor is `ID` of the first shard, then `/SHARD=ID` of others."""
    first, *others = cursor.split("/")
    found = {0: first.encode()} if first else {}
    for each in others:
        number, _, name = each.partition("=")
        found[int(number)] = name.encode()
    return found


def _cursor(places: Mapping[int, bytes]) -> str:
    others = (f"/{number}={places[number].decode()}" for number in sorted(places) if number)
    return places.get(0, b"").decode() + "".join(others)


def _verified(wanted: Sequence[bytes], stored: Sequence[bytes | None]) -> dict[bytes, bytes]:
    return {each: codec.verified(each, found) for each, found in zip(wanted, stored, strict=True)}


def _record(fields: list[bytes] | Mapping[bytes, bytes]) -> bytes | None:
    found = fields if isinstance(fields, Mapping) else dict(zip(fields[::2], fields[1::2], strict=True))
    return found.get(b"record")
