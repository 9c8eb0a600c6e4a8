"""Where Redis is and how to talk to it: one server, Sentinel or a Cluster, with or without TLS; every wait is bounded.

Owns addresses, connections and what their errors mean. redis-py does names, TLS, log-in, parsing and Sentinel; which node
answers for a slot is remembered here until a node says otherwise or a connection breaks, and is then asked anew, host
names too. Knows nothing of what is stored. Used by each store on Redis; nothing connects before the first command.
"""

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import hiredis
from redis import exceptions
from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.backoff import NoBackoff
from redis.crc import key_slot

SCHEMES = ("redis://", "rediss://", "redis+sentinel://", "redis+cluster://")
SENTINEL_PORT = 26_379
TRIES = 3  # of one command: a stale connection, then a node that has moved, then the one it moved to
ASIDE_S = 0.02  # how long to wait while a slot is between two nodes

ELSEWHERE = (exceptions.MovedError, exceptions.ReadOnlyError)  # not executed, and another node would
MOVING = (exceptions.AskError, exceptions.TryAgainError)  # not executed, and no node has all of the slot yet
BROKEN = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)  # executed or not: nobody knows


class RedisFailed(Exception):
    """Why Redis did not do what it was asked; `reason` holds no address, user or password."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RedisBusy(RedisFailed):
    """Every connection was in use for as long as could be waited. Redis itself may be well."""


@dataclass(frozen=True, slots=True)
class Node:
    host: str
    port: int


_Dial = Callable[[Node], AbstractConnection]


class Locator(Protocol):
    """Which node takes writes for a slot."""

    async def locate(self, slot: int) -> Node: ...

    def moved(self, slot: int, node: Node) -> None:
        """A node said who has the slot now."""
        ...

    def forget(self) -> None:
        """What was known may be wrong: ask again."""
        ...

    async def close(self) -> None: ...


class RedisServers:
    """Connections to whatever the URL names. `pool` bounds those that `ask` uses; `connect` gives extra ones.

    `redis://[user:password@]host[:port][/db]`, `rediss://…` with TLS, `redis+sentinel://…@host[:port],…/service[/db]`,
    `redis+cluster://…@host[:port],…`. The query may hold redis-py's connection options (`ssl_ca_certs`, …), `tls=true`
    for the last two, and `sentinel_username`, `sentinel_password`. Raises ValueError for one that cannot be read.
    """

    def __init__(self, url: str, timeout_s: float, pool: int = 16) -> None:
        self._timeout_s = timeout_s
        self._free = asyncio.Semaphore(pool)  # first come, first served
        self._busy = f"all {pool} connections to Redis were in use for {timeout_s:g} s"
        self._idle: dict[Node, list[AbstractConnection]] = {}
        self.clustered = url.startswith("redis+cluster://")
        self._locator, self._dial = _read(url, timeout_s)

    async def connect(self, key: bytes) -> AbstractConnection:
        """Return a new, logged-in connection to the node that takes writes for this key; the caller lets go of it.

        Its waits are the caller's to bound. Raises what redis-py raises.
        """
        made = self._dial(await self._locator.locate(key_slot(key)))
        try:
            await made.connect()  # type: ignore[no-untyped-call] # redis-py's own
        except BaseException:
            await drop(made)
            raise
        return made

    async def ask(self, key: bytes, *command: bytes | str | int, repeatable: bool = True) -> Any:
        """Return the answer to one command, sent to the node of the key within `timeout_s`, waiting for a connection included.

        A command that was surely not executed is sent again where it belongs. One whose connection broke is sent again
        only when it is `repeatable`: what counts must not count twice. Raises RedisFailed, RedisBusy when none was free.
        """
        slot, packed = key_slot(key), pack(*(str(each) if isinstance(each, int) else each for each in command))
        waiting = True
        try:
            async with asyncio.timeout(self._timeout_s):
                async with self._free:
                    waiting = False
                    return await self._answer(key, slot, packed, repeatable)
        except TimeoutError:
            if waiting:
                raise RedisBusy(self._busy) from None
            await self.forget()
            raise RedisFailed(f"Redis did not answer within {self._timeout_s:g} s") from None
        except (exceptions.RedisError, OSError) as error:
            # `from None`: the library's error names the server's address.
            raise RedisFailed(reason(error)) from None

    async def evaluate(self, script: bytes, sha: str, key: bytes, *arguments: bytes | str | int, repeatable: bool = False) -> Any:
        """Return what a script of one key answers; a server that does not know it is given its text. Raises as `ask`."""
        try:
            return await self.ask(key, "EVALSHA", sha, 1, key, *arguments, repeatable=repeatable)
        except RedisFailed as error:
            if "NOSCRIPT" not in error.reason:
                raise
        return await self.ask(key, "EVAL", script, 1, key, *arguments, repeatable=repeatable)

    def moved(self, key: bytes, error: exceptions.ResponseError) -> None:
        """Learn from a node's answer where the key's slot is now."""
        if isinstance(error, exceptions.MovedError) and error.host:
            self._locator.moved(key_slot(key), Node(error.host, error.port))
        else:
            self._locator.forget()

    async def forget(self) -> None:
        """Let go of idle connections and of what is known about nodes, so that the next command resolves names anew."""
        self._locator.forget()
        idle, self._idle = self._idle, {}
        for each in idle.values():
            for connection in each:
                await drop(connection)

    async def close(self) -> None:
        await self.forget()
        await self._locator.close()

    async def _answer(self, key: bytes, slot: int, packed: bytes, repeatable: bool) -> Any:
        tries = 0
        while True:
            tries += 1
            try:
                return await self._once(key, slot, packed)
            except ELSEWHERE as error:
                if tries == TRIES:
                    raise
                self.moved(key, error)
            except MOVING:  # until the time is over
                await asyncio.sleep(ASIDE_S)
            except BROKEN:
                await self.forget()
                if tries == TRIES or not repeatable:
                    raise

    async def _once(self, key: bytes, slot: int, packed: bytes) -> Any:
        node = await self._locator.locate(slot)
        idle = self._idle.setdefault(node, [])
        connection = await _sound(idle) or await self.connect(key)
        whole = False
        try:
            await connection.send_packed_command(packed, check_health=False)
            try:
                return await connection.read_response()
            finally:
                whole = connection.is_connected
        finally:
            if whole and self._idle.get(node) is idle:
                idle.append(connection)
            else:
                await drop(connection)


class _One:
    """One server: its name is resolved by each new connection."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def locate(self, slot: int) -> Node:
        return self._node

    def moved(self, slot: int, node: Node) -> None:
        """A cluster node behind a plain URL: the URL says that there is one server, so its word is not followed."""

    def forget(self) -> None:
        """Nothing is remembered."""

    async def close(self) -> None:
        """Nothing is held."""


class _BySentinel:
    """The primary that the Sentinels name, remembered until it disappoints."""

    def __init__(self, nodes: Sequence[Node], service: str, options: dict[str, Any]) -> None:
        self._service = service
        self._sentinels = Sentinel([(each.host, each.port) for each in nodes], sentinel_kwargs=options)  # type: ignore[no-untyped-call]
        self._found: Node | None = None

    async def locate(self, slot: int) -> Node:
        if self._found is None:
            host, port = await self._sentinels.discover_master(self._service)
            self._found = Node(str(host), int(port))
        return self._found

    def moved(self, slot: int, node: Node) -> None:
        self._found = None

    def forget(self) -> None:
        self._found = None

    async def close(self) -> None:
        await self._sentinels.aclose()


class _ByCluster:
    """The node of each slot, as the first node that answers tells it."""

    def __init__(self, seeds: Sequence[Node], dial: _Dial, limit_s: float) -> None:
        self._seeds, self._dial, self._limit_s = tuple(seeds), dial, limit_s
        self._nodes: list[Node] = []
        self._map: dict[int, Node] = {}
        self._ranges: list[tuple[int, int, Node]] = []

    async def locate(self, slot: int) -> Node:
        found = self._map.get(slot) or self._ranged(slot)
        if found is None:
            await self._learn()
            found = self._ranged(slot)
        if found is None:
            raise exceptions.ClusterDownError("CLUSTERDOWN Hash slot not served")
        return found

    def moved(self, slot: int, node: Node) -> None:
        self._map[slot] = node

    def forget(self) -> None:
        self._map, self._ranges = {}, []

    async def close(self) -> None:
        """Each question has its own connection."""

    def _ranged(self, slot: int) -> Node | None:
        return next((node for first, last, node in self._ranges if first <= slot <= last), None)

    async def _learn(self) -> None:
        """Ask node after node; a dead or frozen one must leave time for the next."""
        last: Exception = exceptions.ConnectionError("no node")
        for node in dict.fromkeys((*self._nodes, *self._seeds)):
            connection = self._dial(node)
            try:
                async with asyncio.timeout(self._limit_s):
                    await connection.send_packed_command(pack("CLUSTER", "SLOTS"), check_health=False)
                    rows = await connection.read_response()
            except (exceptions.RedisError, OSError, TimeoutError) as error:
                last = error
                continue
            finally:
                await drop(connection)
            # A node that does not know its own name leaves it empty: it is the one that was asked.
            named = [(first, end, Node(host.decode() if host else node.host, port)) for first, end, (host, port, *_), *_ in rows]
            self._ranges, self._nodes = named, list(dict.fromkeys(each for _, _, each in named))
            return
        raise last


def pack(*parts: bytes | str) -> bytes:
    """Return one command as it goes over the wire."""
    packed = cast(Callable[[tuple[bytes | str, ...]], bytes], hiredis.pack_command)  # its stub says: exactly one part
    return packed(parts)


async def drop(connection: AbstractConnection | None) -> None:
    """Let go of a connection; closing what is broken may fail, and it is gone either way."""
    if connection is not None:
        with contextlib.suppress(exceptions.RedisError, OSError):
            await connection.disconnect(nowait=True)


async def _sound(idle: list[AbstractConnection]) -> AbstractConnection | None:
    """Return an idle connection that the server has not closed meanwhile: a command that must not go twice may go on it."""
    while idle:
        connection = idle.pop()
        with contextlib.suppress(exceptions.RedisError, OSError):
            if not await connection.can_read():
                return connection
        await drop(connection)
    return None


def shards_of(url: str) -> int | None:
    """Return the number of shards that the URL's query asks for, None when it asks for none. ValueError for a bad one."""
    found = parse_qs(urlsplit(url).query).get("shards")
    if found is None:
        return None
    if not found[0].isdecimal() or not 1 <= int(found[0]) <= 1024:
        raise ValueError("shards must be a number from 1 to 1024")
    return int(found[0])


def _read(url: str, timeout_s: float) -> tuple[Locator, _Dial]:
    """Return who finds nodes, and how one is dialled."""
    parts = urlsplit(url)
    if parts.scheme in ("redis", "rediss"):
        options = _options(url)
        node = Node(str(options.pop("host", "localhost")), int(options.pop("port", 6379)))
        return _One(node), _dialler(options, timeout_s)
    if parts.scheme not in ("redis+sentinel", "redis+cluster"):
        raise ValueError("no Redis URL")
    words = {name: values[0] for name, values in parse_qs(parts.query).items()}
    user, at, hosts = parts.netloc.rpartition("@")
    secure = words.pop("tls", "") == "true"
    log_in = {name: words.pop(f"sentinel_{name}") for name in ("username", "password") if f"sentinel_{name}" in words}
    path = parts.path.strip("/").split("/")
    database = path[1] if parts.scheme == "redis+sentinel" and len(path) > 1 else "0"
    options = _options(f"redis{'s' if secure else ''}://{user}{at}host/{database}?{urlencode(words)}")
    options.pop("host")
    limit_s = timeout_s / 3  # a dead or frozen one must leave time for the next
    if parts.scheme == "redis+cluster":
        return _ByCluster(_nodes(hosts, 6379), _dialler(options, limit_s), limit_s), _dialler(options, timeout_s)
    if not path[0]:
        raise ValueError("redis+sentinel:// needs the service's name behind the hosts")
    waits = {"socket_timeout": limit_s, "socket_connect_timeout": limit_s, "retry": _no_retry()}
    tls = {name: value for name, value in options.items() if name.startswith("ssl_")} | ({"ssl": True} if secure else {})
    return _BySentinel(_nodes(hosts, SENTINEL_PORT), unquote(path[0]), waits | tls | log_in), _dialler(options, timeout_s)


def _options(url: str) -> dict[str, Any]:
    found = dict(parse_url(url))
    found.pop("shards", None)
    return found


def _dialler(options: dict[str, Any], connect_s: float) -> _Dial:
    kind: Callable[..., AbstractConnection] = options.get("connection_class", Connection)
    given = {name: value for name, value in options.items() if name != "connection_class"}
    # A limit for each answer would cost a timer each: whoever waits for answers bounds that.
    given |= {"socket_connect_timeout": connect_s, "socket_timeout": None, "protocol": 2, "retry": _no_retry()}
    return lambda node: kind(host=node.host, port=node.port, **given)


def _nodes(hosts: str, port: int) -> list[Node]:
    """Return the nodes of a list such as `a:1,b,[::1]:3`."""
    found = []
    for each in hosts.split(","):
        parts = urlsplit(f"//{each}")
        if not parts.hostname:
            raise ValueError("a host is missing")
        found.append(Node(parts.hostname, parts.port or port))
    return found


def _no_retry() -> Retry:
    return Retry(NoBackoff(), 0)


_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.MovedError, "MOVED"),
    (exceptions.AskError, "ASK"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.NoScriptError, "NOSCRIPT"),
)


def reason(error: Exception) -> str:
    """Return why Redis failed, by its own error word; never an address, a user or a password."""
    if isinstance(error, exceptions.AuthenticationError):
        return f"Redis refused the log-in ({'WRONGPASS' if 'invalid' in str(error).lower() else 'NOAUTH'})"
    if "unauthenticated" in str(error):  # "Protocol error: unauthenticated bulk length": what a long first command is told
        return "Redis refused the log-in (NOAUTH)"
    if isinstance(error, MasterNotFoundError):
        return "no Sentinel names a primary"
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
