"""Whether the process lives, and whether it would take a request now. Asks no provider, costs no token, needs no key."""

import asyncio
import time
from collections.abc import Callable

from starlette.responses import JSONResponse, Response

from gateway.errors import LedgerError, SnapshotUnavailable
from gateway.ledger.base import Ledger

FRESH_S = 1.0  # an answer is kept so long: probes of many balancers must not become load on the store
NO_STORE = {"cache-control": "no-store"}


def live() -> Response:
    """Return 200: a process that can say so lives."""
    return JSONResponse({"status": "ok"}, headers=NO_STORE)


class Ready:
    """Whether the ledger would take a record now: without one no call leaves, so nothing else makes us ready.

    Asked at most once in `FRESH_S`, by one caller at a time, for at most `timeout_s`.
    """

    def __init__(self, ledger: Ledger, *, timeout_s: float = 2.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._ledger = ledger
        self._timeout_s = timeout_s
        self._clock = clock
        self._asking = asyncio.Lock()
        self._reason: str | None = None
        self._asked_at = float("-inf")

    async def __call__(self) -> Response:
        """Return 200, or 503 with one word on why not. Never raises."""
        async with self._asking:
            if self._clock() - self._asked_at >= FRESH_S:
                self._reason = await self._ask()
                self._asked_at = self._clock()
            reason = self._reason
        if reason is None:
            return JSONResponse({"status": "ok"}, headers=NO_STORE)
        return JSONResponse({"status": "unavailable", "reason": reason}, 503, headers={**NO_STORE, "retry-after": "1"})

    async def _ask(self) -> str | None:
        # No words of the store: the page is open to everyone, and they may name hosts.
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._ledger.ready()
        except TimeoutError:
            return "ledger_timeout"
        except SnapshotUnavailable:
            return SnapshotUnavailable.code
        except LedgerError:
            return "ledger"
        return None
