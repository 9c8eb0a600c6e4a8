"""One shard of the ledger on Redis: a queue of entries and the connections that carry it, a batch a round trip.

One script appends an entry: it writes only when every body the entry rests on is there or given, and otherwise answers
which are missing. Concurrent appends share a pipeline: while one is in flight the others queue, and the next flush takes
them together. The commands are packed here, so that a whole batch is one write. Knows nothing of other shards.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from redis import exceptions
from redis.asyncio.connection import AbstractConnection

from gateway.errors import LedgerError, SnapshotUnavailable
from gateway.ledger import codec
from gateway.ledger.lua import APPEND, APPEND_SHA
from gateway.ledger.records import Entry
from gateway.redis_servers import ASIDE_S, BROKEN, ELSEWHERE, MOVING, TRIES, RedisServers, drop, pack, reason

_log = logging.getLogger("gateway.ledger.redis")

_BATCH = 128  # entries a flush
_BATCH_BYTES = 8_000_000  # and bytes, so that one huge prompt does not hold up the small ones behind it for long
_KNOWN = 32_768  # digests remembered per generation, about 5 MB for both; shared out among the shards
_ROUNDS = 4  # the first trip, a script loaded anew, the missing bodies, and one to spare
_LANES = 4  # connections that may wait for a disk or a replica at once: a server holds up all that follows on one
_OFF_LOOP_BYTES = 524_288  # more than this is compressed in a thread: 5 ms of the event loop
_WARN_EVERY_S = 5.0


class Durability(StrEnum):
    """What must be true before an append is acknowledged: written, in the append-only file on the disk, or on a replica too."""

    APPENDED = "appended"
    FSYNCED = "fsynced"
    REPLICATED = "replicated"


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


class Known:
    """Digests that the store was seen to hold: two generations of bounded size. A hint; the script checks."""

    def __init__(self, size: int = _KNOWN) -> None:
        self._size = size
        self._young: set[bytes] = set()
        self._old: set[bytes] = set()

    def __contains__(self, each: bytes) -> bool:
        return each in self._young or each in self._old

    def add(self, digests: Iterable[bytes]) -> None:
        self._young.update(digests)
        if len(self._young) >= self._size:
            self._old, self._young = self._young, set()

    def clear(self) -> None:
        self._young, self._old = set(), set()


class Shard:
    """Appends to one stream. `number` of `count` shards; `gateway` names this process in the index of open calls."""

    def __init__(
        self, servers: RedisServers, timeout_s: float, number: int, count: int, durability: Durability, gateway: str
    ) -> None:
        self.prefix = b"{gw:%d}:" % number  # one slot for each shard, so that the script may touch all of its keys in a cluster
        self.stream = self.prefix + b"ledger"
        self._servers, self._timeout_s, self._durability, self._gateway = servers, timeout_s, durability, gateway
        self._queue: deque[_Write] = deque()
        self._lanes: list[AbstractConnection] = []
        self._flushers: set[asyncio.Task[None]] = set()
        self._flushing = 0
        self._flush_limit = 1 if durability is Durability.APPENDED else _LANES
        self._known = Known(max(1024, _KNOWN // count))
        self._warned: dict[str, float] = {}

    async def append(self, entry: Entry) -> None:
        """Return when the entry is acknowledged as durable as was asked; SnapshotUnavailable otherwise."""
        loop = asyncio.get_running_loop()
        lines: list[bytes | str] = []
        for each in entry.records:
            lines += (each.id, each.TYPE, codec.group(each), codec.dumps(each))
        write = _Write(entry=entry, lines=tuple(lines), deadline=loop.time() + self._timeout_s, done=loop.create_future())
        timer = loop.call_at(write.deadline, self._fail, write, f"Redis did not acknowledge within {self._timeout_s:g} s")
        try:
            try:
                await self._pack(write)
            except LedgerError as error:
                raise SnapshotUnavailable(error.message) from error
            self._queue.append(write)
            if self._flushing < self._flush_limit:
                self._flushing += 1
                task = loop.create_task(self._flush())
                self._flushers.add(task)
                task.add_done_callback(self._flushers.discard)
            await write.done
        finally:
            timer.cancel()

    async def ready(self) -> None:
        """Append an entry of nothing, with a small key beside it: only a write shows a full memory, a replica, a bad disk."""
        await self.append(Entry(records=()))

    async def close(self) -> None:
        if self._flushers:
            _, left = await asyncio.wait(set(self._flushers), timeout=self._timeout_s)
            for each in left:
                each.cancel()
        while self._lanes:
            await drop(self._lanes.pop())

    async def _pack(self, write: _Write) -> None:
        entry, bodies = write.entry, write.entry.bodies
        checked: Iterable[bytes]
        if write.whole:
            write.sent = list(bodies)
            checked = [each for each in entry.roots if each not in bodies]
        else:
            write.sent, checked = _split(entry, self._known)
        if sum(len(bodies[each]) for each in write.sent) > _OFF_LOOP_BYTES:
            write.command = await asyncio.to_thread(self._command, write, checked)
        else:
            write.command = self._command(write, checked)

    def _command(self, write: _Write, checked: Iterable[bytes]) -> bytes:
        if not write.entry.records:
            return pack(b"SET", self.prefix + b"ready", b"1")
        given: list[bytes] = []
        for each in write.sent:
            given += (each.hex().encode(), codec.compress(write.entry.bodies[each]))
        names = b"".join(checked).hex()  # one argument: a third of the cost of one for each
        head = (b"EVALSHA", APPEND_SHA, b"1", self.stream, self.prefix, self._gateway, names, str(len(write.sent)))
        return pack(*head, *given, *write.lines)

    def _fail(self, write: _Write, why: str) -> None:
        if not write.done.done():
            self._warn(why)
            write.done.set_exception(SnapshotUnavailable(why))

    def _warn(self, why: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._warned.get(why, -_WARN_EVERY_S) >= _WARN_EVERY_S:
            self._warned = {each: at for each, at in self._warned.items() if now - at < _WARN_EVERY_S} | {why: now}
            _log.warning("ledger append failed: %s", why)

    async def _flush(self) -> None:
        """Send what is queued, a batch at a time on one lane, until nothing is."""
        try:
            while self._queue:
                if batch := self._take():
                    await self._carry(batch)
        finally:
            self._flushing -= 1

    async def _carry(self, batch: list[_Write]) -> None:
        trip = _Trip(self, self._lanes.pop() if self._lanes else None)
        try:
            # Each write has its own time limit; the batch is given up when the last of them has passed.
            async with asyncio.timeout_at(max(write.deadline for write in batch)):
                await trip.deliver(batch)
        except TimeoutError:
            await trip.drop()
            await self._servers.forget()
        except BaseException:
            await trip.drop()
            raise
        if trip.lane is not None:
            self._lanes.append(trip.lane)

    def _take(self) -> list[_Write]:
        batch: list[_Write] = []
        size = 0
        while self._queue and len(batch) < _BATCH and size < _BATCH_BYTES:
            write = self._queue.popleft()
            if not write.done.done():  # expired or abandoned while it waited: the caller was told that nothing was written
                batch.append(write)
                size += len(write.command)
        return batch


class _Trip:
    """One batch on its way. `lane` is the connection that it goes on, None until there is one."""

    def __init__(self, shard: Shard, lane: AbstractConnection | None) -> None:
        self._shard, self.lane = shard, lane

    async def drop(self) -> None:
        lane, self.lane = self.lane, None
        await drop(lane)

    async def deliver(self, batch: list[_Write]) -> None:
        """Send until every write of the batch has its outcome. A lost answer is asked for again: a record id counts once."""
        servers, broken, rounds = self._shard._servers, 0 if self.lane is not None else 1, 0
        while batch := [write for write in batch if not write.done.done()]:
            try:
                batch, error = await self._round(batch)
            except (exceptions.RedisError, OSError) as lost:
                await self.drop()
                await servers.forget()
                broken += 1
                if broken == TRIES or isinstance(lost, exceptions.AuthenticationError) or not isinstance(lost, BROKEN):
                    self._give_up(batch, reason(lost))
                continue  # the connection had gone stale, or the node has: once more, on a new one
            if isinstance(error, MOVING):
                await asyncio.sleep(ASIDE_S)
                continue
            rounds += 1
            if isinstance(error, ELSEWHERE):
                await self.drop()
                servers.moved(self._shard.stream, error)
            if rounds == _ROUNDS:
                self._give_up(batch, "Redis lost its script or bodies again and again" if error is None else reason(error))

    def _give_up(self, batch: list[_Write], why: str) -> None:
        for write in batch:
            self._shard._fail(write, why)

    async def _round(self, batch: list[_Write]) -> tuple[list[_Write], exceptions.ResponseError | None]:
        """Send the batch in one trip; return those that must go again, what was missing added, and the error that says why."""
        if self.lane is None:
            self.lane = await self._shard._servers.connect(self._shard.stream)
        lane, wait = self.lane, self._wait(batch)
        await lane.send_packed_command(b"".join([write.command for write in batch]) + wait, check_health=False)
        again: list[_Write] = []
        written: list[_Write] = []
        error: exceptions.ResponseError | None = None
        unloaded = False
        for write in batch:
            try:
                answer = await lane.read_response()
            except exceptions.NoScriptError:
                unloaded = True
                again.append(write)
            except (*ELSEWHERE, *MOVING) as refused:
                error = refused
                again.append(write)
            except exceptions.ResponseError as refused:
                if "non local key" in str(refused):  # what a script is told while its slot is between two nodes
                    error = exceptions.TryAgainError(str(refused))
                    again.append(write)
                else:
                    self._shard._fail(write, reason(refused))
            else:
                if not isinstance(answer, list):
                    written.append(write)
                elif await self._lacking(write, answer):
                    again.append(write)
        if wait:
            await self._waited(lane, written)
        else:
            self._acknowledge(written)
        if unloaded:
            await lane.send_packed_command(pack(b"SCRIPT", b"LOAD", APPEND), check_health=False)
            await lane.read_response()
        return again, error

    def _wait(self, batch: list[_Write]) -> bytes:
        """Return the commands that hold the answer back until the batch is as durable as was asked; nothing for `appended`.

        Both commands wait for what *this* connection wrote last. An entry that was written on another one, whose answer
        was lost, counts only when something is written behind it: so something is.
        """
        shard = self._shard
        if shard._durability is Durability.APPENDED:
            return b""
        left_ms = (max(write.deadline for write in batch) - asyncio.get_running_loop().time()) * 1000
        limit = str(max(1, int(left_ms)))  # 0 would wait for ever
        behind = pack(b"SET", shard.prefix + b"ready", b"1")
        if shard._durability is Durability.FSYNCED:
            return behind + pack(b"WAITAOF", b"1", b"0", limit)
        return behind + pack(b"WAIT", b"1", limit)

    async def _waited(self, lane: AbstractConnection, written: list[_Write]) -> None:
        refused: exceptions.ResponseError | None = None
        found: object = 0
        try:
            await lane.read_response()
        except exceptions.ResponseError as error:
            refused = error
        try:
            found = await lane.read_response()
        except exceptions.ResponseError as error:
            refused = refused or error
        if refused is None and (found[0] if isinstance(found, list) else found):
            return self._acknowledge(written)
        return self._give_up(written, _unwaited(self._shard._durability, refused))

    def _acknowledge(self, written: list[_Write]) -> None:
        for write in written:
            self._shard._known.add(write.entry.roots)
            self._shard._known.add(write.sent)
            if not write.done.done():
                write.done.set_result(None)

    async def _lacking(self, write: _Write, answer: list[bytes]) -> bool:
        """Return whether the write must go again: the store lacks bodies that it was thought to hold."""
        self._shard._known.clear()
        if write.whole:
            self._shard._fail(write, f"body {answer[0].decode()} is named by the entry and neither given nor stored")
            return False
        write.whole = True
        await self._shard._pack(write)
        return True


def _unwaited(durability: Durability, refused: exceptions.ResponseError | None) -> str:
    if refused is not None:
        if durability is Durability.FSYNCED and "unknown command" in str(refused).lower():
            return "this Redis has no WAITAOF, which durability: fsynced needs; use 7.2 or newer"
        if durability is Durability.FSYNCED and "appendonly" in str(refused).lower():
            return "this Redis has no append-only file, which durability: fsynced needs; set appendonly yes"
        return reason(refused)
    return "the append-only file was not synced in time" if durability is Durability.FSYNCED else "no replica acknowledged in time"


def _split(entry: Entry, known: Known) -> tuple[list[bytes], list[bytes]]:
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
