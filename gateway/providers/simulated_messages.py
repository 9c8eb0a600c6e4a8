"""The simulated provider as Anthropic has it: `POST /v1/messages` and `count_tokens`, its marks, its strictness, its stream.

The state, the faults and the cache are those of `simulated`; what is new is how a body is checked, rendered and answered.
Thinking is signed, and a signature that is not of its text is refused, as it is for an edited block at Anthropic.
Source: reference, openai-wire, section 10, and provider-caching, section 4.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gateway.providers import simulated_rules as rules
from gateway.providers.simulated import Application, Receive, Send, SimulatedProvider, send_json
from gateway.providers.simulated_answers import fill, pieces
from gateway.providers.simulated_cache import MEDIA_TOKENS, MESSAGE_TOKENS, TOOL_TOKENS, Block, Count
from gateway.providers.simulated_rules import Refusal

FIELDS = frozenset(
    ("model", "messages", "max_tokens", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control",
     "stop_sequences", "stream", "metadata", "service_tier", "speed", "container", "inference_geo", "diagnostics",
     "temperature", "top_p", "top_k", "context_management", "mcp_servers")
)  # fmt: skip
UNMARKED = ("thinking", "redacted_thinking")  # never hold a cache mark
TYPES = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error",
         500: "api_error", 529: "overloaded_error"}  # fmt: skip


def signature(thinking: str) -> str:
    """Return what this provider signs a thinking text with."""
    return "Eq" + hashlib.sha256(thinking.encode()).hexdigest()


def app(provider: SimulatedProvider) -> "MessagesApplication":
    """Return the ASGI application that serves this provider's models as Anthropic would."""
    return MessagesApplication(provider)


class MessagesApplication(Application):
    """HTTP around a provider, in Anthropic's dialect. Its models should cache by `marks`."""

    path = "/v1/messages"

    async def _route(self, method: str, path: str, headers: Mapping[str, str], raw: bytes, receive: Receive, send: Send) -> None:
        if "anthropic-version" not in headers and path.startswith(self.path):
            raise Refusal("anthropic-version: header is required")
        given = headers.get("x-api-key")  # in either style
        headers = {**headers, "authorization": f"Bearer {given}"} if given else headers
        if (method, path) == ("POST", self.path + "/count_tokens"):
            self.provider.authorise(headers)
            await send_json(send, {"input_tokens": self._count(raw)})
            return
        await super()._route(method, path, headers, raw, receive, send)

    def envelope(self, refusal: Refusal) -> dict[str, Any]:
        kind = TYPES.get(refusal.status, "api_error" if refusal.status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": refusal.message}, "request_id": "req_simulated"}

    def error_event(self, refusal: Refusal) -> bytes:
        return _event(self.envelope(refusal))

    def _count(self, raw: bytes) -> int:
        body = rules.parse(raw)
        return sum(block.tokens for block in render(body, self._counting(body))) + MESSAGE_TOKENS

    def _counting(self, body: Mapping[str, Any]) -> Callable[[str], int]:
        name = body.get("model")
        if not isinstance(name, str) or name not in self.provider.models:
            raise Refusal(f"model: {name}", status=404)
        return self.provider.counts[name]

    def answer(self, raw: bytes) -> tuple[dict[str, Any], Iterator[bytes] | None]:
        body, provider = rules.parse(raw), self.provider
        count = self._counting(body)
        check(body)
        model = provider.models[body["model"]]
        blocks = render(body, count)
        prompt = sum(block.tokens for block in blocks) + MESSAGE_TOKENS
        if prompt > model.window_tokens:
            raise Refusal(f"prompt is too long: {prompt} tokens > {model.window_tokens} maximum")
        hit = provider.caches[body["model"]].use("", blocks, provider.clock())
        provider.served += 1
        content = list(((provider.script and provider.script(body)) or {}).get("content") or _default(body))
        output = max(1, sum(count(_said(block)) for block in content))
        cut = output > body["max_tokens"]
        usage = {
            "input_tokens": prompt - hit.cached - hit.written,
            "cache_read_input_tokens": hit.cached,
            "cache_creation_input_tokens": hit.written,
            "cache_creation": {"ephemeral_5m_input_tokens": hit.written, "ephemeral_1h_input_tokens": 0},
            "output_tokens": min(output, body["max_tokens"]),
        }
        calls = any(block["type"] == "tool_use" for block in content)
        whole = {
            "id": f"msg_simulated{provider.served}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": "max_tokens" if cut else "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": usage,
        }
        return whole, events(whole) if body.get("stream") else None


def check(body: Mapping[str, Any]) -> None:
    """Refusal where Anthropic would refuse the body."""
    for name in body:
        if name not in FIELDS:
            raise Refusal(f"{name}: Extra inputs are not permitted")
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        raise Refusal("max_tokens: Field required")
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        raise Refusal("messages: at least one message is required")
    if body["messages"][0].get("role") != "user":
        raise Refusal("messages: first message must use the user role")
    marks = 0
    for block in (*(body.get("tools") or ()), *_parts(body.get("system"))):
        marks += _mark(block)
    waiting: list[str] = []
    for at, message in enumerate(body["messages"]):
        waiting, marked = _turn(message, waiting, f"messages.{at}")
        marks += marked
    if waiting:
        raise Refusal("messages: `tool_use` ids were found without `tool_result` blocks immediately after: " + ", ".join(waiting))
    if marks + ("cache_control" in body) > rules.MAXIMUM_MARKS:
        raise Refusal(f"A maximum of {rules.MAXIMUM_MARKS} blocks with cache_control may be provided. Found {marks}.")


def _turn(message: Mapping[str, Any], waiting: Sequence[str], where: str) -> tuple[list[str], int]:
    """Check one turn; return the calls that wait for the next one, and the marks."""
    role, blocks = message.get("role"), _parts(message.get("content"))
    if role not in ("user", "assistant", "system") or message.keys() - {"role", "content"}:
        raise Refusal(f"{where}: Extra inputs are not permitted")
    if not blocks and role != "assistant":
        raise Refusal(f"{where}: user messages must have non-empty content")
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    if sorted(results) != sorted(waiting):
        raise Refusal(f"{where}: `tool_use` ids and `tool_result` blocks must match: {sorted(waiting)} and {sorted(results)}")
    if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
        raise Refusal(f"{where}: tool_result blocks must come first")
    for block in blocks:
        if block["type"] == "text" and not block["text"].strip():
            raise Refusal(f"{where}: text content blocks must be non-empty")
        if block["type"] == "thinking" and block.get("signature") != signature(block["thinking"]):
            raise Refusal(f"{where}: Invalid `signature` in `thinking` block")
        if block["type"] in UNMARKED and "cache_control" in block:
            raise Refusal(f"{where}: cache_control cannot be set for thinking blocks")
    return [block["id"] for block in blocks if block["type"] == "tool_use"], sum(map(_mark, blocks))


def _mark(block: Mapping[str, Any]) -> int:
    if "cache_control" in block and block.get("type") == "text" and not block["text"]:
        raise Refusal("cache_control cannot be set for empty text blocks")
    return "cache_control" in block


def _parts(content: Any) -> list[Mapping[str, Any]]:
    if content is None:
        return []
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def render(body: Mapping[str, Any], count: Count) -> list[Block]:
    """Return the prompt as Anthropic reads it: tools, system, turns. Settings that lose only the turns stand before those."""
    made = [_block("tool", tool, count, TOOL_TOKENS) for tool in body.get("tools") or ()]
    made += [_block("system", part, count) for part in _parts(body.get("system"))]
    settings = json.dumps([body.get(name) for name in ("tool_choice", "thinking", "output_config")])
    made.append(Block(text=settings, tokens=0))
    before = ""
    for message in body["messages"]:
        for part in _parts(message["content"]):
            kind = part["type"]
            extra = MESSAGE_TOKENS if before != message["role"] else 0
            made.append(_block(message["role"], part, count, extra, joined=kind == before and kind in ("tool_use", "tool_result")))
            before = kind if kind in ("tool_use", "tool_result") else message["role"]
    if "cache_control" in body and made:
        last = made[-1]
        made[-1] = Block(text=last.text, tokens=last.tokens, marked=True, joined=last.joined)
    return made


def _block(role: str, part: Mapping[str, Any], count: Count, extra: int = 0, *, joined: bool = False) -> Block:
    bare = {name: value for name, value in part.items() if name != "cache_control"}
    text, media = json.dumps([role, bare], ensure_ascii=False), 0
    if bare.get("type") in ("image", "document"):
        text, media = f"{role}[{bare['type']} {hashlib.sha256(text.encode()).hexdigest()[:16]}]", MEDIA_TOKENS
    elif bare.get("type") == "text":
        text = f"{role}\n{bare['text']}"
    return Block(text=text, tokens=count(text) + media + extra, marked="cache_control" in part, joined=joined)


def _default(body: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Yield blocks that depend on the body alone: thinking where it is on, a call where one is demanded, else a text."""
    if (body.get("thinking") or {}).get("type") in ("enabled", "adaptive"):
        thought = f"There are {len(body['messages'])} turns."
        yield {"type": "thinking", "thinking": thought, "signature": signature(thought)}
    choice, tools = body.get("tool_choice") or {}, body.get("tools") or ()
    forced = next((tool for tool in tools if choice.get("type") == "any" or tool["name"] == choice.get("name")), None)
    if forced is not None:
        made = fill(forced.get("input_schema") or {})
        yield {"type": "tool_use", "id": "toolu_simulated", "name": forced["name"], "input": made}
    else:
        yield {"type": "text", "text": f"This is a simulated answer to {len(body['messages'])} turns."}


def _said(block: Mapping[str, Any]) -> str:
    return str(block.get("text") or block.get("thinking") or json.dumps(block.get("input", "")))


def events(whole: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield a whole message as the events of its stream."""
    usage = {**whole["usage"], "output_tokens": 1}
    yield _event({"type": "message_start", "message": {**whole, "content": [], "stop_reason": None, "usage": usage}})
    yield _event({"type": "ping"})
    for index, block in enumerate(whole["content"]):
        empty, deltas = _deltas(block)
        yield _event({"type": "content_block_start", "index": index, "content_block": empty})
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": whole["usage"]["output_tokens"]}})
    yield _event({"type": "message_stop"})


def _deltas(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
    if block["type"] == "thinking":
        thought = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
        return {**block, "thinking": "", "signature": ""}, [*thought, {"type": "signature_delta", "signature": block["signature"]}]
    if block["type"] == "tool_use":
        made = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(json.dumps(block["input"]))]
        return {**block, "input": {}}, made
    return dict(block), []


def _event(value: Mapping[str, Any]) -> bytes:
    return f"event: {value['type']}\ndata: ".encode() + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"
