"""Commands to a real Redis: bounded, fair, sent again only when that is safe; and URLs that name servers."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gateway.redis_servers import RedisBusy, RedisFailed, RedisServers, shards_of
from tests.ledger.server import RedisServer

KEY = b"{gw:0}:x"


def run(folder: Path, test: Callable[[RedisServers, RedisServer], Awaitable[None]], pool: int = 2) -> None:
    server = RedisServer(folder)
    server.start()

    async def body() -> None:
        servers = RedisServers(server.url, 0.6, pool)
        try:
            await test(servers, server)
        finally:
            await servers.close()

    try:
        asyncio.run(body())
    finally:
        server.stop()


def test_many_more_commands_than_connections_are_answered(tmp_path: Path) -> None:
    async def test(servers: RedisServers, server: RedisServer) -> None:
        assert sorted(await asyncio.gather(*(servers.ask(KEY, "INCR", KEY) for _ in range(200)))) == list(range(1, 201))

    run(tmp_path, test)


def test_busy_is_not_down(tmp_path: Path) -> None:
    async def test(servers: RedisServers, server: RedisServer) -> None:
        held = asyncio.create_task(servers.ask(KEY, "BLPOP", b"{gw:0}:nothing", "0.55"))
        await asyncio.sleep(0.1)
        server.freeze()
        results = await asyncio.gather(*(servers.ask(KEY, "PING") for _ in range(3)), return_exceptions=True)
        server.thaw()
        await asyncio.gather(held, return_exceptions=True)

        assert any(isinstance(each, RedisBusy) for each in results)
        assert await servers.ask(KEY, "PING") == b"PONG"

    run(tmp_path, test, pool=1)


def test_a_script_that_the_server_lacks_is_given(tmp_path: Path) -> None:
    async def test(servers: RedisServers, server: RedisServer) -> None:
        script = b"return redis.call('INCRBY', KEYS[1], ARGV[1])"
        sha = hashlib.sha1(script, usedforsecurity=False).hexdigest()

        assert await servers.evaluate(script, sha, KEY, 2) == 2
        server.says("SCRIPT", "FLUSH")
        assert await servers.evaluate(script, sha, KEY, 2) == 4

    run(tmp_path, test)


def test_a_restart_is_not_noticed_and_an_absence_is_told(tmp_path: Path) -> None:
    async def test(servers: RedisServers, server: RedisServer) -> None:
        assert await servers.ask(KEY, "PING") == b"PONG"
        server.stop()
        with pytest.raises(RedisFailed, match="connection") as told:
            await servers.ask(KEY, "PING")
        assert str(server.port) not in str(told.value)
        server.start()
        assert await servers.ask(KEY, "PING", repeatable=False) == b"PONG"

    run(tmp_path, test)


@pytest.mark.parametrize("url", ["http://a", "redis+sentinel://a:1", "redis+cluster://", "redis+cluster://a:b"])
def test_a_url_that_names_no_server_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        RedisServers(url, 1)


@pytest.mark.parametrize(("url", "count"), [("redis://a", None), ("redis://a/0?shards=8", 8)])
def test_the_url_asks_for_shards(url: str, count: int | None) -> None:
    assert count == shards_of(url)


@pytest.mark.parametrize("shards", ["0", "x", "1025"])
def test_a_bad_number_of_shards_is_refused(shards: str) -> None:
    with pytest.raises(ValueError, match="1 to 1024"):
        shards_of(f"redis://a?shards={shards}")
