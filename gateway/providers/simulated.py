"""A provider to test against, shipped: OpenAI-shaped, strict about what it takes, with a window and a prompt cache that work.

`app(SimulatedProvider(...))` is a plain ASGI application. It answers `POST /v1/chat/completions` and `GET /v1/models`;
`POST /control` queues faults and `GET /calls` lists what came. What the rules are stands in `simulated_rules`, how a
prompt is rendered and cached in `simulated_cache`; here is the order of things: key, body, model, rules, window, answer.
"""

import asyncio
import hashlib
import hmac
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Literal, get_args

import uvicorn

from gateway.providers import simulated_rules as rules
from gateway.providers import tokenizers
from gateway.providers.simulated_answers import Answer, chunks, completion, default_message
from gateway.providers.simulated_cache import MESSAGE_TOKENS, Cache, Hit, MarkCache, NoCache, PrefixCache, render, scope_of
from gateway.providers.simulated_rules import Refusal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Kind = Literal["status", "delay", "reset", "hang", "garbage", "truncated", "error_event", "overflow"]

STEPS = {"automatic": (128, 1_024), "blocks": (64, 64), "marks": (1, 1_024), "none": (1, 1)}  # step and minimum in tokens
KEPT_BODY_BYTES = 1_000_000  # of each call's body; digests are of the whole
KEPT_BYTES = 256_000_000  # of all bodies together
KEPT_CALLS = 50_000
KEPT_COUNTS = 50_000
SECRET = frozenset({"authorization", "x-api-key", "api-key", "cookie"})
HANG_S = 3_600.0
CHAT, MODELS = "/v1/chat/completions", "/v1/models"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedModel:
    """One model: a window shared by prompt and output, an output limit, and how it caches. None: the kind's own figures."""

    window_tokens: int
    output_limit: int
    cache: Literal["automatic", "marks", "blocks", "none"] = "automatic"
    step: int | None = None
    minimum_tokens: int | None = None
    ttl_s: float = 300.0
    tokenizer: str = "o200k_base"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong with one chat call. `status` is answered before the body is looked at; the others spoil a good answer.

    `delay_s` waits before anything else; `after_chunks` is how many events of a stream come through first.
    """

    kind: Kind
    status: int = 503
    code: str | None = None
    retry_after_s: float | None = None
    delay_s: float = 0.0
    after_chunks: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request that came, `sha256` of its whole body. Of secret headers only the SHA-256 is kept, of the body a bounded part."""

    path: str
    headers: Mapping[str, str]
    sha256: str
    body: bytes


@dataclass(slots=True, kw_only=True)
class _Counts:
    """A count that looks at each text once."""

    count: Callable[[str], int]
    known: dict[str, int] = field(default_factory=dict)

    def __call__(self, text: str) -> int:
        found = self.known.get(text)
        if found is None:
            if len(self.known) >= KEPT_COUNTS:
                self.known.clear()
            found = self.known[text] = self.count(text)
        return found


class SimulatedProvider:
    """The state of one simulated provider: its models with their caches, the faults to come, the calls that came.

    `script` may give the assistant message for a body (None: no opinion), then the body's `metadata.simulated_message`
    (JSON of one), then `answer`. `api_key` None: any key, or none, is taken. `count` counts for every model in place of
    the model's own tokenizer.
    """

    def __init__(
        self,
        models: Mapping[str, SimulatedModel],
        *,
        clock: Callable[[], float] = time.monotonic,
        count: Callable[[str], int] | None = None,
        answer: Callable[[Mapping[str, Any]], Mapping[str, Any]] = default_message,
        script: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] | None = None,
        api_key: str | None = None,
        lenient: bool = False,
    ) -> None:
        self.models, self.clock, self.answer, self.script = dict(models), clock, answer, script
        self.api_key, self.lenient = api_key, lenient
        self.counts = {
            name: _Counts(count=count or partial(tokenizers.count, model.tokenizer)) for name, model in self.models.items()
        }
        self.caches = {name: self._cache(model, self.counts[name]) for name, model in self.models.items()}
        self.faults: deque[Fault] = deque()
        self.calls: list[Call] = []
        self._kept_bytes = 0
        self.refused = 0
        self.served = 0

    def _cache(self, model: SimulatedModel, count: Callable[[str], int]) -> Cache:
        step, minimum = STEPS[model.cache]
        minimum = minimum if model.minimum_tokens is None else model.minimum_tokens
        if model.cache == "none":
            return NoCache()
        if model.cache == "marks":
            return MarkCache(minimum=minimum, ttl_s=model.ttl_s)
        return PrefixCache(step=model.step or step, minimum=minimum, ttl_s=model.ttl_s, count=count)

    def note(self, path: str, headers: Mapping[str, str], raw: bytes) -> None:
        """Keep what came, before anything is decided about it; the oldest calls make room when there are too many."""
        kept = {name: hashlib.sha256(value.encode()).hexdigest() if name in SECRET else value for name, value in headers.items()}
        body = raw[:KEPT_BODY_BYTES] if self._kept_bytes < KEPT_BYTES else b""
        self._kept_bytes += len(body)
        self.calls.append(Call(path=path, headers=kept, sha256=hashlib.sha256(raw).hexdigest(), body=body))
        if len(self.calls) > KEPT_CALLS:
            self._kept_bytes -= sum(len(call.body) for call in self.calls[: KEPT_CALLS // 10])
            del self.calls[: KEPT_CALLS // 10]

    def authorise(self, headers: Mapping[str, str]) -> None:
        """Return when the caller's key is the provider's, or when it has none; Refusal 401 otherwise."""
        if self.api_key is None:
            return
        given = headers.get("authorization", "").removeprefix("Bearer ")
        if not given:
            raise Refusal("You didn't provide an API key.", status=401)
        if not hmac.compare_digest(given.encode(), self.api_key.encode()):
            raise Refusal("Incorrect API key provided.", code="invalid_api_key", status=401)

    def complete(self, raw: bytes) -> Answer:
        """Return the answer to a chat body, its prompt now in the cache; Refusal where a provider would refuse it."""
        body = rules.parse(raw)
        name = body.get("model")
        if not isinstance(name, str) or not name:
            raise Refusal("you must provide a model parameter")
        model = self.models.get(name)
        if model is None:
            raise Refusal(f"The model `{name}` does not exist or you do not have access to it.", code="model_not_found", status=404)
        rules.check(body, output_limit=model.output_limit, marks=model.cache == "marks", lenient=self.lenient)
        count = self.counts[name]
        blocks = render(body, count)
        prompt = sum(block.tokens for block in blocks) + MESSAGE_TOKENS
        room = self._room(model, prompt, rules.requested_output(body))
        hit = self.caches[name].use(scope_of(body), blocks, self.clock())
        self.served += 1
        return Answer.make(self.served, body, self._message(body), self._usage(model, prompt, hit), room, count)

    def _room(self, model: SimulatedModel, prompt: int, asked: int | None) -> int:
        """Return how many tokens the answer may take; Refusal when prompt and output do not share the window."""
        window = model.window_tokens
        if prompt + (asked or 1) <= window:
            return asked or min(model.output_limit, window - prompt)
        split = f"{prompt + asked} tokens ({prompt} in the messages, {asked} in the completion)" if asked else f"{prompt} tokens"
        raise Refusal(
            f"This model's maximum context length is {window} tokens. However, your messages resulted in {split}. "
            "Please reduce the length of the messages or completion.",
            param="messages",
            code="context_length_exceeded",
        )

    def _message(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        scripted = self.script(body) if self.script else None
        if scripted is not None:
            return scripted
        recorded = (body.get("metadata") or {}).get("simulated_message")
        if recorded is not None:
            return rules.parse(recorded.encode())
        return self.answer(body)

    def _usage(self, model: SimulatedModel, prompt: int, hit: Hit) -> dict[str, Any]:
        usage: dict[str, Any] = {"prompt_tokens": prompt}
        if model.cache != "none":
            usage["prompt_tokens_details"] = {"cached_tokens": hit.cached}
        if model.cache == "marks":
            usage["prompt_tokens_details"]["cache_write_tokens"] = hit.written
        return usage

    def control(self, raw: bytes) -> int:
        """Queue the faults of `{"faults": [{"kind": …, "times": 1, …}], "clear": false}`; returns how many wait."""
        body = rules.parse(raw)
        known = {each.name for each in fields(Fault)}
        if body.get("clear"):
            self.faults.clear()
        for given in body.get("faults", ()):
            times = given.pop("times", 1) if isinstance(given, dict) else 0
            if not times or not given.keys() <= known or given.get("kind") not in get_args(Kind):
                raise Refusal(f"a fault has {', '.join(sorted(known))} and times; kind is one of {', '.join(get_args(Kind))}")
            self.faults.extend([Fault(**given)] * times)
        return len(self.faults)


def app(provider: SimulatedProvider) -> "Application":
    """Return the ASGI application that serves this provider."""
    return Application(provider)


class Application:
    """HTTP around a provider. A fault that cuts the connection returns without ending the response: the server then cuts it."""

    path = CHAT  # where prompts are posted

    def __init__(self, provider: SimulatedProvider) -> None:
        self.provider = provider

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        raw = await _body(receive)
        if raw is None:
            return
        path, headers = scope["path"], {name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            await self._route(scope["method"], path, headers, raw, receive, send)
        except Refusal as refusal:
            self.provider.refused += 1
            await send_json(send, self.envelope(refusal), refusal.status)

    def envelope(self, refusal: Refusal) -> dict[str, Any]:
        """Return a refusal as the body of an answer."""
        return {"error": {"message": refusal.message, "type": refusal.type, "param": refusal.param, "code": refusal.code}}

    def error_event(self, refusal: Refusal) -> bytes:
        """Return a refusal as an event of a stream."""
        return b"data: " + json.dumps(self.envelope(refusal)).encode() + b"\n\n"

    def answer(self, raw: bytes) -> tuple[dict[str, Any], Iterator[bytes] | None]:
        """Return the answer to a prompt's body: whole, and as events where those were asked for."""
        answer = self.provider.complete(raw)
        return completion(answer), chunks(answer) if answer.stream else None

    async def _route(self, method: str, path: str, headers: Mapping[str, str], raw: bytes, receive: Receive, send: Send) -> None:
        provider = self.provider
        if (method, path) == ("POST", "/control"):
            await send_json(send, {"faults": provider.control(raw)})
        elif (method, path) == ("GET", "/calls"):
            await send_json(send, [{"path": call.path, "sha256": call.sha256} for call in provider.calls])
        elif (method, path) == ("POST", self.path):
            provider.note(path, headers, raw)
            provider.authorise(headers)
            await self._prompt(raw, provider.faults.popleft() if provider.faults else None, receive, send)
        elif method == "GET" and (path == MODELS or path.startswith(MODELS + "/")):
            provider.authorise(headers)
            await send_json(send, _models(provider, path.removeprefix(MODELS).strip("/")))
        else:
            raise Refusal(f"Invalid URL ({method} {path})", status=404)

    async def _prompt(self, raw: bytes, fault: Fault | None, receive: Receive, send: Send) -> None:
        if fault is not None:
            await asyncio.sleep(fault.delay_s)
            if await self._instead(fault, receive, send):
                return
        whole, events = self.answer(raw)
        if events is not None:
            await self._stream(send, events, fault)
        else:
            await self._plain(send, whole, fault)

    async def _instead(self, fault: Fault, receive: Receive, send: Send) -> bool:
        """Play a fault that needs no answer of ours; returns whether that was all."""
        if fault.kind == "status":
            refusal = Refusal(f"Simulated fault {fault.status}.", code=fault.code, status=fault.status)
            headers = {} if fault.retry_after_s is None else {"retry-after": f"{fault.retry_after_s:g}"}
            await send_json(send, self.envelope(refusal), fault.status, headers)
        elif fault.kind == "overflow":
            text = "Your input exceeds the context window of this model. Please adjust your input and try again."
            await send_json(send, self.envelope(Refusal(text, param="messages", code="context_length_exceeded")), 400)
        elif fault.kind == "hang":
            async with asyncio.timeout(HANG_S):
                while (await receive())["type"] != "http.disconnect":
                    pass
        else:
            return False
        return True

    async def _stream(self, send: Send, events: Iterator[bytes], fault: Fault | None) -> None:
        await _start(send, 200, {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"})
        for at, event in enumerate(events):
            if fault is not None and fault.kind != "delay" and at == fault.after_chunks:
                if fault.kind == "reset":
                    return
                if fault.kind != "truncated":
                    await send({"type": "http.response.body", "body": self._spoilt(fault), "more_body": True})
                break
            await send({"type": "http.response.body", "body": event, "more_body": True})
            await asyncio.sleep(0)  # each event is a write of its own, as a provider's is
        await send({"type": "http.response.body", "body": b""})

    def _spoilt(self, fault: Fault) -> bytes:
        if fault.kind == "garbage":
            return b"data: {not json\n\n"
        return self.error_event(Refusal("Simulated fault in the stream.", status=500))

    async def _plain(self, send: Send, whole: Mapping[str, Any], fault: Fault | None) -> None:
        kind = fault.kind if fault else "delay"
        body = json.dumps(whole, ensure_ascii=False).encode()
        if kind in ("reset", "truncated"):
            # Half of what the length promises: the server cuts the connection there.
            await _start(send, 200, {"content-type": "application/json", "content-length": str(len(body))})
            await send({"type": "http.response.body", "body": body[: len(body) // 2], "more_body": True})
        elif kind == "garbage":
            await _whole(send, b"<html>simulated garbage</html>", 200, {"content-type": "text/html"})
        elif kind == "error_event":
            await send_json(send, self.envelope(Refusal("Simulated fault in the answer.", status=500)))
        else:
            await _whole(send, body, 200, {"content-type": "application/json"})


def _models(provider: SimulatedProvider, name: str) -> dict[str, Any]:
    rows = [{"id": each, "object": "model", "created": 1, "owned_by": "simulated"} for each in provider.models]
    if not name:
        return {"object": "list", "data": rows}
    if name not in provider.models:
        raise Refusal(f"The model '{name}' does not exist", param="model", code="model_not_found", status=404)
    return next(row for row in rows if row["id"] == name)


async def _body(receive: Receive) -> bytes | None:
    """Return the whole body, None when the client left before its end."""
    pieces = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": kind + ".complete"})
        if kind == "lifespan.shutdown":
            return


async def _start(send: Send, status: int, headers: Mapping[str, str]) -> None:
    pairs = [(name.encode(), value.encode()) for name, value in {"x-request-id": "req_simulated", **headers}.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})


async def _whole(send: Send, body: bytes, status: int, headers: Mapping[str, str]) -> None:
    await _start(send, status, {**headers, "content-length": str(len(body))})
    await send({"type": "http.response.body", "body": body})


async def send_json(send: Send, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
    """Answer with this value as JSON."""
    await _whole(send, json.dumps(value).encode(), status, {"content-type": "application/json", **(headers or {})})


def start_in_thread(models: Mapping[str, SimulatedModel]) -> int:
    """Serve these models on a free port of 127.0.0.1, in a thread that ends with the process; returns the port."""
    listening = socket.create_server(("127.0.0.1", 0))
    port: int = listening.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app(SimulatedProvider(models)), log_config=None, access_log=False, ws="none"))
    threading.Thread(target=server.run, args=([listening],), name="simulated provider", daemon=True).start()
    return port
