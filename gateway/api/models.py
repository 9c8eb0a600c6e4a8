"""`/v1/models`: the names that a caller's key may send, in OpenAI's shape, each with the window that is always there."""

import difflib
from collections.abc import Callable, Sequence

from starlette.responses import JSONResponse, Response

from gateway import routing
from gateway.api import errors
from gateway.api.access import Caller, allows
from gateway.errors import ModelNotFound
from gateway.routing import Route

WindowOf = Callable[[Route], int | None]

CREATED = 1_700_000_000  # SDKs want an integer; a name in our configuration has no birthday, and this one never changes


def listing(routes: Sequence[Route], caller: Caller, window_of: WindowOf) -> Response:
    """Return the list, in the order of the routes. `window_of` gives a route's window in tokens, None when not known.

    Listed is what a request may name: of each route its name and its models, without globs, and only where that very
    route would take it, since the first one that matches does.
    """
    models = [_model(name, route, window_of) for name, route in _visible(routes, caller)]
    return JSONResponse({"object": "list", "data": models})


def one(model: str, routes: Sequence[Route], caller: Caller, window_of: WindowOf) -> Response:
    """Return one model, also one that only a glob takes; 404 `model_not_found` for what this key may not use or is not there."""
    route = _taker(routes, model)
    if route is not None and allows(caller, route.name):
        return JSONResponse(_model(model, route, window_of))
    names = [name for name, _ in _visible(routes, caller)]
    near = ", ".join(difflib.get_close_matches(model, names, n=3, cutoff=0.4) or names[:5]) or "none"
    return errors.response(ModelNotFound(f"no model {model!r} that this key may use; near names are {near}", param="model"))


def _visible(routes: Sequence[Route], caller: Caller) -> list[tuple[str, Route]]:
    found: dict[str, Route] = {}
    for route in routes:
        if not allows(caller, route.name):
            continue
        for name in (route.name, *route.models):
            if not any(c in name for c in "*?[") and name not in found and _taker(routes, name) is route:
                found[name] = route
    return list(found.items())


def _taker(routes: Sequence[Route], model: str) -> Route | None:
    try:
        return routing.resolve(routes, model)
    except ModelNotFound:
        return None


def _model(name: str, route: Route, window_of: WindowOf) -> dict[str, object]:
    model: dict[str, object] = {"id": name, "object": "model", "created": CREATED, "owned_by": route.name}
    window = window_of(route)
    if window is not None:
        model["context_window"] = window
    return model
