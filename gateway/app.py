"""The composition root: settings -> adapters -> Gateway -> ASGI app. Knows all, decides nothing.

`wiring` makes the parts, this module puts them together and answers HTTP, `serving` runs it in one process or several.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Message, Receive, Scope, Send

from gateway import logs, planning, routing
from gateway.api import admin, cors, errors, guard, health, models
from gateway.api.access import AdminOnly, authorise
from gateway.api.bounds import Bounds
from gateway.api.chat import ClientLeft, read_body
from gateway.api.sessions import LOGIN_PATH, Sessions
from gateway.budgets import open_limits
from gateway.context import layout
from gateway.dashboard import views
from gateway.dialects.chat import CHAT
from gateway.errors import GatewayError, RouteNotAllowed
from gateway.generation import Generation, Shared, generation_of, refuse_fixed
from gateway.ledger.base import Ledger
from gateway.ledger.memory import MemoryLedger
from gateway.ledger.records import ConfigChanged, Entry
from gateway.limits.base import Limits
from gateway.limits.memory import MemoryLimits
from gateway.limits.reservations import Reservations
from gateway.pipeline import Gateway
from gateway.providers.tokenizers import Counter
from gateway.reloading import Reloading, Source
from gateway.settings import Settings
from gateway.telemetry import Metrics
from gateway.wiring import aims_of, ask_windows, new_id, open_ledger, upstream_of

LOG = logging.getLogger("gateway")
CHAT_PATH = "/v1/chat/completions"


class App:
    """The ASGI application. Chat completions are answered without a framework, everything else through starlette."""

    def __init__(self, settings: Settings, ledger: Ledger, source: Source | None = None, limits: Limits | None = None) -> None:
        """Serve these settings. `source` gives them anew for a reload; None: they stay. `limits` keeps budgets; None: in memory."""
        self.ledger = ledger
        self.metrics = Metrics()
        self.pages = views.Dashboard(ledger)
        self._asking: asyncio.Task[None] | None = None
        store = limits or MemoryLimits(settings.budgets.lease_s)
        self.reservations = Reservations(store, (), lease_s=settings.budgets.lease_s, new_id=new_id, watchers=(self.metrics,))
        self.now = generation_of(settings, self._shared())
        self._live = [self.now]
        self.bounds = Bounds(lambda: self.settings.server.max_inflight, lambda: self.settings.server.max_inflight_bytes)
        self._watch: asyncio.Task[None] | None = None
        self.reloading = Reloading(source, self.apply) if source else None
        rest = Starlette(routes=self._routes(), lifespan=self._lifespan, exception_handlers=HANDLERS)
        rest.router.redirect_slashes = False  # a redirect would lose a POST's body with many clients
        self.rest = cors.Cors(rest, self._origins)

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.now.settings

    @property
    def gateway(self) -> Gateway:
        """The request path under the settings in force."""
        return self.now.gateway

    def _shared(self) -> Shared:
        return Shared(ledger=self.ledger, metrics=self.metrics, reservations=self.reservations, origins=self._origins)

    async def apply(self, settings: Settings) -> None:
        """Put other settings in force: new requests run on them, those that run already end as they began.

        ConfigurationError, and nothing changed, for settings that cannot be served, or only after a restart.
        """
        if settings.digest == self.settings.digest:
            LOG.info("reload: nothing changed, configuration %.12s stays in force", settings.digest)
            return
        refuse_fixed(self.settings, settings)
        generation = await asyncio.to_thread(generation_of, settings, self._shared(), self.now)  # looks windows and prices up
        old, self.now = self.now, generation
        self._live.append(generation)
        logs.configure(settings.log.level, settings.log.format)
        LOG.info("reload: configuration %.12s is in force, %d requests end under the one before", settings.digest, old.calls)
        self._begin()
        await self._retire(old)

    async def _retire(self, generation: Generation) -> None:
        """Let go of a generation that is over: of the upstreams that no other one still uses."""
        if generation.calls or generation is self.now or generation not in self._live:
            return
        self._live.remove(generation)
        kept = [upstream for each in self._live for upstream in each.upstreams.values()]
        for upstream in generation.upstreams.values():
            if not any(upstream is other for other in kept):
                await upstream.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.rest(scope, receive, send)
            return
        generation = self.now
        generation.calls += 1
        try:
            with self.bounds.taken() as taken:
                await self._answer(generation, scope, taken.counted(receive), send)
        finally:
            generation.calls -= 1
            if generation is not self.now:
                generation.gateway.recorder.spawn(self._retire(generation))

    async def _answer(self, generation: Generation, scope: Scope, receive: Receive, send: Send) -> None:
        if self._is_unasked(scope):
            await errors.response(RouteNotAllowed(guard.UNASKED))(scope, receive, send)
            return
        planned = generation.planned.get(canonical(scope["path"])) if scope["method"] == "POST" else None
        if planned is not None:
            await planned(scope, receive, send)
            return
        send = identified(send, new_id())
        if any(name == b"upgrade" and value.lower() == b"websocket" for name, value in scope["headers"]):
            await errors.response(errors.UpgradeRefused("WebSocket upgrades are not in this version"))(scope, receive, send)
            return
        await self.rest(dict(scope, path=canonical(scope["path"]), generation=generation), receive, send)

    def _is_unasked(self, scope: Scope) -> bool:
        keyless = scope["method"] != "OPTIONS" and not self.settings.auth.keys
        return keyless and guard.is_unasked(scope["headers"], self._origins())

    def _routes(self) -> list[BaseRoute]:
        shown = [Middleware(guard.Marked, headers=guard.PAGES)]
        private = [*shown, Middleware(guard.SameOrigin), Middleware(AdminOnly, admin_key=self._admin_key)]
        sessions = Sessions(self._admin_key)
        ready = health.Ready(self.ledger, timeout_s=self.settings.ledger.timeout_s)

        async def alive(request: Request) -> Response:
            return health.live()

        async def readiness(request: Request) -> Response:
            return await ready()

        async def metrics(request: Request) -> Response:
            return Response(self.metrics.page(), media_type="text/plain; version=0.0.4")

        async def passed(request: Request) -> Response:
            generation: Generation = request.scope["generation"]
            return await generation.passthrough.answer(request)

        return [
            *(Route(path, alive) for path in ("/health/live", "/health/liveliness", "/health")),
            *(Route(path, readiness) for path in ("/health/ready", "/health/readiness")),
            Route("/v1/models", self._models),
            Route("/v1/models/{model:path}", self._models),
            Mount("/gateway", routes=self._administration(), middleware=private),
            Route("/metrics", metrics, middleware=private),
            Route(LOGIN_PATH, sessions.login, methods=["GET", "POST"], middleware=shown),
            Route("/dashboard/logout", sessions.logout, methods=["POST"], middleware=shown),
            *self.pages.routes(private),
            Route(
                "/v1/{path:path}",
                passed,
                methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
                middleware=[Middleware(guard.Marked, headers=guard.DATA)],
            ),
        ]

    def _administration(self) -> list[BaseRoute]:
        async def snapshots(request: Request) -> Response:
            return await admin.snapshots(request, self.ledger)

        async def snapshot(request: Request) -> Response:
            return await admin.snapshot(request.path_params["id"], self.ledger)

        async def routes(request: Request) -> Response:
            return admin.routes(self.settings.routes, self._window)

        async def config(request: Request) -> Response:
            now, last = self.now, self.reloading.last if self.reloading else None
            return admin.config(digest=now.settings.digest, since=now.since, source=now.settings.source, last_reload=last)

        async def budgets(request: Request) -> Response:
            return await admin.budgets(self.gateway.reservations.standings)

        async def explanation(request: Request) -> Response:
            try:
                body = await read_body(request.scope, request.receive, self.settings.server.max_body_bytes)
                found = await explain_with(self.gateway, body, request.query_params.get("route"))
            except GatewayError as error:
                return errors.response(error)
            except ClientLeft:
                return Response(status_code=499)  # nobody reads it
            return JSONResponse(found)

        return [
            Route("/snapshots", snapshots),
            Route("/snapshots/{id}", snapshot),
            Route("/routes", routes),
            Route("/config", config),
            Route("/budgets", budgets),
            Route("/explain", explanation, methods=["POST"]),
        ]

    async def _models(self, request: Request) -> Response:
        try:
            caller = authorise(request.scope["headers"], self.settings.auth.keys)
        except GatewayError as error:
            return errors.response(error)
        model = request.path_params.get("model")
        if model is None:
            return models.listing(self.settings.routes, caller, self._window)
        return models.one(model, self.settings.routes, caller, self._window)

    def _admin_key(self) -> str | None:
        key = self.settings.auth.admin_key
        return key.reveal() if key else None

    def _origins(self) -> Sequence[str]:
        return self.settings.server.cors_origins

    def _window(self, route: routing.Route) -> int | None:
        """Return the smallest window of the route: a client that fills no more fits every target it may fall back to."""
        windows = [self.gateway.aims[route.name, target.name].policy.window.tokens for target in route.targets]
        return min((each for each in windows if each is not None), default=None)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        await self.started()
        try:
            yield
        finally:
            await self.stop()

    async def started(self) -> None:
        """Record which configuration runs, and watch for another.

        A ledger that is away does not stop the start: calls are refused until it is back.
        """
        self._begin()
        self._watch = asyncio.create_task(self.bounds.watch())
        if self.reloading is not None:
            self.reloading.start()

    def _begin(self) -> None:
        """Record that these settings are in force from now on, and ask providers for the windows that they do not name."""
        now = self.now
        changed = ConfigChanged(id=new_id(), at=now.since, digest=now.settings.digest, source=now.settings.source)
        now.gateway.recorder.append_late(Entry(records=(changed,)))
        if self._asking is not None:
            self._asking.cancel()
        self._asking = asyncio.create_task(ask_windows(now.settings, now.tell))

    async def stop(self) -> None:
        """Finish what is being recorded, bounded by the grace time, and let go of every connection."""
        if self.reloading is not None:
            await self.reloading.stop()
        for task in (self._asking, self._watch):
            if task is not None:
                task.cancel()
        await self.pages.reader.close()
        await self.gateway.recorder.drain(self.settings.server.shutdown_grace_s)
        await self.gateway.reservations.drain(self.settings.ledger.timeout_s)
        for upstream in {id(each): each for generation in self._live for each in generation.upstreams.values()}.values():
            await upstream.close()
        await self.ledger.close()


def identified(send: Send, request_id: str) -> Send:
    """Return a send that gives the answer an `x-request-id` where it has none."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message.get("headers", [])
            if all(name != b"x-request-id" for name, _ in headers):
                message = {**message, "headers": [*headers, (b"x-request-id", request_id.encode())]}
        await send(message)

    return sent


async def missing(request: Request, error: Exception) -> Response:
    """Answer for an address that is not there, in the OpenAI envelope."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    answer = errors.response(errors.NotFound(f"{request.method} {request.url.path} is not served here"))
    answer.status_code = status
    return answer


async def failed(request: Request, error: Exception) -> Response:
    """Answer for a fault of ours; the log has the cause."""
    return errors.response(error)


HANDLERS = {404: missing, 405: missing, Exception: failed}


def canonical(path: str) -> str:
    """Return the path as it is served: one `/v1` in front of the planned dialects, no doubled or trailing slashes."""
    if path == CHAT_PATH:
        return path
    while "//" in path:
        path = path.replace("//", "/")
    if len(path) > 1:
        path = path.rstrip("/")
    while path.startswith("/v1/v1/"):
        path = path[3:]
    if path in ("/chat/completions", "/messages", "/messages/count_tokens", "/models", "/embeddings", "/completions"):
        path = "/v1" + path
    return path


async def explain_with(gateway: Gateway, body: bytes, named: str | None) -> dict[str, Any]:
    """Return what would happen to this request, per target of its route; sends and records nothing."""
    request, _ = CHAT.without_gateway(CHAT.parse(body, gateway.memos[CHAT.name]))
    route = routing.resolve(gateway.routes, request.model, named=named)
    arranged = layout.arrange(request, route.layout, CHAT, memo=gateway.scans)
    targets = []
    for target in route.targets:
        aim = gateway.aims[route.name, target.name]
        planned = await planning.plan(arranged, aim.policy, gateway.counter, gateway.plans)
        targets.append({"target": target.name, **planning.explanation(planned)})
    return {"route": route.name, "model": request.model, "messages": len(request.items), "targets": targets}


async def explain(settings: Settings, body: bytes, route: str | None) -> dict[str, Any]:
    """Return what `gateway explain` prints, without a running gateway."""
    gateway = Gateway(
        routes=settings.routes,
        aims=aims_of(settings, {name: upstream_of(each) for name, each in settings.providers.items()}),
        ledger=MemoryLedger(),
        counter=Counter(),
        new_id=new_id,
        meter=Metrics(),
    )
    return await explain_with(gateway, body, route)


def build(settings: Settings, source: Source | None = None) -> App:
    """Return the application for these settings. Opens no connection yet; a file of SQLite is opened."""
    each = settings.ledger
    ledger = open_ledger(each.url.reveal(), each.timeout_s, pool=each.pool, fsynced=each.durability == "fsynced")
    return App(settings, ledger, source, open_limits(settings))
