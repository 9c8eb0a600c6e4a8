"""Turns a LiteLLM proxy YAML into ours, and says of every key in it what became of it: kept, changed or refused.

Pure but for reading YAML. No secret is copied: a key that stands in the file becomes a `${VARIABLE}`, and is never shown.
Source of the names: LiteLLM's page "All settings" of its proxy, and configurations found in public repositories.
"""

import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from gateway.errors import ConfigurationError
from gateway.litellm_import.deployments import ENVIRONMENT, Deployments, Path, number, reference
from gateway.litellm_import.tables import SAID, Fate
from gateway.yamlfile import TRUTHS


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What became of one key. `path` is where it stands in LiteLLM's file; `said` never holds its value."""

    path: str
    fate: Fate
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Our settings, as YAML, what became of each of theirs, and the environment variables that ours need."""

    yaml: str
    findings: tuple[Finding, ...]
    variables: tuple[str, ...]


def convert(text: str, env: Mapping[str, str]) -> Imported:
    """Return our settings for LiteLLM's. `env` is asked for the master key alone, of which only a hash goes out.

    Raises ConfigurationError when the text is no YAML mapping, or when no model of it can be served.
    """
    conversion = _Conversion(_read(text), env)
    made = conversion.made()
    out = io.StringIO()
    writer = YAML()
    writer.width = 130
    writer.representer.ignore_aliases = lambda *_: True  # a target that two routes have is written out twice
    writer.dump(_quoted(made), out)
    variables = sorted(set(re.findall(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", out.getvalue())))
    return Imported(yaml=out.getvalue(), findings=tuple(conversion.findings()), variables=tuple(variables))


def _quoted(value: Any) -> Any:
    """Return the value with those texts in quotes that YAML 1.1 reads as truth values: our own files refuse them bare."""
    if isinstance(value, dict):
        return {_quoted(key): _quoted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_quoted(each) for each in value]
    return DoubleQuotedScalarString(value) if isinstance(value, str) and value.lower() in TRUTHS else value


def _read(text: str) -> dict[str, Any]:
    reader = YAML(typ="safe", pure=True)
    reader.allow_duplicate_keys = True  # LiteLLM takes them, the last one counts
    try:
        found = reader.load(text)
    except (YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark else ""
        raise ConfigurationError(f"{place}this is no YAML: {getattr(error, 'problem', None) or type(error).__name__}") from None
    if not isinstance(found, dict) or not isinstance(found.get("model_list"), list):
        raise ConfigurationError("this is no LiteLLM configuration: it has no model_list")
    spelled: dict[str, Any] = _spelled(found)
    return spelled


def _spelled(value: Any) -> Any:
    """Return the value with every key as text: YAML reads a bare 4.1 as a number."""
    if isinstance(value, dict):
        return {str(key): _spelled(each) for key, each in value.items()}
    return [_spelled(each) for each in value] if isinstance(value, list) else value


@dataclass(slots=True)
class _Conversion:
    source: dict[str, Any]
    env: Mapping[str, str]
    models: Deployments = field(default_factory=Deployments)
    _own: dict[str, list[Any]] = field(default_factory=dict)  # each route's targets before any fallback

    def made(self) -> dict[str, Any]:
        for at, entry in enumerate(self.source["model_list"]):
            self.models.add(("model_list", at), entry)
        if not self.models.routes:
            why = "; ".join(said for _, said in self.models.said.values())
            raise ConfigurationError(f"no model of this file can be served: {why}")
        self._fallbacks()
        self._tries()
        made: dict[str, Any] = {"providers": self.models.providers, "routes": list(self.models.routes.values())}
        server = self._server()
        if self.models.passthrough:
            made["passthrough"] = {"provider": self.models.passthrough}
        return {**server, **made}

    def findings(self) -> Iterator[Finding]:
        """Yield what became of every key, in the file's order; a key nobody asked for is refused."""
        for path in _leaves(self.source):
            known = next((self.models.said[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.models.said), None)
            known = known or next((SAID[name] for n in range(len(path), 0, -1) if (name := _dotted(path[:n])) in SAID), None)
            fate, said = known or (Fate.REFUSED, "nothing here corresponds to it")
            yield Finding(path=_dotted(path), fate=fate, said=said)

    # -- what hangs on routes

    def _fallbacks(self) -> None:
        """Append each route's fallbacks as targets: copies, because routes that name each other would go in a circle."""
        self._own = {name: list(route["targets"]) for name, route in self.models.routes.items()}
        for section in ("litellm_settings", "router_settings"):
            for key in ("context_window_fallbacks", "fallbacks"):
                for path, rule in _listed(self.source, section, key):
                    for name, others in rule.items() if isinstance(rule, dict) else ():
                        for each in list(self.models.routes) if name == "*" else [name]:
                            self._fall(path, each, others if isinstance(others, list) else [others])
            for path, other in _listed(self.source, section, "default_fallbacks"):
                for each in list(self.models.routes):
                    self._fall(path, each, [other])

    def _fall(self, path: Path, name: Any, others: Iterable[Any]) -> None:
        others = [_one(other) for other in others]
        route = self.models.routes.get(name)
        lost = [other for other in others if other not in self.models.routes]
        if route is None or (lost and lost == list(others)):
            self.models.say(path, Fate.REFUSED, "it names a model that is not in model_list, or was refused")
            return
        for other in others:
            if other in self.models.routes and other != name:
                own = self._own[str(other)]
                route["targets"] += [target for target in own if target not in route["targets"]]
        said = "further targets, in order; each is planned against its own window"
        self.models.say(path, Fate.CHANGED if lost else Fate.KEPT, said + ("; one of them is not in model_list" if lost else ""))

    def _tries(self) -> None:
        names = (("num_retries", "retry", "attempts", 1), ("allowed_fails", "cooldown", "failures", 0),
                 ("cooldown_time", "cooldown", "seconds", 0))  # fmt: skip
        for section in ("litellm_settings", "router_settings"):
            given = self._section(section)
            for name, ours, key, more in names:
                if (given_number := number(given.get(name))) is not None:
                    value = given_number if key == "seconds" else max(1, int(given_number) + more)
                    for route in self.models.routes.values():
                        route.setdefault(ours, {}).setdefault(key, value)
                    self.models.say((section, name), Fate.KEPT, f"{ours}.{key} of every route")
            for name in ("request_timeout", "timeout", "stream_timeout"):
                if (seconds := number(given.get(name))) is not None:
                    ours = "first_byte_s" if name == "stream_timeout" else "total_s"
                    for provider in self.models.providers.values():
                        provider.setdefault("timeout", {}).setdefault(ours, seconds)
                    self.models.say((section, name), Fate.KEPT, f"timeout.{ours} of every provider")
        aliases = self._section("router_settings").get("model_group_alias")
        for alias, named in aliases.items() if isinstance(aliases, dict) else ():
            path: Path = ("router_settings", "model_group_alias", alias)
            found = self.models.routes.get(_one(named) or "")
            if found is not None and alias not in self.models.routes:
                found["models"].append(alias)
                self.models.say(path, Fate.KEPT, f"one more name of the route {found['name']}")
            else:
                self.models.say(path, Fate.REFUSED, "it names no one model of model_list, or has the name of one")
        for route in self.models.routes.values():  # every target may have its tries
            if tries := route.get("retry", {}).get("attempts"):
                route["retry"]["total_attempts"] = tries * len(route["targets"])

    # -- the server

    def _server(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        general, settings = self._section("general_settings"), self._section("litellm_settings")
        if master := general.get("master_key"):
            made["auth"] = self._master(str(master))
        if (parallel := general.get("max_parallel_requests")) and isinstance(parallel, int):
            for route in self.models.routes.values():
                route.setdefault("budget", {}).setdefault("max_parallel", parallel)
            self.models.say(("general_settings", "max_parallel_requests"), Fate.CHANGED, "budget.max_parallel of every route")
        if url := self._redis():
            made["ledger"] = {"url": url}
        if settings.get("set_verbose") or settings.get("json_logs"):
            made["log"] = {"level": "debug"} if settings.get("set_verbose") else {}
            made["log"] |= {"format": "json"} if settings.get("json_logs") else {}
        for name in ("set_verbose", "json_logs"):
            self.models.say(("litellm_settings", name), Fate.KEPT, "log")
        for key in ("callbacks", "success_callback", "failure_callback", "service_callbacks"):
            for path, each in _listed(self.source, "litellm_settings", key):
                known = {"prometheus": (Fate.KEPT, "/metrics"), "otel": (Fate.CHANGED, "set telemetry.otlp_endpoint")}
                other = (Fate.REFUSED, "the ledger has every call; consumer groups may read it from Redis")
                self.models.say(path, *known.get(str(each), other))
        for name in self._section("environment_variables"):
            self.models.say(("environment_variables", name), Fate.CHANGED, "set it in the environment of the process")
        return made

    def _master(self, master: str) -> dict[str, Any]:
        """LiteLLM's master key is for callers and for administration; ours are two things."""
        variable = master.removeprefix(ENVIRONMENT) if master.startswith(ENVIRONMENT) else "LITELLM_MASTER_KEY"
        value = self.env.get(variable, "") if master.startswith(ENVIRONMENT) else master
        made: dict[str, Any] = {"admin_key": f"${{{variable}}}"}
        said = f"auth.admin_key from {variable}"
        if value:
            made["keys"] = [{"name": "litellm-master", "sha256": hashlib.sha256(value.encode()).hexdigest()}]
            said += ", and a key that callers may go on using"
        else:
            said += f"; callers need keys: `gateway keys new NAME`, or run this again with {variable} set"
        self.models.say(("general_settings", "master_key"), Fate.CHANGED, said)
        return made

    def _redis(self) -> str | None:
        given = self._section("router_settings")
        if not given.get("redis_host") and not given.get("redis_url"):
            return None
        for name in ("redis_host", "redis_port", "redis_password", "redis_url"):
            said = "ledger.url: prompts are recorded there, limits shared through it"
            self.models.say(("router_settings", name), Fate.CHANGED, said)
        if url := given.get("redis_url"):
            return str(reference(url)) if str(url).startswith(ENVIRONMENT) else "${REDIS_URL}"
        password = f":{self._secret(given['redis_password'], 'REDIS_PASSWORD')}@" if given.get("redis_password") else ""
        return f"redis://{password}{reference(given['redis_host'])}:{reference(given.get('redis_port', 6379))}/0"

    def _secret(self, value: Any, variable: str) -> str:
        return str(reference(value)) if str(value).startswith(ENVIRONMENT) else f"${{{variable}}}"

    def _section(self, name: str) -> dict[str, Any]:
        found = self.source.get(name)
        return found if isinstance(found, dict) else {}


def _one(named: Any) -> str | None:
    """Return the one model that an alias or a fallback names: text, `{model: …}`, or a list of one."""
    name = named.get("model") if isinstance(named, dict) else named
    name = name[0] if isinstance(name, list) and len(name) == 1 else name
    return name if isinstance(name, str) else None


def _listed(source: Mapping[str, Any], section: str, key: str) -> Iterator[tuple[Path, Any]]:
    """Yield the entries of a list with their places; one value, or one mapping, stands for a list of itself."""
    found = source[section].get(key) if isinstance(source.get(section), dict) else None
    if isinstance(found, list):
        yield from (((section, key, at), each) for at, each in enumerate(found))
    elif found is not None:
        yield (section, key), found


def _leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not isinstance(value, (dict, list)) or not value:
        yield path
    for name, each in inner:
        yield from _leaves(each, (*path, name))


def _dotted(path: Path) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path).removeprefix(".")
