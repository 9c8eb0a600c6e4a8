"""The settings: one YAML file and the environment, checked whole and once, become frozen values.

Owns what each key means and every default. `values` has what comes out, `form` the keys and their types, `checks` the
rules across keys and what this version refuses. Knows nothing of how a value is used.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from pydantic import BaseModel

from gateway import routing, yamlfile
from gateway.cache.cost import Prices, Tier
from gateway.context.policy import CompactionPolicy, LayoutPolicy, Strategy, Volatile
from gateway.errors import ConfigurationError
from gateway.limits.base import NANO, Limit, Per, Unit
from gateway.settings import checks, form
from gateway.settings.checks import is_loopback
from gateway.settings.form import schema
from gateway.settings.values import (
    Address,
    Alerts,
    Auth,
    Budgets,
    Key,
    LedgerSettings,
    Log,
    Provider,
    Secret,
    Server,
    Settings,
    Timeouts,
)
from gateway.yamlfile import BadFile, Problem

__all__ = [
    "Address", "Alerts", "Auth", "BadFile", "Budgets", "Key", "LedgerSettings", "Log", "Problem", "Provider", "Secret", "Server",
    "Settings", "Timeouts",
    "from_environment", "is_loopback", "load", "read", "schema", "with_server",
]  # fmt: skip


def read(path: Path | str, env: Mapping[str, str]) -> Settings:
    """Return the settings of a file, which is UTF-8. Raises as `load`, and ConfigurationError when it cannot be read."""
    source = str(path)
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{source}: cannot be read: {error.strerror or type(error).__name__}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{source}: is not UTF-8: a wrong byte at offset {error.start}") from None
    return load(text, source=source, env=env)


def load(text: str, *, source: str, env: Mapping[str, str]) -> Settings:
    """Return the settings that a YAML text and an environment give.

    Raises BadFile (a ConfigurationError) with every problem of the text together, each as `FILE:LINE:COL: key.path: what
    is wrong`; neither its message nor its `problems` hold a secret. Source: contract, "Configuration".
    """
    document = yamlfile.read(text, source=source, env=env)
    given = form.fit(document)
    checks.check(document, env)
    if given is None or document.problems:
        raise BadFile(document.problems)
    routes = _routes(given)
    for route in routes:
        _no_rivals(document, route)
    if document.problems:
        raise BadFile(document.problems)
    settings = Settings(
        server=Server(**_set(given.server)),
        auth=_auth(given.auth),
        ledger=LedgerSettings(**_set(given.ledger, "retention", "encryption_key") | _url(given.ledger)),
        providers={name: _provider(name, each) for name, each in given.providers.items()},
        routes=routes,
        passthrough=given.passthrough.provider if given.passthrough else None,
        telemetry_prometheus=given.telemetry.prometheus,
        budgets=_budgets(given.budgets),
        log=_log(given.log, env),
        digest="",
        source=source,
    )
    return replace(settings, digest=_digest(settings))


def with_server(settings: Settings, *, host: str | None = None, port: int | None = None) -> Settings:
    """Return the settings with the address of the command line, under the same rule: no keys, only loopback."""
    server = replace(settings.server, host=host or settings.server.host, port=settings.server.port if port is None else port)
    if not settings.auth.keys and not is_loopback(server.host):
        raise ConfigurationError(f"without auth.keys only a loopback address may be bound, such as 127.0.0.1 (here: {server.host})")
    changed = replace(settings, server=server)
    return replace(changed, digest=_digest(changed))


def _set(given: BaseModel, *without: str) -> dict[str, Any]:
    """Return what the file says of one section; what it leaves out gets the value's own default."""
    names = given.model_fields_set - set(without)
    return {name: tuple(value) if isinstance(value := getattr(given, name), list) else value for name in names}


def _auth(given: form.AuthForm) -> Auth:
    keys = (Key(**_set(each, "budget") | {"sha256": each.sha256.lower(), "limits": _limits(each.budget)}) for each in given.keys)
    return Auth(admin_key=Secret(given.admin_key) if given.admin_key else None, keys=tuple(keys))


def _url(given: form.LedgerForm) -> dict[str, Address]:
    return {"url": Address(given.url)} if "url" in given.model_fields_set else {}


def _log(given: form.LogForm, env: Mapping[str, str]) -> Log:
    log = Log(**_set(given))
    level: Any = env.get("GATEWAY_LOG_LEVEL", "").lower()  # checked: it is one of the levels
    return replace(log, level=level) if level else log


def _provider(name: str, given: form.ProviderForm) -> Provider:
    """Return one provider. The query of its address may hold a key, so it leaves the address and becomes secret pairs."""
    parts = urlsplit(given.base_url or "")
    query = [*parse_qsl(parts.query, keep_blank_values=True), *given.query.items()]
    key = given.api_key or ""
    figures = {each: value for each, value in _set(given.cache, "rule").items() if value is not None}
    plain = _set(
        given, "base_url", "api_key", "headers", "query", "timeout", "rename_fields", "cache", "litellm_provider", "options"
    )
    return Provider(
        name=name,
        base_url=urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/"), "", "")),
        api_key=None if key in checks.KEYLESS else Secret(key),
        key_mode="none" if key == "none" else "client" if key == "client" else "own",
        headers=tuple((each, Secret(value)) for each, value in given.headers.items()),
        query=tuple((each, Secret(value)) for each, value in query),
        timeout=Timeouts(**_set(given.timeout)),
        rename_fields=tuple(given.rename_fields.items()),
        cache=given.cache.rule,
        cache_figures=tuple(figures.items()),
        **plain,
    )


def _routes(given: form.SettingsForm) -> tuple[routing.Route, ...]:
    known = {each.name: each for each in given.routes}
    return tuple(_route(each, known) for each in given.routes)


def _route(given: form.RouteForm, known: Mapping[str, form.RouteForm]) -> routing.Route:
    budget = _set(
        given.budget,
        "output_over_window",
        "sections",
        "spend",
        "tokens",
        "requests_per_minute",
        "tokens_per_minute",
        "max_parallel",
    )
    compaction = _set(given.compaction, "strategy", "summarizer", "summary_max_tokens", "timeout_s", "recall_tool")
    layout = _set(given.layout, "volatile", "tools", "cache_marks", "cache_ttl", "affinity")
    return routing.Route(
        name=given.name,
        models=tuple(given.models or (given.name,)),
        targets=tuple(dict.fromkeys(_flat(given, known))),
        budget=routing.Budget(shrink_output=given.budget.output_over_window == "shrink", limits=_limits(given.budget), **budget),
        compaction=CompactionPolicy(strategy=Strategy(given.compaction.strategy), **compaction),
        layout=LayoutPolicy(volatile=Volatile(given.layout.volatile), tools_sorted=given.layout.tools == "sorted", **layout),
        retry=routing.Retry(**_set(given.retry)),
        cooldown=routing.Cooldown(**_set(given.cooldown)),
    )


def _limits(given: form.LimitsForm | None) -> tuple[Limit, ...]:
    """Return the limits of one `budget`, in the order of the contract."""
    if given is None:
        return ()
    found: list[tuple[Unit, Per, int | None]] = []
    if given.spend is not None:
        found.append((Unit.USD, Per(given.spend.per), round(given.spend.usd * NANO)))
    if given.tokens is not None:
        found.append((Unit.TOKENS, Per(given.tokens.per), given.tokens.limit))
    found.append((Unit.REQUESTS, Per.MINUTE, given.requests_per_minute))
    found.append((Unit.TOKENS, Per.MINUTE, given.tokens_per_minute))
    found.append((Unit.REQUESTS, Per.PARALLEL, given.max_parallel))
    return tuple(Limit(unit=unit, per=per, amount=amount) for unit, per, amount in found if amount is not None)


def _budgets(given: form.BudgetsForm) -> Budgets:
    alerts = given.alerts
    made = (
        None
        if alerts is None
        else Alerts(**_set(alerts, "url", "at") | {"url": Secret(alerts.url), "at": tuple(sorted(set(alerts.at)))})
    )
    return Budgets(**_set(given, "alerts"), alerts=made)


def _flat(given: form.RouteForm, known: Mapping[str, form.RouteForm]) -> Iterator[routing.Target]:
    """Yield the targets depth first; `checks` has seen that there is no circle."""
    for each in given.targets:
        if each.route is not None:
            yield from _flat(known[each.route], known)
        else:
            prices = _prices(each.prices) if each.prices else None
            yield routing.Target(**_set(each, "route", "prices"), prices=prices)


def _prices(given: form.PricesForm) -> Prices:
    tiers = (
        Tier(above_tokens=each.above_tokens, prices=Prices(**_set(each, "above_tokens")))
        for each in sorted(given.long_context, key=lambda each: each.above_tokens)
    )
    return Prices(**_set(given, "long_context"), tiers=tuple(tiers))


def _no_rivals(document: yamlfile.Document, route: routing.Route) -> None:
    """Note a model that one route reaches twice with different figures: only one of them could hold."""
    seen: set[str] = set()
    path = next(path for path, name in document.find("routes.*.name") if name == route.name)
    for target in route.targets:
        if target.name in seen:
            document.add(path, f"{target.name} is a target of this route twice, with different figures")
        seen.add(target.name)


def _digest(settings: Settings) -> str:
    plain = _plain(replace(settings, digest="", source=""))
    return hashlib.sha256(json.dumps(plain, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def _plain(value: object) -> object:
    if isinstance(value, Secret):
        return hashlib.sha256(value.reveal().encode()).hexdigest()
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 30 and 30.0 are the same setting
    return value.value if isinstance(value, Enum) else value


# Variable, provider, address, globs of its model names, and its models: the first one takes every other name.
# Names as of the price list that the catalog reads; any name can be routed by a settings file.
KNOWN: tuple[tuple[str, str, str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("OPENAI_API_KEY", "openai", "https://api.openai.com/v1", ("gpt-*", "o1*", "o3*", "o4*", "chatgpt-*"),
     ("gpt-5.6", "gpt-5.5", "gpt-5.4", "gpt-5.4-mini", "gpt-5.4-nano", "gpt-5.2", "gpt-5.1", "gpt-5", "gpt-5-mini", "gpt-5-nano",
      "gpt-4.1", "gpt-4.1-mini", "gpt-4o", "gpt-4o-mini", "o3")),
    ("DEEPSEEK_API_KEY", "deepseek", "https://api.deepseek.com/v1", ("deepseek-*",), ("deepseek-chat", "deepseek-reasoner")),
    ("MISTRAL_API_KEY", "mistral", "https://api.mistral.ai/v1",
     ("mistral-*", "ministral-*", "magistral-*", "codestral-*", "devstral-*"),
     ("mistral-large-latest", "mistral-medium-latest", "mistral-small-latest", "magistral-medium-latest")),
    ("XAI_API_KEY", "xai", "https://api.x.ai/v1", ("grok-*",), ("grok-4.5", "grok-4.3")),
    ("GEMINI_API_KEY", "gemini", "https://generativelanguage.googleapis.com/v1beta/openai", ("gemini-*",),
     ("gemini-flash-latest", "gemini-pro-latest", "gemini-2.5-pro", "gemini-2.5-flash")),
    ("MOONSHOT_API_KEY", "moonshot", "https://api.moonshot.ai/v1", ("kimi-*", "moonshot-*"), ("kimi-k3", "kimi-k2.6")),
    ("GROQ_API_KEY", "groq", "https://api.groq.com/openai/v1",
     ("groq/*", "openai/gpt-oss-*"), ("openai/gpt-oss-120b", "openai/gpt-oss-20b")),
    ("OPENROUTER_API_KEY", "openrouter", "https://openrouter.ai/api/v1", ("openrouter/*", "*/*"), ("openrouter/auto",)),
)  # fmt: skip


def from_environment(env: Mapping[str, str]) -> Settings | None:
    """Return settings made of the provider keys found in the environment, None when there is none.

    A route for each known model, then one for each provider with the globs of its names, which goes to the provider's
    first model; the first provider found also takes every other name, and pass-through.
    """
    found = [each for each in KNOWN if env.get(each[0], "").strip()]
    if not found:
        return None
    providers = {name: {"base_url": url, "api_key": f"${{{variable}}}"} for variable, name, url, _, _ in found}
    routes = list(_known_routes(found))
    text = json.dumps({"providers": providers, "routes": routes, "passthrough": {"provider": found[0][1]}})
    return load(text, source="the environment", env=env)


def _known_routes(found: Iterable[tuple[str, str, str, tuple[str, ...], tuple[str, ...]]]) -> Iterator[dict[str, object]]:
    for _, provider, _, _, models in found:
        for model in models:
            yield {"name": model, "models": [model], "targets": [{"provider": provider, "model": model}]}
    first = next(iter(found))[1]
    globs = [(provider, patterns, models[0]) for _, provider, _, patterns, models in found]
    for provider, patterns, model in globs:
        yield {"name": provider, "models": list(patterns), "targets": [{"provider": provider, "model": model}]}
    yield {"name": "default", "models": ["*"], "targets": [{"route": first}]}
