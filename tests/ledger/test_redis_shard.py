"""Several shards read as one ledger, and what an append waits for."""

import asyncio
from dataclasses import replace

import pytest

from gateway.errors import SnapshotUnavailable
from gateway.ledger import codec
from gateway.ledger.records import PromptComposed
from gateway.ledger.redis import RedisLedger
from gateway.ledger.redis_shard import Durability, Known
from tests.ledger.server import RedisServer
from tests.ledger.values import composed


def of_lineage(lineage: str) -> tuple[PromptComposed, dict[bytes, bytes]]:
    written = composed(3, mark=lineage)
    return replace(written.record, lineage=lineage), dict(written.entry.bodies)


def test_lineages_are_dealt_over_shards_and_read_as_one(shared: RedisServer) -> None:
    async def body() -> None:
        ledger = RedisLedger(shared.url + "?shards=4", 5)
        made = [of_lineage(f"lineage {at}") for at in range(24)]
        bodies = {name: each for _, some in made for name, each in some.items()}
        await ledger.append(codec.entry(tuple(record for record, _ in made[:12]), bodies))
        seen = [each async for each in ledger.follow()]
        for record, some in made[12:]:
            await ledger.append(codec.entry((record,), some))

        assert {record.id for record, _ in made} == {each.id async for each in ledger.read()}
        assert {record.id for record, _ in made[12:]} == {record.id async for _, record in ledger.follow(seen[-1][0])}
        assert await ledger.find(made[5][0].id) == (made[5][0],)
        assert bodies == await ledger.bodies(bodies)
        await ledger.ready()
        await ledger.close()

        other = RedisLedger(shared.url, 5)  # which asks for one: the store says four
        assert len([each async for each in other.read()]) == 24
        await other.close()

    asyncio.run(body())
    assert sum(shared.says("EXISTS", f"{{gw:{number}}}:ledger") == b":1\r\n" for number in range(4)) > 1


def test_replicated_is_refused_without_a_replica(shared: RedisServer) -> None:
    async def body() -> None:
        ledger = RedisLedger(shared.url, 0.4, durability=Durability.REPLICATED)
        with pytest.raises(SnapshotUnavailable):
            await ledger.append(composed().entry)
        await ledger.close()

    asyncio.run(body())


def test_what_is_known_is_bounded_and_forgotten() -> None:
    known = Known(2)
    known.add([b"a", b"b"])
    known.add([b"c", b"d"])

    assert b"a" not in known
    assert b"d" in known
    known.clear()
    assert b"d" not in known
