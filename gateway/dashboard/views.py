"""The dashboard's page: keeps the fold over the ledger at hand, reads on where it stopped, and renders it.

Templates escape everything; the page needs no script, and its policy allows none.
"""

import asyncio
import time
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from gateway.api.admin import released
from gateway.dashboard.metrics import Totals
from gateway.errors import LedgerError
from gateway.ledger.base import Ledger
from gateway.ledger.records import Record

FRESH_S = 2.0  # the ledger is read on at most this often, however many look at the page
COLD_RECORDS = 5_000  # read at most at once: a long ledger must not hold up the page; the page says when it is cut
BREATHE_EVERY = 200  # records after which other requests get their turn

HERE = Path(__file__).parent
HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
STYLE = "style.css"


class Reached(Enum):
    """What a reading, newest first, came to: the record read last before, its bound, or the ledger's beginning."""

    LAST = auto()
    BOUND = auto()
    END = auto()


class Dashboard:
    """`GET /dashboard` and its style sheet. Readers share one fold, and one of them at a time reads the ledger on."""

    def __init__(self, ledger: Ledger, *, clock: Callable[[], float] = time.monotonic, cold_records: int = COLD_RECORDS) -> None:
        self._ledger = ledger
        self._clock = clock
        self._cold_records = cold_records
        self._reading = asyncio.Lock()
        self._totals = Totals()
        self._last_id: str | None = None
        self._cut = False  # records older than those folded exist
        self._read_at = float("-inf")
        self._style = (HERE / "static" / STYLE).read_bytes()
        self._template = _environment().get_template("dashboard.html")

    async def page(self, request: Request) -> Response:
        """Return the page: 200, or 503 with the figures of before and a word on why the ledger cannot be read."""
        problem = None
        try:
            await self._refresh()
        except LedgerError as error:
            problem = error.message
        text = self._template.render(
            totals=self._totals,
            cut=self._cut,
            problem=problem,
            base_url=str(request.base_url).rstrip("/"),
        )
        return HTMLResponse(text, 503 if problem else 200, headers={**HEADERS, "cache-control": "no-store"})

    async def style(self, request: Request) -> Response:
        """Return the style sheet."""
        return Response(self._style, media_type="text/css", headers={**HEADERS, "cache-control": "max-age=300"})

    async def _refresh(self) -> None:
        async with self._reading:
            if self._clock() - self._read_at < FRESH_S:
                return
            fresh, reached = await self._newer()
            if reached is not Reached.LAST:  # the first reading, or so much came in between that the gap is not known
                self._totals = Totals()
                self._cut = reached is Reached.BOUND
            self._totals.fold(reversed(fresh))
            if fresh:
                self._last_id = fresh[0].id
            self._read_at = self._clock()

    async def _newer(self) -> tuple[list[Record], Reached]:
        """Return the records since the last reading, newest first and bounded, and what ended them."""
        fresh: list[Record] = []
        async with released(self._ledger.read(newest_first=True)) as records:
            async for record in records:
                if record.id == self._last_id:
                    return fresh, Reached.LAST
                if len(fresh) == self._cold_records:
                    return fresh, Reached.BOUND
                fresh.append(record)
                if len(fresh) % BREATHE_EVERY == 0:
                    await asyncio.sleep(0)
        return fresh, Reached.END


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(count=_count, usd=_usd, percent=_percent, share=_share, seconds=_seconds)
    return environment


NONE = "–"


def _count(value: int | None) -> str:
    return NONE if value is None else f"{value:,}"


def _usd(value: float | None) -> str:
    return NONE if value is None else f"${value:,.4f}"


def _percent(ratio: float | None) -> str:
    return NONE if ratio is None else f"{ratio * 100:.1f} %"


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


def _seconds(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f} s"
