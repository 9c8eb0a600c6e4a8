"""What one configuration makes: its upstreams, its request path, its endpoints. A reload makes another beside it."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.types import ASGIApp

from gateway.api import cors
from gateway.api.chat import ChatCompletions
from gateway.api.messages import CountTokens, Messages
from gateway.api.passthrough import PassThrough
from gateway.budgets import budgets_of
from gateway.errors import ConfigurationError
from gateway.ledger.base import Ledger
from gateway.limits.reservations import Reservations
from gateway.pipeline import Gateway
from gateway.providers.base import Upstream
from gateway.providers.tokenizers import Counter
from gateway.settings import Settings
from gateway.telemetry import Metrics
from gateway.wiring import Told, aims_of, new_id, upstream_of

PLANNED = {"/v1/chat/completions": ChatCompletions, "/v1/messages": Messages, "/v1/messages/count_tokens": CountTokens}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What every generation of one process shares. `origins` are those that may call from browsers now."""

    ledger: Ledger
    metrics: Metrics
    reservations: Reservations
    origins: Callable[[], Sequence[str]]


@dataclass(slots=True, kw_only=True, eq=False)
class Generation:
    """One configuration and all that was made of it. `calls` is how many requests run on it."""

    settings: Settings
    since: datetime
    upstreams: Mapping[str, Upstream]
    told: Told
    gateway: Gateway
    planned: Mapping[str, ASGIApp]  # the endpoints of prompts, by their path
    passthrough: PassThrough
    calls: int = 0

    def tell(self, told: Told) -> None:
        """Plan against the windows that providers told, from the next request on."""
        self.told = {**self.told, **told}
        self.gateway.aims = aims_of(self.settings, self.upstreams, self.told)


def generation_of(settings: Settings, shared: Shared, old: Generation | None = None) -> Generation:
    """Return what these settings make. Takes over from the old generation whatever is not the settings' own.

    A provider whose settings did not change keeps its connections. ConfigurationError, and nothing changed, for
    settings that cannot be served. Whoever gives `Gateway` a field that comes from settings sets it here.
    """
    upstreams: dict[str, Upstream] = {
        name: old.upstreams[name] if old and old.settings.providers.get(name) == each else upstream_of(each)
        for name, each in settings.providers.items()
    }
    told = {
        key: limits for key, limits in (old.told if old else {}).items() if old and upstreams.get(key[0]) is old.upstreams[key[0]]
    }
    aims = aims_of(settings, upstreams, told)
    shared.reservations.use(budgets_of(settings, aims))
    if old is None:
        gateway = Gateway(
            routes=settings.routes,
            aims=aims,
            ledger=shared.ledger,
            counter=Counter(),
            new_id=new_id,
            meter=shared.metrics,
            reservations=shared.reservations,
        )
    else:
        gateway = copy.copy(old.gateway)
        gateway.routes, gateway.aims = settings.routes, aims
    keys, limit, provider = settings.auth.keys, settings.server.max_body_bytes, settings.passthrough or ""
    planned: dict[str, ASGIApp] = {path: endpoint(gateway, keys, limit, new_id) for path, endpoint in PLANNED.items()}
    if settings.server.cors_origins:
        planned = {path: cors.Cors(endpoint, shared.origins) for path, endpoint in planned.items()}
    return Generation(
        settings=settings,
        since=datetime.now(UTC),
        upstreams=upstreams,
        told=told,
        gateway=gateway,
        planned=planned,
        passthrough=PassThrough(gateway, provider, upstreams.get(provider), keys, limit, new_id),
    )


FIXED = ("host", "port", "shutdown_grace_s", "keepalive_s")  # of `server`: what the process was started with


def refuse_fixed(old: Settings, new: Settings) -> None:
    """ConfigurationError where the new settings change what a running process cannot: its address, its ledger."""
    fixed = [f"server.{name}" for name in FIXED if getattr(old.server, name) != getattr(new.server, name)]
    fixed += ["ledger"] if old.ledger != new.ledger else []
    if fixed:
        raise ConfigurationError(f"{' and '.join(fixed)} cannot change while the gateway runs: restart it to have it so")
