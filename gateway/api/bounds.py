"""What one process takes on at a time. Beyond it calls are refused at once, before memory or latency grow for all others.

Wraps `receive` alone, so that an endpoint refuses in its own dialect and a wrong key is still told first. A slow client is
not counted until its body is whole, and its body must keep coming.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

from starlette.types import Message, Receive

from gateway.errors import Overloaded, RequestTimeout

LOG = logging.getLogger("gateway.api")
BODY_GRACE_S = 30.0  # for a body's first bytes
BODY_BYTES_PER_S = 1_024  # slower than this on the whole is no upload, but a client that holds a place
LOOK_S = 0.02
BEHIND_S = 0.05  # how late a timer fires while the loop has more to do than it can
LOOKS = 3  # in a row: one long pause (garbage collection, a noisy machine) is no overload
BUSY = 16  # calls in flight below which being late is somebody else's doing
SAY_EVERY_S = 5.0


class Bounds:
    """The calls and the bytes of bodies in one process. The two limits are asked each time: a reload may change them."""

    def __init__(
        self,
        max_inflight: Callable[[], int],
        max_inflight_bytes: Callable[[], int],
        *,
        clock: Callable[[], float] = time.monotonic,
        body_grace_s: float = BODY_GRACE_S,
    ) -> None:
        self._max_inflight, self._max_bytes, self._clock, self._grace_s = max_inflight, max_inflight_bytes, clock, body_grace_s
        self.inflight = 0
        self.held_bytes = 0
        self._late = deque([0.0] * LOOKS, maxlen=LOOKS)
        self._said_at = float("-inf")

    async def watch(self) -> None:
        """Look how late the event loop is, until cancelled."""
        while True:
            before = self._clock()
            await asyncio.sleep(LOOK_S)
            self._late.append(self._clock() - before - LOOK_S)

    def check(self) -> None:
        """Raise Overloaded when no more may be taken on."""
        behind = min(self._late) > BEHIND_S and self.inflight >= BUSY
        if behind or self.inflight >= self._max_inflight() or self.held_bytes > self._max_bytes():
            if self._clock() - self._said_at > SAY_EVERY_S:
                self._said_at = self._clock()
                LOG.warning("overloaded: %d calls in flight, %d bytes of bodies; refusing more", self.inflight, self.held_bytes)
            raise Overloaded("the gateway has all the calls that it can take; send the request again later", retry_after_s=1)

    def taken(self) -> "Taken":
        """Return the place of one call, which gives it back when left."""
        return Taken(self, self._clock, self._grace_s)


class Taken:
    """One call's share: its body's bytes, and its place once the body is whole."""

    def __init__(self, bounds: Bounds, clock: Callable[[], float], grace_s: float) -> None:
        self._bounds, self._clock, self._grace_s = bounds, clock, grace_s
        self._bytes, self._began, self._whole = 0, clock(), False

    def __enter__(self) -> "Taken":
        return self

    def __exit__(self, *_: object) -> None:
        self._bounds.held_bytes -= self._bytes
        self._bounds.inflight -= self._whole

    def counted(self, receive: Receive) -> Receive:
        """Return a receive that raises Overloaded when there is no room, and RequestTimeout for a body that does not come."""

        async def counting() -> Message:
            if self._whole:
                return await receive()
            self._bounds.check()
            left_s = self._began + self._grace_s + self._bytes / BODY_BYTES_PER_S - self._clock()
            try:
                async with asyncio.timeout(left_s):
                    message = await receive()
            except TimeoutError:
                raise RequestTimeout("the body did not come in time; send it faster") from None
            size = len(message.get("body", b""))
            self._bytes += size
            self._bounds.held_bytes += size
            if message["type"] == "http.request" and not message.get("more_body"):
                self._bounds.check()
                self._whole = True
                self._bounds.inflight += 1
            return message

        return counting
