"""The ledger on Redis Streams (6.2 or newer, standalone).

One script appends an entry: it writes only when every body the entry rests on is there or given, and otherwise answers
which are missing. Concurrent appends share a pipeline: while one is in flight the others queue, and the next flush
takes them together. The writer packs its commands itself and sends them on one connection of redis-py's (which does
names, TLS, log-in and parsing), so that a whole batch is one write. Nothing here needs Redis
to be up before the first append, and every wait is bounded.
"""

import asyncio
import contextlib
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

import hiredis
import redis.asyncio
from redis import exceptions
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.errors import LedgerError, SnapshotUnavailable
from gateway.ledger import codec
from gateway.ledger.lua import APPEND, APPEND_SHA
from gateway.ledger.records import Entry, Record

_log = logging.getLogger("gateway.ledger.redis")

_PREFIX = b"{gw:0}:"  # one slot for each shard, so that the script may touch all of its keys in a cluster
_STREAM = _PREFIX + b"ledger"
_BODY = _PREFIX + b"body:"
_SNAPSHOT = _PREFIX + b"snapshot:"
_BATCH = 128  # entries a flush
_BATCH_BYTES = 8_000_000  # and bytes, so that one huge prompt does not hold up the small ones behind it for long
_PAGE = 256  # stream entries or bodies a read: bounded memory
_KNOWN = 32_768  # digests remembered per generation, about 5 MB for both
_ROUNDS = 4  # the first trip, a script loaded anew, the missing bodies, and one to spare
_OFF_LOOP_BYTES = 524_288  # more than this is compressed or verified in a thread: 5 ms of the event loop
_WARN_EVERY_S = 5.0
_CLOCK_SLACK = timedelta(minutes=10)  # the stream's ids are the server's clock, `at` is the gateway's


@dataclass(slots=True, kw_only=True, eq=False)
class _Write:
    """One entry under way. `command` is packed; `sent` are the bodies it holds."""

    entry: Entry
    lines: tuple[bytes | str, ...]
    deadline: float  # the loop's time
    done: asyncio.Future[None] = field(repr=False)
    command: bytes = b""
    sent: list[bytes] = field(default_factory=list)
    whole: bool = False  # every body was sent: nothing more can be added


class _Known:
    """Digests that the store was seen to hold: two generations of bounded size. A hint; the script checks."""

    def __init__(self) -> None:
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()

    def __contains__(self, each: bytes) -> bool:
        return each in self._young or each in self._old

    def add(self, digests: Iterable[bytes]) -> None:
        self._young.update(digests)
        if len(self._young) >= _KNOWN:
            self._old, self._young = self._young, set()

    def clear(self) -> None:
        self._young, self._old = set(), set()


class RedisLedger:
    """See `gateway.ledger.base.Ledger`. `pool` connections are for reading; appends share one of their own.

    The URL is `redis://`, `rediss://` or `unix://`. It never shows in an error or a log line.
    """

    def __init__(self, url: str, timeout_s: float, pool: int = 16) -> None:
        self._timeout_s = timeout_s
        self._pool = redis.asyncio.BlockingConnectionPool.from_url(
            url,
            max_connections=pool,
            timeout=timeout_s,
            protocol=2,
            decode_responses=False,
            socket_connect_timeout=timeout_s,
            socket_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
        )
        self._client = redis.asyncio.Redis(connection_pool=self._pool)
        self._lane: AbstractConnection | None = None
        self._queue: deque[_Write] = deque()
        self._flusher: asyncio.Task[None] | None = None
        self._known = _Known()
        self._warned: dict[str, float] = {}
        self._closed = False

    async def append(self, entry: Entry) -> None:
        if self._closed:
            raise SnapshotUnavailable("the ledger is closed")
        loop = asyncio.get_running_loop()
        lines: list[bytes | str] = []
        for each in entry.records:
            lines += (each.id, each.TYPE, codec.group(each), codec.dumps(each))
        write = _Write(entry=entry, lines=tuple(lines), deadline=loop.time() + self._timeout_s, done=loop.create_future())
        timer = loop.call_at(write.deadline, self._expire, write)
        try:
            try:
                await self._pack(write)
            except LedgerError as error:
                raise SnapshotUnavailable(error.message) from error
            self._queue.append(write)
            if self._flusher is None:
                self._flusher = loop.create_task(self._flush())
            await write.done
        finally:
            timer.cancel()

    async def read(self, *, since: datetime | None = None, newest_first: bool = False) -> AsyncIterator[Record]:
        first = "-" if since is None else str(max(0, int((since - _CLOCK_SLACK).timestamp() * 1000)))
        last = "+"
        while True:
            arguments = ("XREVRANGE", _STREAM, last, first) if newest_first else ("XRANGE", _STREAM, first, last)
            rows: list[Any] = await self._ask(*arguments, "COUNT", _PAGE)
            for _, fields in rows:
                raw = _record(fields)
                if raw is None:
                    continue  # somebody else's entry: not ours to read
                record = codec.loads(raw)
                if since is None or record.at >= since:
                    yield record
            if len(rows) < _PAGE:
                return
            edge = "(" + rows[-1][0].decode()
            first, last = (first, edge) if newest_first else (edge, last)

    async def follow(self, cursor: str = "") -> AsyncIterator[tuple[str, Record]]:
        rows: list[Any] = [(cursor.encode(), {})]
        while rows:
            edge = rows[-1][0]
            rows = await self._ask("XRANGE", _STREAM, b"(" + edge if edge else b"-", b"+", "COUNT", _PAGE)
            for name, fields in rows:
                raw = _record(fields)
                if raw is not None:
                    yield name.decode(), codec.loads(raw)

    async def find(self, snapshot_id: str) -> tuple[Record, ...]:
        ids: list[bytes] = await self._ask("HVALS", _SNAPSHOT + snapshot_id.encode())
        found = []
        for each in sorted(ids, key=lambda name: tuple(map(int, name.split(b"-")))):
            rows: list[Any] = await self._ask("XRANGE", _STREAM, each, each)
            found += [codec.loads(raw) for _, fields in rows if (raw := _record(fields)) is not None]
        return tuple(found)

    async def bodies(self, digests: Iterable[bytes]) -> Mapping[bytes, bytes]:
        wanted = list(dict.fromkeys(digests))
        found: dict[bytes, bytes] = {}
        for at in range(0, len(wanted), _PAGE):
            page = wanted[at : at + _PAGE]
            stored: list[bytes | None] = await self._ask("MGET", *(_BODY + each.hex().encode() for each in page))
            if sum(len(each or b"") for each in stored) > _OFF_LOOP_BYTES:
                found.update(await asyncio.to_thread(_verified, page, stored))
            else:
                found.update(_verified(page, stored))
        return found

    async def ready(self) -> None:
        """Writes a small key: only a write shows a full memory, a replica, or a disk that refuses."""
        await self._ask("SET", _PREFIX + b"ready", b"1")

    async def close(self) -> None:
        self._closed = True
        if self._flusher is not None:
            await asyncio.wait((self._flusher,), timeout=self._timeout_s)
            if self._flusher is not None:
                self._flusher.cancel()
        await self._drop()

    # -- appending

    async def _pack(self, write: _Write) -> None:
        entry, bodies = write.entry, write.entry.bodies
        checked: Iterable[bytes]
        if write.whole:
            write.sent = list(bodies)
            checked = [each for each in entry.roots if each not in bodies]
        else:
            write.sent, checked = _split(entry, self._known)
        if sum(len(bodies[each]) for each in write.sent) > _OFF_LOOP_BYTES:
            write.command = await asyncio.to_thread(_command, write, checked)
        else:
            write.command = _command(write, checked)

    def _expire(self, write: _Write) -> None:
        self._fail(write, f"Redis did not acknowledge within {self._timeout_s:g} s")

    def _fail(self, write: _Write, reason: str) -> None:
        if not write.done.done():
            self._warn(reason)
            write.done.set_exception(SnapshotUnavailable(reason))

    def _warn(self, reason: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._warned.get(reason, -_WARN_EVERY_S) >= _WARN_EVERY_S:
            self._warned = {each: at for each, at in self._warned.items() if now - at < _WARN_EVERY_S} | {reason: now}
            _log.warning("ledger append failed: %s", reason)

    async def _flush(self) -> None:
        """Send what is queued, a batch at a time, until nothing is."""
        try:
            while self._queue:
                batch = self._take()
                if not batch:
                    continue
                try:
                    # Each write has its own time limit; the batch is given up when the last of them has passed.
                    async with asyncio.timeout_at(max(write.deadline for write in batch)):
                        await self._deliver(batch)
                except TimeoutError:
                    await self._drop()
        finally:
            self._flusher = None

    def _take(self) -> list[_Write]:
        batch: list[_Write] = []
        size = 0
        while self._queue and len(batch) < _BATCH and size < _BATCH_BYTES:
            write = self._queue.popleft()
            if not write.done.done():  # expired or abandoned while it waited: the caller was told that nothing was written
                batch.append(write)
                size += len(write.command)
        return batch

    async def _deliver(self, batch: list[_Write]) -> None:
        """Send until every write of the batch has its outcome. A lost answer is asked for again: a record id counts once."""
        fresh = self._lane is None
        for _ in range(_ROUNDS):
            try:
                batch = await self._round(batch)
            except (exceptions.RedisError, OSError) as error:
                await self._drop()
                batch = [write for write in batch if not write.done.done()]
                if fresh or not isinstance(error, (exceptions.ConnectionError, OSError)):
                    for write in batch:
                        self._fail(write, _reason(error))
                    return
                fresh = True  # the connection had gone stale: once more, on a new one
            if not batch:
                return
        for write in batch:
            self._fail(write, "Redis lost its script or bodies again and again")

    async def _round(self, batch: list[_Write]) -> list[_Write]:
        """Send the batch in one trip; return those that must go again, with what was missing added to their commands."""
        if self._lane is None:
            self._lane = cast(AbstractConnection, self._pool.make_connection())  # type: ignore[no-untyped-call] # redis-py's own
            # The flush bounds every wait; a limit of the connection's own would cost a timer for each answer.
            self._lane.socket_timeout = None
        lane = self._lane
        await lane.send_packed_command(b"".join([write.command for write in batch]), check_health=False)
        again: list[_Write] = []
        refused: exceptions.ResponseError | None = None
        unloaded = False
        for write in batch:
            try:
                answer = await lane.read_response()
            except exceptions.NoScriptError:
                unloaded = True
                again.append(write)
            except exceptions.ResponseError as error:
                refused = error
                self._fail(write, _reason(error))
            else:
                if await self._settle(write, answer):
                    again.append(write)
        if unloaded:
            await lane.send_packed_command(_packed(b"SCRIPT", b"LOAD", APPEND), check_health=False)
            await lane.read_response()
        if isinstance(refused, exceptions.ReadOnlyError):
            await self._drop()  # a name that led to the primary once may lead there again
        return again

    async def _settle(self, write: _Write, answer: object) -> bool:
        """Return whether the write must go again: the store lacks bodies that it was thought to hold."""
        if not isinstance(answer, list):
            self._known.add(write.entry.roots)
            self._known.add(write.sent)
            if not write.done.done():
                write.done.set_result(None)
            return False
        self._known.clear()
        if write.whole:
            self._fail(write, f"body {answer[0].decode()} is named by the entry and neither given nor stored")
            return False
        write.whole = True
        await self._pack(write)
        return True

    async def _drop(self) -> None:
        """Let go of every connection, so that the next one resolves its name anew."""
        lane, self._lane = self._lane, None
        with contextlib.suppress(exceptions.RedisError, OSError):  # closing what is broken may fail; it is gone either way
            if lane is not None:
                await lane.disconnect(nowait=True)
            await self._pool.disconnect(inuse_connections=False)

    # -- reading

    async def _ask(self, *command: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await cast(Awaitable[Any], self._client.execute_command(*command))  # type: ignore[no-untyped-call] # redis-py's own
        except TimeoutError as error:
            raise SnapshotUnavailable(f"Redis did not answer within {self._timeout_s:g} s") from error
        except (exceptions.RedisError, OSError) as error:
            # `from None`: the library's error names the server's address.
            raise SnapshotUnavailable(_reason(error)) from None


def _split(entry: Entry, known: _Known) -> tuple[list[bytes], list[bytes]]:
    """Return the bodies to send (not known to be stored) and the digests that the script must find.

    Below a node that is known nothing is looked at: it was written together with its items.
    """
    bodies = entry.bodies
    named: Iterable[bytes] = entry.roots if entry.nodes else dict.fromkeys((*entry.roots, *bodies))
    sent = [each for each in named if each not in known and each in bodies]
    new = set(sent)
    checked = [each for each in named if each not in new]
    below: dict[bytes, None] = {}
    for node in entry.nodes:
        if node in new:
            below.update(dict.fromkeys(codec.children(bodies[node])))
    for each in below:
        if each in new:
            continue
        (sent if each not in known and each in bodies else checked).append(each)
    return sent, checked


def _command(write: _Write, checked: Iterable[bytes]) -> bytes:
    given: list[bytes] = []
    for each in write.sent:
        given += (each.hex().encode(), codec.compress(write.entry.bodies[each]))
    names = b"".join(checked).hex()  # one argument: a third of the cost of one for each
    head = (b"EVALSHA", APPEND_SHA, b"1", _STREAM, _PREFIX, names, str(len(write.sent)))
    return _packed(*head, *given, *write.lines)


def _packed(*parts: bytes | str) -> bytes:
    pack = cast(Callable[[tuple[bytes | str, ...]], bytes], hiredis.pack_command)  # its stub says: exactly one part
    return pack(parts)


def _verified(wanted: list[bytes], stored: list[bytes | None]) -> dict[bytes, bytes]:
    return {each: codec.verified(each, found) for each, found in zip(wanted, stored, strict=True)}


def _record(fields: list[bytes] | Mapping[bytes, bytes]) -> bytes | None:
    found = fields if isinstance(fields, Mapping) else dict(zip(fields[::2], fields[1::2], strict=True))
    return found.get(b"record")


_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.MovedError, "MOVED"),
)


def _reason(error: Exception) -> str:
    """Return why Redis failed, by its own error word; never an address, a user or a password."""
    if isinstance(error, exceptions.AuthenticationError):
        return f"Redis refused the log-in ({'WRONGPASS' if 'invalid' in str(error).lower() else 'NOAUTH'})"
    if "unauthenticated" in str(error):  # "Protocol error: unauthenticated bulk length": what a long first command is told
        return "Redis refused the log-in (NOAUTH)"
    for kind, word in _WORDS:
        if isinstance(error, kind):
            return f"Redis answered {word}"
    if isinstance(error, exceptions.ResponseError):
        match = re.match(r"[A-Z]{2,20}\b", str(error))
        return f"Redis answered {match[0] if match else 'an error'}"
    if isinstance(error, (exceptions.TimeoutError, TimeoutError)):
        return "Redis did not answer in time"
    cause = error.__cause__ or error
    if isinstance(cause, OSError) and cause.errno is not None:
        return f"the connection to Redis failed ({type(cause).__name__})"
    return "the connection to Redis failed"
