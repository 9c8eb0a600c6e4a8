"""The parts that settings name, made: the ledger, the upstreams, and what each target of each route resolves to."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import urlsplit

from gateway import routing
from gateway.cache import rules
from gateway.cache.rules import Rule
from gateway.context.digest import digest
from gateway.context.policy import Policy, Window
from gateway.errors import ConfigurationError
from gateway.ledger.base import Ledger
from gateway.ledger.redis import RedisLedger
from gateway.ledger.sqlite import SQLiteLedger
from gateway.pipeline import Aim
from gateway.providers import anthropic, catalog, tokenizers, windows
from gateway.providers.base import Endpoint, Upstream
from gateway.providers.openai import OpenAIUpstream
from gateway.providers.windows import Limits
from gateway.settings import Provider, Settings

LOG = logging.getLogger("gateway")
DEFAULT_RESERVE_TOKENS = 8_192
SPEAKS = {"openai": ("chat",), "anthropic": ("messages",), "litellm": ("chat",)}  # the dialects of each kind of provider
ASK_AGAIN_S, ASK_AFRESH_S = 60.0, 600.0  # between questions for windows: while one is not known, and when all are
Told = Mapping[tuple[str, str], Limits]  # what providers said of windows, by provider and model
UNKNOWN_WINDOW_CEILING_TOKENS = 131_072  # for a target whose window nobody knows, on a route without a ceiling


def new_id() -> str:
    """Return a new id: 32 hex characters that sort by time (milliseconds), then by chance."""
    return f"{time.time_ns() // 1_000_000:012x}{os.urandom(10).hex()}"


def open_ledger(url: str, timeout_s: float, *, pool: int = 16, fsynced: bool = False) -> Ledger:
    """Return the ledger that the URL names. ConfigurationError for a scheme that is not served."""
    if url.startswith("sqlite:"):
        return SQLiteLedger.open(url.removeprefix("sqlite:").removeprefix("//") or "gateway.db", timeout_s, fsynced=fsynced)
    if url.startswith(("redis://", "rediss://")):
        try:
            return RedisLedger(url, timeout_s, pool)
        except ValueError:  # its message may hold what stands in the URL
            raise ConfigurationError("the ledger's URL cannot be read; write redis://HOST:PORT/DB") from None
    raise ConfigurationError(f"no ledger for {url.split(':', 1)[0]}:…; sqlite:FILE, redis:// and rediss:// are served")


def policy_of(
    route: routing.Route, target: routing.Target, provider: Provider, row: catalog.Row | None, told: Limits | None = None
) -> Policy:
    """Return everything the core is told about one target of one route: the settings file, what its provider told, the catalog.

    A reserve that the route does not name is 8,192 tokens, or a quarter of a small window. A target whose window is not
    known gets the route's ceiling, or 131,072 tokens, and one warning: an unknown window is not an infinite one.
    """
    known = told or row
    tokens = target.window_tokens or (known.window if known else None)
    source = "yaml" if target.window_tokens else "provider" if told else "litellm" if tokens else "unknown"
    outputs = (target.output_limit_tokens, told and told.output_limit, row and row.output_limit)
    window = Window(tokens=tokens, output_limit=next((each for each in outputs if each), None), source=source)
    ceiling = route.budget.input_tokens
    if source != "yaml" and known is not None and known.input_limit is not None:  # what the prompt alone may have
        ceiling = known.input_limit if ceiling is None else min(ceiling, known.input_limit)
    if tokens is None and ceiling is None:
        ceiling = UNKNOWN_WINDOW_CEILING_TOKENS
        LOG.warning("the window of %s is not known: %d tokens are taken; set window_tokens on the target", target.name, ceiling)
    reserve = route.budget.output_reserve_tokens
    if reserve is None:
        reserve = min(DEFAULT_RESERVE_TOKENS, tokens // 4) if tokens else DEFAULT_RESERVE_TOKENS
    return Policy(
        model=target.model,
        window=window,
        ceiling_tokens=ceiling,
        reserve_tokens=reserve,
        margin=route.budget.margin,
        shrink_output=route.budget.shrink_output,
        tokenizer=target.tokenizer or catalog.tokenizer(target.model),
        safety=target.safety,
        compaction=route.compaction,
        layout=route.layout,
        drop_fields=provider.drop_fields,
        rename_fields=provider.rename_fields,
        developer_role=provider.developer_role,
        speaks=SPEAKS[provider.kind],
    )


def rule_of(provider: Provider, model: str) -> Rule:
    """Return how this provider caches this model's prompts: the table, with the figures of the settings file in their places."""
    host = urlsplit(provider.base_url).hostname or ""
    return rules.overridden(rules.resolve(provider.cache, host=host, model=model, kind=provider.kind), dict(provider.cache_figures))


def upstream_of(provider: Provider, base_url: str | None = None) -> OpenAIUpstream:
    """Return the adapter for one provider, or for another address of its; secrets are revealed here and nowhere else."""
    timeout = provider.timeout
    make = anthropic.upstream if provider.kind == "anthropic" else OpenAIUpstream
    return make(
        Endpoint(
            name=provider.name,
            base_url=provider.base_url if base_url is None else base_url,
            key=provider.api_key.reveal() if provider.api_key else None,
            client_key=provider.key_mode == "client",
            headers=tuple((name, value.reveal()) for name, value in provider.headers),
            query=tuple((name, value.reveal()) for name, value in provider.query),
            connect_s=timeout.connect_s,
            first_byte_s=timeout.first_byte_s,
            idle_s=timeout.idle_s,
            total_s=timeout.total_s,
        )
    )


def aims_of(settings: Settings, upstreams: Mapping[str, Upstream], told: Told | None = None) -> dict[tuple[str, str], Aim]:
    """Return what each target of each route resolves to. `told` is what providers said of windows so far."""
    targets = {(route.name, target.name): (route, target) for route in settings.routes for target in route.targets}
    lacking = [target for _, target in targets.values() if target.window_tokens is None or target.prices is None]
    rows = catalog.lookup((target.provider, target.model) for target in lacking) if lacking else {}
    aims = {}
    for key, (route, target) in targets.items():
        row = rows.get((target.provider, target.model))
        tokenizers.check(target.tokenizer or catalog.tokenizer(target.model))
        policy = policy_of(
            route, target, settings.providers[target.provider], row, (told or {}).get((target.provider, target.model))
        )
        body = policy.to_json()
        prices = target.prices or (row.prices if row else None)
        aims[key] = Aim(
            target=target,
            policy=policy,
            policy_record=(digest(body), body),
            upstream=upstreams[target.provider],
            prices=prices,
            rule=rule_of(settings.providers[target.provider], target.model),
        )
    return aims


async def ask_windows(settings: Settings, changed: Callable[[Told], None]) -> None:
    """Ask providers for the windows that the settings file does not give, until it is cancelled; tell whenever one changes.

    Away from the request path: until an answer is there, and where there is none, the catalog's figures hold. A server
    that says nothing yet (Ollama before a model is loaded) is asked again soon, one that answered now and then.
    """
    wanted = {(each.provider, each.model) for route in settings.routes for each in route.targets if each.window_tokens is None}
    told: dict[tuple[str, str], Limits] = {}
    while wanted:
        before = dict(told)
        for provider, model in sorted(wanted):
            one = settings.providers[provider]
            found = await windows.look_up(one.kind, one.base_url, model, partial(upstream_of, one))
            if found is not None:
                told[provider, model] = found
        if told != before:
            changed(dict(told))
        await asyncio.sleep(ASK_AGAIN_S if len(told) < len(wanted) else ASK_AFRESH_S)
