import asyncio

import pytest
from starlette.types import Message

from gateway.api.bounds import Bounds
from gateway.errors import Overloaded, RequestTimeout

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def bounds(calls: int = 2, size: int = 100, grace_s: float = 5) -> Bounds:
    return Bounds(lambda: calls, lambda: size, body_grace_s=grace_s)


def piece(size: int, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": b"x" * size, "more_body": more}


async def take(made: Bounds, *messages: Message) -> None:
    """Read these messages under a place that is never given back."""
    left = iter(messages)

    async def receive() -> Message:
        return next(left)

    counted = made.taken().counted(receive)
    for _ in messages:
        await counted()


async def test_calls_beyond_the_bound_are_refused_until_one_ends() -> None:
    made = bounds(calls=1)

    async def receive() -> Message:
        return piece(3)

    with made.taken() as taken:
        await taken.counted(receive)()
        with pytest.raises(Overloaded) as refused:
            await take(made, piece(1))
        assert refused.value.retry_after_s == 1
    assert (made.inflight, made.held_bytes) == (0, 0)
    await take(made, piece(1))


async def test_bodies_beyond_the_bound_are_refused() -> None:
    made = bounds(size=10)
    await take(made, piece(8, more=True))
    with pytest.raises(Overloaded):
        await take(made, piece(8))


async def test_slow_clients_take_no_place() -> None:
    made = bounds(calls=1)
    for _ in range(50):
        await take(made, piece(1, more=True))

    await take(made, piece(1))

    assert made.inflight == 1


async def test_a_body_that_does_not_come_ends() -> None:
    async def never() -> Message:
        await asyncio.Event().wait()
        return piece(0)

    with bounds(grace_s=0.01).taken() as taken, pytest.raises(RequestTimeout):
        await taken.counted(never)()


async def test_a_loop_that_stays_behind_takes_no_more_calls() -> None:
    now = [0.0]
    made = Bounds(lambda: 1_000, lambda: 1_000, clock=lambda: now.__setitem__(0, now[0] + 0.2) or now[0])
    made.inflight = 16
    watch = asyncio.create_task(made.watch())
    await asyncio.sleep(0.3)
    watch.cancel()

    with pytest.raises(Overloaded):
        made.check()
    made.inflight = 1
    made.check()
