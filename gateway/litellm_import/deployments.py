"""The deployments of LiteLLM's `model_list`: our providers, routes and targets, and what became of each of their keys."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from gateway.litellm_import.tables import AZURE, GUESSED, NATIVE, NO_KEY, PRICES, SAMPLING, SERVERS, TRANSLATED, Fate

Path = tuple[str | int, ...]
ENVIRONMENT = "os.environ/"
ANSWERS = ("chat", "completion", "responses")  # modes whose calls are planned; every other one passes through
MILLION = 1_000_000


@dataclass(slots=True)
class Deployments:
    """What was made of them so far. `providers`, `routes`: as the settings file spells them; `said`: by place in the source."""

    said: dict[Path, tuple[Fate, str]] = field(default_factory=dict)
    providers: dict[str, dict[str, Any]] = field(default_factory=dict)
    routes: dict[str, dict[str, Any]] = field(default_factory=dict)
    passthrough: str | None = None

    def say(self, path: Path, fate: Fate, said: str) -> None:
        """Note what became of what stands at a place."""
        self.said[path] = (fate, said)

    def add(self, path: Path, entry: Any) -> None:
        params = entry.get("litellm_params") if isinstance(entry, dict) else None
        name = entry.get("model_name") if isinstance(entry, dict) else None
        if not isinstance(params, dict) or not isinstance(params.get("model"), str) or not isinstance(name, str):
            self.say(path, Fate.REFUSED, "it has no model_name, or no litellm_params.model")
            return
        info = entry["model_info"] if isinstance(entry.get("model_info"), dict) else {}
        where = (*path, "litellm_params")
        if "*" in params["model"]:
            self.say(path, Fate.REFUSED, "a target names one model: list the models of this wildcard, a route or target each")
            return
        prefix, model = self._named(params)
        if prefix is None:
            self.say(path, Fate.REFUSED, "which provider serves this model cannot be told: write PROVIDER/MODEL")
            return
        provider = self._provider(where, prefix, model, params)
        if provider is None:
            return
        if (mode := info.get("mode", "chat")) not in ANSWERS:
            self.passthrough = self.passthrough or provider
            same = self.passthrough == provider
            said = f"{mode} passes through to {provider}" if same else f"{mode} would pass through, but {self.passthrough} has that"
            self.say(path, Fate.CHANGED if same else Fate.REFUSED, said)
            return
        self.say((*path, "model_name"), Fate.KEPT, f"route {name}")
        self.say((*where, "model"), Fate.KEPT, f"target {provider}/{model}")
        route = self.routes.setdefault(name, {"name": printable(name), "models": [name], "targets": []})
        target = {"provider": provider, "model": model, **self._figures(path, params, info)}
        self._targeted(path, route, target, params)
        self._rates(path, entry, params, route)

    def _named(self, params: Mapping[str, Any]) -> tuple[str | None, str]:
        """Return the prefix that says who serves the model, None when nothing does, and the model's own name."""
        head, _, rest = params["model"].partition("/")
        custom = params.get("custom_llm_provider")
        if custom:
            return str(custom), rest if head == custom and rest else params["model"]
        if rest and (head in SERVERS or head in NATIVE or head in AZURE or head in TRANSLATED):
            return head, rest
        if params.get("api_base") or params.get("base_url"):
            return "openai", params["model"]
        return next((prefix for prefix, names in GUESSED if re.match(names, params["model"])), None), params["model"]

    def _provider(self, where: Path, prefix: str, model: str, params: Mapping[str, Any]) -> str | None:
        """Return the name of our provider for a deployment, None when there can be none."""
        made: dict[str, Any] = {}
        base_key = "api_base" if "api_base" in params else "base_url"
        base = reference(params.get(base_key))
        if prefix in AZURE:
            made = self._azure(where, model, params, base)
        elif prefix in SERVERS or prefix in NATIVE:
            url, variable = SERVERS[prefix] if prefix in SERVERS else NATIVE[prefix]
            base = _with_v1(base or url) if prefix in ("ollama", "ollama_chat") else base or url
            if not base:
                self.say(where, Fate.REFUSED, f"{prefix} needs an api_base")
                return None
            made = {"kind": "anthropic"} if prefix in NATIVE else {}
            made |= {"base_url": base, "api_key": self._key(where, params, variable)}
        elif prefix in TRANSLATED:
            made = self._translated(where, prefix, params)
        else:
            self.say(where, Fate.REFUSED, f"the provider {prefix} is not known here")
            return None
        if base_key in params:
            self.say((*where, base_key), Fate.KEPT, "base_url")
        self._connection(where, params, made)
        return self._shared(prefix, made)

    def _azure(self, where: Path, model: str, params: Mapping[str, Any], base: str | None) -> dict[str, Any]:
        """An Azure deployment is an address of its own, and wants its key in a header of its own."""
        url = f"{(base or '${AZURE_API_BASE}').rstrip('/')}/openai/deployments/{quote(model, safe='')}"
        self.say((*where, "api_version"), Fate.KEPT, "query api-version")
        version = reference(params.get("api_version")) or "${AZURE_API_VERSION}"
        return {
            "base_url": url,
            "api_key": "none",
            "headers": {"api-key": self._key(where, params, "AZURE_API_KEY")},
            "query": {"api-version": version},
        }

    def _translated(self, where: Path, prefix: str, params: Mapping[str, Any]) -> dict[str, Any]:
        options = {}
        for name, value in params.items():
            if name.startswith(("aws_", "vertex_", "api_version", "region_name", "watsonx_")):
                secret = re.search(r"key|secret|token|credential|password", name) and not str(value).startswith(ENVIRONMENT)
                options[name] = f"${{{name.upper()}}}" if secret else reference(value)
                self.say(
                    (*where, name),
                    Fate.CHANGED if secret else Fate.KEPT,
                    f"options.{name}" + " from the environment" * bool(secret),
                )
        made: dict[str, Any] = {"kind": "litellm", "litellm_provider": prefix, "options": options}
        made["api_key"] = self._key(where, params, "") if "api_key" in params else "none"
        if params.get("api_base"):
            made["base_url"] = reference(params["api_base"])
        return made

    def _key(self, where: Path, params: Mapping[str, Any], variable: str) -> str:
        """Return our `api_key`. One that stands in the file itself moves into the environment."""
        given = params.get("api_key")
        path = (*where, "api_key")
        if isinstance(given, str) and given.startswith(ENVIRONMENT):
            self.say(path, Fate.KEPT, "api_key, from the same variable")
            return f"${{{given.removeprefix(ENVIRONMENT)}}}"
        if given is None:
            return f"${{{variable}}}" if variable else "none"
        if str(given).strip().lower() in NO_KEY:
            self.say(path, Fate.KEPT, "no key is needed")
            return "none"
        name = variable or f"{_word(str(params['model']).partition('/')[0]).upper()}_API_KEY"
        self.say(path, Fate.CHANGED, f"keys do not stand in the file: set {name} in the environment")
        return f"${{{name}}}"

    def _connection(self, where: Path, params: Mapping[str, Any], made: dict[str, Any]) -> None:
        """Put what concerns the connection into a provider: headers, organisation, time limits."""
        headers: dict[str, Any] = dict(made.get("headers", {}))
        if isinstance(params.get("extra_headers"), dict):
            for name, value in params["extra_headers"].items():
                headers[str(name)] = reference(value)
            self.say((*where, "extra_headers"), Fate.KEPT, "headers")
        if params.get("organization"):
            headers["openai-organization"] = reference(params["organization"])
            self.say((*where, "organization"), Fate.KEPT, "headers.openai-organization")
        if headers:
            made["headers"] = headers
        timeout: dict[str, float] = {}
        for name, ours in (("timeout", "total_s"), ("stream_timeout", "first_byte_s")):
            if (seconds := number(params.get(name))) is not None:
                timeout[ours] = seconds
                self.say((*where, name), Fate.KEPT, f"timeout.{ours}")
        if timeout:
            made["timeout"] = timeout

    def _shared(self, prefix: str, made: dict[str, Any]) -> str:
        """Return the name under which an equal provider stands, added when there is none yet."""
        name, number = prefix, 1
        while name in self.providers and self.providers[name] != made:
            number += 1
            name = f"{prefix}-{number}"
        self.providers[name] = made
        return name

    def _figures(self, path: Path, params: Mapping[str, Any], info: Mapping[str, Any]) -> dict[str, Any]:
        """Return a target's own window, limit and prices."""
        made: dict[str, Any] = {}
        for name, ours in (("max_input_tokens", "window_tokens"), ("max_output_tokens", "output_limit_tokens")):
            if isinstance(info.get(name), int):
                made[ours] = info[name]
                self.say((*path, "model_info", name), Fate.KEPT, ours)
        if "base_model" in info:
            self.say(
                (*path, "model_info", "base_model"), Fate.CHANGED, "give the target window_tokens and prices where it is not known"
            )
        prices: dict[str, float] = {}
        for holder, place in ((params, "litellm_params"), (info, "model_info")):
            for name, ours in PRICES:
                if (price := number(holder.get(name))) is not None:
                    prices[ours] = round(price * MILLION, 6)
                    self.say((*path, place, name), Fate.CHANGED, f"prices.{ours}, in USD per million")
        if "input" in prices:
            made["prices"] = prices
        for name in info:
            if name in ("id", "mode") or name.startswith("supports_"):
                self.say((*path, "model_info", name), Fate.KEPT, "not needed: requests go as they came")
        return made

    def _targeted(self, path: Path, route: dict[str, Any], target: dict[str, Any], params: Mapping[str, Any]) -> None:
        same = next((t for t in route["targets"] if (t["provider"], t["model"]) == (target["provider"], target["model"])), None)
        if same is None:
            route["targets"].append(target)
            return
        self.say(
            path, Fate.CHANGED, f"the same as an earlier deployment, {target['provider']}/{target['model']}: one target is enough"
        )

    def _rates(self, path: Path, entry: Mapping[str, Any], params: Mapping[str, Any], route: dict[str, Any]) -> None:
        for name, ours in (("rpm", "requests_per_minute"), ("tpm", "tokens_per_minute"), ("max_parallel_requests", "max_parallel")):
            for holder, place in ((params, (*path, "litellm_params", name)), (entry, (*path, name))):
                if isinstance(holder.get(name), int):
                    budget = route.setdefault("budget", {})
                    budget[ours] = budget.get(ours, 0) + holder[name]
                    self.say(place, Fate.CHANGED, f"budget.{ours} of the route: the sum over its deployments")
        if (tries := number(params.get("max_retries", params.get("num_retries")))) is not None:
            route.setdefault("retry", {})["attempts"] = int(tries) + 1
            for name in ("max_retries", "num_retries"):
                self.say((*path, "litellm_params", name), Fate.KEPT, "retry.attempts")
        sampling = {name: params[name] for name in SAMPLING if name in params}
        if sampling:
            route["compose"] = {"sampling": route.get("compose", {}).get("sampling", {}) | sampling}
            for name in sampling:
                self.say((*path, "litellm_params", name), Fate.CHANGED, "compose.sampling of the route, for all of its targets")
        if "order" in params:
            self.say((*path, "litellm_params", "order"), Fate.CHANGED, "targets are tried in the order in which they stand")


def reference(value: Any) -> Any:
    """Return a value as ours spells it: `os.environ/NAME` is `${NAME}`."""
    if isinstance(value, str) and value.startswith(ENVIRONMENT):
        return f"${{{value.removeprefix(ENVIRONMENT)}}}"
    return value if value is None else str(value)


def number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value)  # LiteLLM takes "1e-6" as text too
    except (TypeError, ValueError):
        return None
    whole = int(number) if number.is_integer() else number
    return whole if number >= 0 else None


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_") or "PROVIDER"


def printable(name: str) -> str:
    return re.sub(r"[^ -~]+", "-", name).strip() or "route"


def _with_v1(url: str) -> str:
    return url if url.rstrip("/").endswith("/v1") else url.rstrip("/") + "/v1"
