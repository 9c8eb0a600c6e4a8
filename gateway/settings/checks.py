"""Rules of the settings file that look at more than one key, and what this version does not do yet.

Every rule reads the plain values, which may be wrong in any other way, so that all problems are told together.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from gateway import yamlfile
from gateway.yamlfile import Document, Path, Value

SCHEMES = ("sqlite:", "redis://", "rediss://", "redis+sentinel://", "redis+cluster://")
KEYLESS = ("none", "client")
LEVELS = ("debug", "info", "warning", "error")


def _is(*values: str) -> Callable[[Value], bool]:
    return lambda value: value in values


def _starts(*heads: str) -> Callable[[Value], bool]:
    return lambda value: str(value).startswith(heads)


def _given(value: Value) -> bool:
    return value not in (None, "", 0, False, [], {})


def _any(value: Value) -> bool:
    return value is not None


# Keys whose feature is not in this version: which values would need it, and what there is instead.
LATER: tuple[tuple[str, Callable[[Value], bool], str], ...] = (
    ("ledger.url", _starts("redis+sentinel:", "redis+cluster:"), "Sentinel and Cluster; use redis:// or rediss://"),
    ("ledger.durability", _is("replicated"), "replicated; use appended or, with sqlite, fsynced"),
    ("ledger.on_failure", _is("spill", "open"), "spill and open; use closed"),
    ("ledger.retention.*", _given, "retention; leave it out or give 0"),
    ("ledger.encryption_key", _any, "encryption of bodies; leave it out"),
    ("providers.*.kind", _is("litellm"), "kind litellm; use openai with an OpenAI-shaped address, or anthropic"),
    ("providers.*.litellm_provider", _given, "kind litellm, which alone has this key"),
    ("providers.*.options", _given, "kind litellm, which alone has this key"),
    ("budgets.alerts", _any, "alerts; leave it out, and watch gateway_budget_used_ratio"),
    ("routes.*.budget.sections", _given, "section budgets; leave it out"),
    ("routes.*.compaction.strategy", _is("running_summary", "semantic_truncation"), "this strategy; use sliding_window or off"),
    ("routes.*.compaction.summarizer", _any, "summaries; leave it out"),
    ("routes.*.compaction.recall_tool", _given, "the recall tool; use false"),
    ("routes.*.layout.volatile", _is("freeze"), "freeze; use relocate or observe"),
    ("routes.*.layout.cache_ttl", _is("1h"), "1h, which needs cache marks; use 5m"),
    ("routes.*.compose.*", _given, "composition; leave it out"),
    ("routes.*.snapshots.on_failure", _is("spill", "open"), "spill and open; use closed"),
    ("telemetry.otlp_endpoint", _given, "OpenTelemetry; leave it out"),
)  # fmt: skip


def check(document: Document, env: Mapping[str, str]) -> None:
    """Note every problem that the form alone does not see."""
    _not_yet(document)
    _server(document)
    _keys(document)
    _ledger(document)
    for path, provider in document.find("providers.*"):
        if isinstance(provider, dict):
            _provider(document, path, provider)
    for path, url in document.find("budgets.alerts.url"):
        _address(document, path, url)
    _unique(document, "routes.*.name", "route of this name")
    _targets(document)
    _circles(document)
    if env.get("GATEWAY_LOG_LEVEL") and env["GATEWAY_LOG_LEVEL"].lower() not in LEVELS:
        document.add(("log", "level"), f"the environment variable GATEWAY_LOG_LEVEL is not one of {', '.join(LEVELS)}")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens there."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _note(document: Document, path: Path, message: str, *, show: bool = False) -> None:
    if not document.troubled(path):
        document.add(path, message, show=show)


def _not_yet(document: Document) -> None:
    for pattern, needs, instead in LATER:
        for path, value in document.find(pattern):
            if needs(value):
                _note(document, path, f"not in this version: {instead}", show=True)


def _unique(document: Document, pattern: str, noun: str) -> None:
    first: dict[str, Path] = {}
    for path, value in document.find(pattern):
        if not isinstance(value, str):
            continue
        known = first.setdefault(value, path)
        if known != path:
            _note(document, path, f"there is another {noun}, in line {document.values[known].line}", show=True)


def _server(document: Document) -> None:
    keys = [path for path, _ in document.find("auth.keys.*")]
    for path, host in document.find("server.host"):
        if isinstance(host, str) and not keys and not is_loopback(host):
            message = "without auth.keys only a loopback address may be bound, such as 127.0.0.1: else anyone could spend your keys"
            _note(document, path, message, show=True)


def _keys(document: Document) -> None:
    _unique(document, "auth.keys.*.name", "key of this name")
    _unique(document, "auth.keys.*.sha256", "key with this hash")


def _ledger(document: Document) -> None:
    for path, url in document.find("ledger.url"):
        text = str(url)
        if not text.startswith(SCHEMES) or (not text.startswith("sqlite:") and not _host(text)):
            _note(document, path, "accepted are sqlite:FILE, redis://HOST:PORT/DB and rediss://HOST:PORT/DB")
        elif text.startswith("sqlite:") and not text.removeprefix("sqlite:").strip("/"):
            _note(document, path, "sqlite: needs a file, such as sqlite:gateway.db")
        elif not text.startswith("sqlite:"):
            for durability, _ in (each for each in document.find("ledger.durability") if each[1] == "fsynced"):
                _note(document, durability, "fsynced is for sqlite: alone; use appended", show=True)


def _host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (parts.port is None or parts.port >= 0)
    except ValueError:
        return False


def _provider(document: Document, path: Path, provider: dict[str, Value]) -> None:
    name = path[-1]
    if "api_key" not in provider:
        _note(document, (*path, "api_key"), f"provider {name} has no key: give ${{VARIABLE}}, or `none` or `client`")
    elif not str(provider["api_key"] or "").strip():
        _note(document, (*path, "api_key"), f"the key of provider {name} is empty: give ${{VARIABLE}}, or `none` or `client`")
    if "base_url" not in provider:
        if provider.get("kind") == "litellm":  # which knows its providers' addresses
            return
        _note(document, (*path, "base_url"), "is missing, and is required")
        return
    _address(document, (*path, "base_url"), provider["base_url"])


def _address(document: Document, path: Path, url: Value) -> None:
    if not isinstance(url, str) or document.troubled(path):
        return
    if not url.lower().startswith(("http://", "https://")) or not _host(url) or re.search(r"[\s\x00-\x1f\x7f]", url):
        _note(document, path, "must be an address such as https://api.example.com/v1")
    elif urlsplit(url).username is not None:
        _note(document, path, "holds a user name or password: give it as api_key, or in headers")
    elif urlsplit(url).fragment:
        _note(document, path, "has a fragment (#…), which is never sent")


def _targets(document: Document) -> None:
    providers = document.root.get("providers")
    routes = [value for _, value in document.find("routes.*.name") if isinstance(value, str)]
    for pattern in ("routes.*.targets.*.provider", "routes.*.compaction.summarizer.provider", "passthrough.provider"):
        for path, value in document.find(pattern):
            if isinstance(value, str) and isinstance(providers, dict) and value not in providers:
                _unknown(document, path, "provider", value, list(providers))
    for path, value in document.find("routes.*.targets.*.route"):
        if isinstance(value, str) and value not in routes:
            _unknown(document, path, "route", value, routes)
    for path, target in document.find("routes.*.targets.*"):
        if isinstance(target, dict):
            _target(document, path, target)


def _unknown(document: Document, path: Path, noun: str, value: str, known: list[str]) -> None:
    names = ", ".join(known[:20]) or "none"
    _note(document, path, f"there is no {noun} {value!r}; there are: {names}{yamlfile.near(value, known)}")


def _target(document: Document, path: Path, target: dict[str, Value]) -> None:
    if "route" in target:
        if others := [key for key in target if key != "route"]:
            _note(document, (*path, others[0]), "a target is either {provider, model, …} or {route} alone")
        return
    for key in ("provider", "model"):
        if key not in target:
            _note(document, (*path, key), "is missing: a target is {provider, model, …} or {route}")


def _circles(document: Document) -> None:
    """Note each circle once, at the target that closes it."""
    references: dict[str | int, list[tuple[str, Path]]] = {}
    for path, value in document.find("routes.*.targets.*.route"):
        references.setdefault(path[1], []).append((str(value), path))
    links: dict[str, list[tuple[str, Path]]] = {}
    for path, name in document.find("routes.*.name"):
        if isinstance(name, str):
            links.setdefault(name, references.get(path[1], []))
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        for following, path in links.get(name, ()):
            if following in (*trail, name):
                circle = (*trail, name)[(*trail, name).index(following) :]
                _note(document, path, f"routes go in a circle: {' -> '.join((*circle, following))}")
            elif following not in done:
                visit(following, (*trail, name))
        done.add(name)

    for name in links:
        if name not in done:
            visit(name, ())
