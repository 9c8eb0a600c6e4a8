"""Asks a provider itself how large a model's window is: what the running server allocates, before any table.

One question a target, bounded by a deadline, away from the request path. Source: reference, model-windows, sections 1 and 5 to 9.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from gateway.providers.base import AttemptFailed, Outgoing, Upstream

DEADLINE_S = 2.0
ANSWER_BYTES = 8 << 20  # OpenRouter's list of models is some megabytes
SANE = range(256, 20_000_001)  # tokens; anything else is a slip of the server's, such as 0 or -1 for "not set"
# These say nothing of windows, so they are not asked.
SILENT = ("api.openai.com", "openai.azure.com", "api.deepseek.com", "aliyuncs.com", "api.x.ai", "api.together.xyz")

Open = Callable[[str], Upstream]  # an upstream for another base URL of the same provider, with its key


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a provider says of one model, in tokens; None: it does not say.

    `window` holds prompt and output together; `input_limit` is what the prompt alone may have, where that is less.
    """

    window: int | None = None
    input_limit: int | None = None
    output_limit: int | None = None


async def look_up(kind: str, base_url: str, model: str, open_: Open) -> Limits | None:
    """Return what the provider says of the model; None when it says nothing usable, or not within the deadline. Never raises."""
    asking = _Asking(open_)
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await _asked(kind, base_url, model, asking)
    except (TimeoutError, AttemptFailed):
        return None
    finally:
        await asking.close()


class _Asking:
    """GET and POST of small JSON to addresses of one provider."""

    def __init__(self, open_: Open) -> None:
        self._open = open_
        self._opened: list[Upstream] = []

    async def __call__(self, base: str, path: str, *, query: str = "", headers: tuple[tuple[str, str], ...] = ()) -> Any:
        """Return the answer's JSON; None for another status than 200, or for what is no JSON."""
        upstream = self._open(base)
        self._opened.append(upstream)
        reply = await upstream.send(Outgoing(path=path, method="GET", query=query, headers=headers))
        try:
            if reply.status != 200:
                return None
            return json.loads(await reply.read(ANSWER_BYTES))
        except ValueError:
            return None
        finally:
            await reply.close()

    async def close(self) -> None:
        for each in self._opened:
            await each.close()


async def _asked(kind: str, base: str, model: str, ask: _Asking) -> Limits | None:
    parts = urlsplit(base)
    host = parts.hostname or ""
    if host.endswith(SILENT):
        return None
    if kind == "anthropic":
        base = base.rstrip("/").removesuffix("/v1") + "/v1"
        return anthropic(await ask(base, f"models/{quote(model, safe='')}", headers=(("anthropic-version", "2023-06-01"),)))
    if host == "generativelanguage.googleapis.com":
        return gemini(
            await ask(base.rstrip("/").removesuffix("/openai"), f"models/{quote(model.removeprefix('models/'), safe='')}")
        )
    if host.endswith("openrouter.ai"):
        return openrouter(await ask(base, f"models/{quote(model, safe='/')}/endpoints"))
    entry = _entry(await ask(base, "models"), model)
    told = entry_limits(entry)
    root = f"{parts.scheme}://{parts.netloc}"
    owner = entry.get("owned_by")
    if owner == "llamacpp":
        return llamacpp(await ask(root, "props"))
    if owner == "organization_owner":
        return lm_studio(await ask(root, "api/v1/models"), model) or lm_studio_0(await ask(root, "api/v0/models"), model)
    if told is None and (owner == "library" or parts.port == 11434):
        return ollama(await ask(root, "api/ps"), model)
    return told


def entry_limits(entry: Mapping[str, Any]) -> Limits | None:
    """Return what an entry of `GET /v1/models` says: vLLM, SGLang, Groq, Mistral, Moonshot and their like.

    What the server allocates goes before what the model was trained for.
    """
    window = _first(entry, "max_model_len", "context_window", "context_length", "max_context_length")
    output = _first(entry, "max_completion_tokens", "max_output_tokens")
    return Limits(window=window, output_limit=output) if window else None


def anthropic(answer: object) -> Limits | None:
    """Return Anthropic's figures: `max_input_tokens` is the shared window, `max_tokens` the largest output limit."""
    found = _object(answer)
    window = _first(found, "max_input_tokens")
    return Limits(window=window, output_limit=_first(found, "max_tokens")) if window else None


def gemini(answer: object) -> Limits | None:
    """Return Gemini's figures: input and output are separate, so the window is their sum and the prompt has its own limit."""
    found = _object(answer)
    given, output = _first(found, "inputTokenLimit"), _first(found, "outputTokenLimit")
    if given is None or output is None:
        return None
    return Limits(window=given + output, input_limit=given, output_limit=output)


def openrouter(answer: object) -> Limits | None:
    """Return the least of the model's endpoints: the call may go to any of them. A limit of null is not known, not endless."""
    endpoints = [_object(each) for each in _list(_object(_object(answer).get("data")).get("endpoints"))]
    windows = [each for each in (_first(one, "context_length") for one in endpoints) if each]
    if not windows:
        return None
    prompts = [each for each in (_first(one, "max_prompt_tokens") for one in endpoints) if each]
    outputs = [each for each in (_first(one, "max_completion_tokens") for one in endpoints) if each]
    return Limits(window=min(windows), input_limit=min(prompts, default=None), output_limit=min(outputs, default=None))


def llamacpp(answer: object) -> Limits | None:
    """Return what one slot of llama.cpp holds: `n_ctx` is what is allocated, `n_ctx_train` only what the model could."""
    window = _first(_object(_object(answer).get("default_generation_settings")), "n_ctx")
    return Limits(window=window) if window else None


def ollama(answer: object, model: str) -> Limits | None:
    """Return what Ollama allocated for a loaded model; before its first call nothing is, and nothing is known."""
    names = (model, f"{model}:latest")
    loaded = (_object(each) for each in _list(_object(answer).get("models")))
    windows = (_first(each, "context_length") for each in loaded if each.get("name") in names or each.get("model") in names)
    window = next((each for each in windows if each), None)
    return Limits(window=window) if window else None


def lm_studio(answer: object, model: str) -> Limits | None:
    """Return what LM Studio loaded the model with: the least of its instances."""
    for each in map(_object, _list(_object(answer).get("models"))):
        instances = [_object(one) for one in _list(each.get("loaded_instances"))]
        if each.get("key") == model or any(one.get("id") == model for one in instances):
            windows = [window for one in instances if (window := _first(_object(one.get("config")), "context_length"))]
            return Limits(window=min(windows)) if windows else None
    return None


def lm_studio_0(answer: object, model: str) -> Limits | None:
    """Return the same from LM Studio's older list."""
    window = _first(_entry(answer, model), "loaded_context_length")
    return Limits(window=window) if window else None


def _entry(answer: object, model: str) -> Mapping[str, Any]:
    return next((each for each in map(_object, _list(_object(answer).get("data"))) if each.get("id") == model), {})


def _first(values: Mapping[str, Any], *names: str) -> int | None:
    """Return the first figure that is a sane number of tokens."""
    for name in names:
        value = values.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1 and int(value) in SANE:
            return int(value)
    return None


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else ()
