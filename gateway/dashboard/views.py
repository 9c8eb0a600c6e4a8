"""The dashboard's pages: figures over time, the log of calls, one call, two prompts side by side.

Every page works without script; with it, parts of a page are fetched anew. Templates escape everything, and no page holds
script or style of its own, so that the policy of `api.guard` can forbid both. What is chosen stands in the address.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from gateway.dashboard import parting
from gateway.dashboard.reading import Reader
from gateway.dashboard.window import SPANS, Chart, Query, View, view
from gateway.dashboard.wording import CAUSES, FILTERS
from gateway.errors import LedgerError
from gateway.ledger.base import Ledger
from gateway.ledger.records import CallFinished, CompactionApplied, PromptComposed, Record
from gateway.replay import Replay, Shelf, Verdict, rebuild

HERE = Path(__file__).parent
TYPES = {".css": "text/css", ".js": "text/javascript", ".LICENSE": "text/plain"}
PATH = "/dashboard"
KEPT_S = 1.0  # how long one view serves all who ask for the same: tabs, people and partial updates together


class Dashboard:
    """`GET /dashboard` and what is below it. `clock` is Unix seconds."""

    def __init__(self, ledger: Ledger, *, reader: Reader | None = None, clock: Callable[[], float] = time.time) -> None:
        self.reader = reader or Reader(ledger)
        self._ledger = ledger
        self._clock = clock
        self._replay: Replay | None = None
        self._files = {path.relative_to(HERE / "static").as_posix(): path.read_bytes() for path in _files(HERE / "static")}
        self._pages = _environment(hashlib.sha256(b"".join(self._files.values())).hexdigest()[:12])
        self._views: dict[Query, tuple[float, int, View]] = {}

    def routes(self, middleware: Sequence[Middleware]) -> list[Route]:
        """Return where the pages are, each behind this middleware."""
        return [
            Route(PATH, self.overview, middleware=middleware),
            Route(f"{PATH}/calls", self.calls, middleware=middleware),
            Route(f"{PATH}/calls/{{id}}", self.call, middleware=middleware),
            Route(f"{PATH}/calls/{{id}}/verify", self.verify, methods=["POST"], middleware=middleware),
            Route(f"{PATH}/compare", self.compare, middleware=middleware),
            Route(f"{PATH}/static/{{name:path}}", self.static, middleware=middleware),
        ]

    async def overview(self, request: Request) -> Response:
        """Return the page of figures; of an update, its changing part alone."""
        found = await self._view(request)
        template = "figures.html" if _is_update(request) else "overview.html"
        base_url = str(request.base_url).rstrip("/")
        return self._page(template, found=found, base_url=base_url, chart=_chart(found.chart), spans=list(SPANS))

    async def calls(self, request: Request) -> Response:
        """Return the rows of the live log."""
        return self._page("calls.html", found=await self._view(request))

    async def call(self, request: Request) -> Response:
        """Return the page of one call; 404 where the ledger has none of this id."""
        name = request.path_params["id"]
        try:
            records = await self._ledger.find(name)
            if not records:
                return self._problem("There is no call of this id", "Retention may have removed it, or the address is cut.", 404)
            facts = await self._facts(records)
        except LedgerError as error:
            return self._problem("The ledger cannot be read", error.message, 503)
        await self.reader.catch_up()
        return self._page("call.html", id=name, tries=await self._tries(facts["composed"]), verdict=None, **facts)

    async def verify(self, request: Request) -> Response:
        """Rebuild one prompt from its recorded inputs, now, and say whether it is the one that was sent, bit for bit."""
        name = request.path_params["id"]
        try:
            records = [record for record in await self._ledger.find(name) if isinstance(record, PromptComposed)]
            if not records:
                return self._problem("There is no prompt of this id", "Only a prompt that was composed can be verified.", 404)
            verdict = await self._check(records[0])
        except LedgerError as error:
            return self._problem("The ledger cannot be read", error.message, 503)
        if _is_update(request):
            return self._page("verdict.html", verdict=verdict)
        return self._page("verified.html", id=name, verdict=verdict)

    async def compare(self, request: Request) -> Response:
        """Return two prompts side by side at the byte where they part."""
        names = [request.query_params.get(name, "") for name in ("before", "after")]
        try:
            found = [await self._composed(name) for name in names]
            if not all(found):
                return self._problem("One of the two prompts is not there", "Retention may have removed it.", 404)
            before, after = [each for each in found if each is not None]
            parted = await asyncio.to_thread(parting.part, before[1], after[1])
            ends = [await self._end(name) for name in names]
        except LedgerError as error:
            return self._problem("The ledger cannot be read", error.message, 503)
        return self._page("compare.html", before=before[0], after=after[0], parted=parted, ended=ends[1], before_ended=ends[0])

    async def static(self, request: Request) -> Response:
        """Return a style sheet or script; their addresses change with their content, so that browsers may keep them."""
        name = request.path_params["name"]
        if name not in self._files:
            return self._problem("There is no such file", "", 404)
        kind = TYPES[Path(name).suffix]
        return Response(self._files[name], media_type=kind, headers={"cache-control": "private, max-age=31536000, immutable"})

    async def _view(self, request: Request) -> View:
        query, totals = Query.parse(request.query_params), await self.reader.catch_up()
        now = self._clock()
        kept = self._views.get(query)
        if kept is None or now - kept[0] >= KEPT_S or kept[1] != totals.records:
            self._views = {each: old for each, old in self._views.items() if now - old[0] < KEPT_S}
            kept = self._views[query] = (now, totals.records, view(totals, query, now))
        return kept[2]

    async def _facts(self, records: Sequence[Record]) -> dict[str, Any]:
        """Return what the page of a call shows of its records. A body that is gone is said, and costs nothing else."""
        facts: dict[str, Any] = {"composed": None, "ended": None, "cut": None, "parts": (), "reply": None, "gone": None}
        for record in records:
            if isinstance(record, PromptComposed):
                facts["composed"] = record
            elif isinstance(record, CallFinished):
                facts["ended"] = record
            elif isinstance(record, CompactionApplied):
                facts["cut"] = record
        try:
            if facts["composed"] is not None:
                body = rebuild(facts["composed"], await Shelf(self._ledger).of([facts["composed"]]))
                facts["parts"] = await asyncio.to_thread(parting.parts, body)
            if facts["ended"] is not None and facts["ended"].reply is not None:
                reply = await self._ledger.bodies([facts["ended"].reply])
                facts["reply"] = json.loads(reply[facts["ended"].reply])
        except LedgerError as error:
            facts["gone"] = error.message
        return facts

    async def _tries(self, composed: PromptComposed | None) -> list[tuple[str, str, CallFinished | None]]:
        """Return the attempts of the call's request, in order, each with its end; [] when they are no longer remembered."""
        if composed is None:
            return []
        tries = []
        for name, target in self.reader.totals.attempts.get(composed.request_id, [(composed.id, composed.target)]):
            tries.append((name, target, await self._end(name)))
        return tries

    async def _end(self, name: str) -> CallFinished | None:
        return next((each for each in await self._ledger.find(name) if isinstance(each, CallFinished)), None)

    async def _composed(self, name: str) -> tuple[PromptComposed, bytes] | None:
        for record in await self._ledger.find(name):
            if isinstance(record, PromptComposed):
                return record, rebuild(record, await Shelf(self._ledger).of([record]))
        return None

    async def _check(self, record: PromptComposed) -> Verdict:
        if self._replay is None:
            self._replay = Replay()
        bodies = await Shelf(self._ledger).of([record])
        return await asyncio.to_thread(self._replay.check, record, bodies)

    def _problem(self, title: str, text: str, status: int) -> Response:
        return self._page("problem.html", status, title=title, text=text)

    def _page(self, template: str, status: int = 200, **values: Any) -> Response:
        text = self._pages.get_template(template).render(reader=self.reader, totals=self.reader.totals, **values)
        # `Vary`: the same address is a page for a browser and a part of it for an update.
        return HTMLResponse(text, status, headers={"cache-control": "no-store", "vary": "HX-Request"})


def _is_update(request: Request) -> bool:
    return request.headers.get("hx-request") == "true" and request.headers.get("hx-history-restore-request") != "true"


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in TYPES)


def _chart(chart: Chart) -> str:
    """Return the chart as the script reads it: starts, then for each line its name, ratios, tokens and cached tokens."""
    lines = [
        {
            "name": name,
            "ratio": [None if point.ratio is None else round(point.ratio, 4) for point in points],
            "tokens": [point.tokens for point in points],
            "cached": [point.cached for point in points],
        }
        for name, points in chart.lines.items()
    ]
    return json.dumps({"step": chart.step_s, "starts": chart.starts, "lines": lines})


def _environment(version: str) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    environment.globals.update(path=PATH, version=version, causes=CAUSES, address=address)
    return environment


def address(path: str, query: Query | Mapping[str, str] | None = None, **more: str) -> str:
    """Return a path below the dashboard with what is chosen; a value of "" is left out."""
    chosen = dict(query.chosen if isinstance(query, Query) else query or {}) | more
    given = {name: value for name, value in chosen.items() if value}
    return f"{PATH}{path}" + (f"?{urlencode(given)}" if given else "")
