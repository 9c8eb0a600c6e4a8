"""Prompt caches as providers keep them, and the rendering of a body into the text that they see: content alone counts.

White space between JSON tokens, the order in which two requests came, and the client's own idea of a session do not
matter; one changed character does, and everything behind it is lost. Owns no clock: the moment is an argument.
"""

import bisect
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

LOOK_BACK = 20  # positions that a mark's read walks back; source: reference, provider-caching, section 4
MAXIMUM_NODES = 200_000  # then the whole cache is dropped, as a provider under pressure evicts: memory stays bounded

MESSAGE_TOKENS, TOOL_TOKENS = 4, 8  # what the frame around one message or tool costs beside its text
MEDIA_TOKENS, LOW_DETAIL_TOKENS = 1_105, 85  # flat prices; a data URL is never counted as text
FIRST = ("role", "name", "tool_call_id", "content", "tool_calls")  # the rest of a message follows in its own order

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One position of a rendered prompt. `tokens` is what it counts; `marked`: a cache mark stands at its end.

    `joined`: it belongs to the same position as the block before it (a run of calls' results counts as one).
    """

    text: str
    tokens: int
    marked: bool = False
    joined: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """Tokens read from the cache and tokens written to it."""

    cached: int = 0
    written: int = 0


class Cache(Protocol):
    """One model's cache."""

    def use(self, scope: str, blocks: Sequence[Block], now: float) -> Hit:
        """Return what this prompt finds, and keep what it leaves behind. `scope` parts prompts that never share."""
        ...


@dataclass(slots=True)
class _Node:
    """What may follow one prefix: the texts in order, and the node behind each. `until` is when the text itself expires."""

    until: float = 0.0
    texts: list[str] = field(default_factory=list)
    nodes: dict[str, "_Node"] = field(default_factory=dict)


class PrefixCache:
    """Finds the longest common prefix with any prompt used within the lifetime, to the character.

    The tokens of that prefix are rounded down to `step`; below `minimum` nothing is cached. Automatic caches (128 and
    1,024) and block caches (64 and 64) differ in those numbers alone: a hash chain over fixed blocks ends where the
    common prefix, rounded down to whole blocks, ends.
    """

    def __init__(self, *, step: int, minimum: int, ttl_s: float, count: Count) -> None:
        self._step, self._minimum, self._ttl_s, self._count = step, minimum, ttl_s, count
        self._scopes: dict[str, _Node] = {}
        self._size = 0

    def use(self, scope: str, blocks: Sequence[Block], now: float) -> Hit:
        if self._size > MAXIMUM_NODES:
            self._scopes.clear()
            self._size = 0
        node, shared, common = self._scopes.setdefault(scope, _Node()), True, 0
        for block in blocks:
            found = node.nodes.get(block.text)
            if shared and (found is None or found.until <= now):
                shared = False
                common += min(block.tokens, self._partial(node, block.text, now))
            elif shared:
                common += block.tokens
            node = self._keep(node, block.text, found, now)
        cached = common // self._step * self._step
        return Hit(cached=cached if cached >= self._minimum else 0)

    def _keep(self, node: _Node, text: str, found: _Node | None, now: float) -> _Node:
        if found is None:
            found = node.nodes[text] = _Node()
            bisect.insort(node.texts, text)
            self._size += 1
        found.until = now + self._ttl_s
        return found

    def _partial(self, node: _Node, text: str, now: float) -> int:
        """Return the tokens of the longest common start with a living sibling: among sorted texts, a neighbour has it."""
        at = bisect.bisect_left(node.texts, text)
        ahead = (node.texts[i] for i in range(at, len(node.texts)))
        behind = (node.texts[i] for i in range(at - 1, -1, -1))
        near = (_living(node, side, now) for side in (ahead, behind))
        longest = max((common_length(text, other) for other in near if other), default=0)
        return self._count(text[:longest]) if longest else 0


def _living(node: _Node, texts: Iterator[str], now: float) -> str | None:
    return next((text for text in texts if node.nodes[text].until > now), None)


def common_length(one: str, other: str) -> int:
    """Return how many characters two texts share from their start. Halving: fifteen comparisons for 16 KB."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class MarkCache:
    """Writes only where a mark stands; each mark's read walks back at most 20 positions. Source: reference, section 4.

    A prefix below `minimum` is silently not cached. What a mark newly covers is written; a read refreshes the lifetime.
    """

    def __init__(self, *, minimum: int, ttl_s: float) -> None:
        self._minimum, self._ttl_s = minimum, ttl_s
        self._until: dict[bytes, float] = {}

    def use(self, scope: str, blocks: Sequence[Block], now: float) -> Hit:
        if len(self._until) > MAXIMUM_NODES:
            self._until.clear()
        ends = list(_ends(scope, blocks))
        marks = [at for at, block in enumerate(blocks) if block.marked and ends[at][1] >= self._minimum]
        cached = max((self._read(blocks, ends, mark, now) for mark in marks), default=0)
        for mark in marks:
            self._until[ends[mark][0]] = now + self._ttl_s
        written = max((ends[mark][1] for mark in marks), default=0)
        return Hit(cached=cached, written=max(0, written - cached))

    def _read(self, blocks: Sequence[Block], ends: Sequence[tuple[bytes, int]], mark: int, now: float) -> int:
        walked = 0
        for at in range(mark, -1, -1):
            chain, tokens = ends[at]
            if self._until.get(chain, 0.0) > now:
                self._until[chain] = now + self._ttl_s
                return tokens
            walked += not blocks[at].joined
            if walked > LOOK_BACK:
                break
        return 0


def _ends(scope: str, blocks: Sequence[Block]) -> Iterator[tuple[bytes, int]]:
    """Yield the chain digest and the tokens up to the end of each block."""
    chain, tokens = hashlib.sha256(scope.encode()).digest(), 0
    for block in blocks:
        chain = hashlib.sha256(chain + hashlib.sha256(block.text.encode()).digest()).digest()
        tokens += block.tokens
        yield chain, tokens


class NoCache:
    """Keeps nothing."""

    def use(self, scope: str, blocks: Sequence[Block], now: float) -> Hit:
        return Hit()


def scope_of(body: Mapping[str, Any]) -> str:
    """Return what parts caches beside the prompt: a change of these loses all. Source: reference, provider-caching, section 2."""
    return json.dumps([body.get(name) for name in ("response_format", "parallel_tool_calls", "reasoning_effort", "verbosity")])


def render(body: Mapping[str, Any], count: Count) -> list[Block]:
    """Return the prompt as a model would read it: tools, then messages, each block with its tokens."""
    blocks = [_tool(tool, count) for tool in body.get("tools") or ()]
    if body.get("response_format"):
        text = _compact(body["response_format"])
        blocks.append(Block(text=text, tokens=count(text)))
    before = ""
    for message in body["messages"]:
        blocks += _message(message, count, joined=before == "tool" == message["role"])
        before = message["role"]
    return blocks


def _tool(tool: Mapping[str, Any], count: Count) -> Block:
    text = _compact(_unmarked(tool))
    return Block(text=text, tokens=count(text) + TOOL_TOKENS, marked="cache_control" in tool)


def _message(message: Mapping[str, Any], count: Count, *, joined: bool) -> Iterator[Block]:
    """Yield a message's blocks: its frame goes with its first content part, its calls with the last."""
    content = message.get("content")
    parts: list[Any] = content if isinstance(content, list) and content else [content]
    names = [name for name in FIRST[:3] if name in message]
    lead = "\n" + "\n".join(str(message[name]) for name in names) + "\n"
    rest = "".join(f"{name}:{_compact(value)}" for name, value in message.items() if name not in (*FIRST, "cache_control"))
    trail = "".join(_call(call) for call in message.get("tool_calls") or ()) + rest
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        written, media = _part(part)
        text = (lead if at == 0 else "\n") + written + (trail if last else "")
        marked = (isinstance(part, dict) and "cache_control" in part) or (last and "cache_control" in message)
        counted = count(text) + media + (MESSAGE_TOKENS if at == 0 else 0)
        yield Block(text=text, tokens=counted, marked=marked, joined=joined and at == 0)


def _part(part: Any) -> tuple[str, int]:
    """Return a content part as text, and the flat price of its media. A string and one text part read the same."""
    if part is None or isinstance(part, str):
        return part or "", 0
    if part.get("type") in ("text", "refusal"):
        return str(part[part["type"]]), 0
    raw = _compact(_unmarked(part))
    low = isinstance(part.get("image_url"), dict) and part["image_url"].get("detail") == "low"
    return f"[{part['type']} {hashlib.sha256(raw.encode()).hexdigest()[:16]}]", LOW_DETAIL_TOKENS if low else MEDIA_TOKENS


def _call(call: Mapping[str, Any]) -> str:
    inner = call.get("function") or call.get("custom") or {}
    return f"\n{call['id']}\n{inner.get('name')}\n{inner.get('arguments', inner.get('input', ''))}"


def _unmarked(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: inner for name, inner in value.items() if name not in ("cache_control", "prompt_cache_breakpoint")}


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
