"""The records, as values, in the order they happen. Names are the contract's; `codec` turns them into bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar

from gateway.cache.usage import Usage as Usage


class Outcome(StrEnum):
    COMPLETED = "completed"
    CLIENT_CLOSED = "client_closed"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    UPSTREAM_TRUNCATED = "upstream_truncated"
    OVERFLOW = "overflow"
    REFUSED = "refused"
    BUDGET = "budget"
    SNAPSHOT_UNAVAILABLE = "snapshot_unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Which bodies, joined in order, are one request or prompt: `head`, then the items, then `tail` (SHA-256 digests).

    `nodes` are bodies that hold the digests of 32 items each, from the first item on; `items` are the rest. `seams` is
    the body that lists what stands between items, None when that is a comma each time. See `codec.manifest`.
    """

    head: tuple[bytes, ...]
    nodes: tuple[bytes, ...]
    items: tuple[bytes, ...]
    tail: tuple[bytes, ...]
    seams: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What every record has. `id` sorts by time; `snapshot_id` groups the records of one attempt; `key` is the key's name."""

    id: str
    at: datetime
    snapshot_id: str = ""
    route: str = ""
    session: str = ""
    lineage: str = ""
    tenant: str = ""
    key: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptComposed(Common):
    """Before each attempt: everything a replay needs. Its `id` is its `snapshot_id`.

    `request` is the client's body, `prompt` what leaves; equal when nothing was changed. `policy` is the digest of the
    policy's body. `evidence` is JSON the pure core was told by the world (counting mode and, later, summaries). `runway`
    has estimate, limit, window, reserve in tokens (window None: unknown). `counted`: by tokenizer rather than by bytes.
    `cache_marks` are the marks in the prompt, the client's own with them. `counterfactual_tokens` as in `CallFinished`.
    """

    TYPE: ClassVar[str] = "PromptComposed"
    attempt: int
    target: str
    dialect: str
    request: Manifest
    prompt: Manifest
    prompt_digest: bytes
    prompt_bytes: int
    policy: bytes
    evidence: Mapping[str, Any] = field(default_factory=dict)
    runway: Mapping[str, int | None] = field(default_factory=dict)
    counted: bool = False
    compaction: str = "none"
    layout: Mapping[str, int] = field(default_factory=dict)
    cache_expected_tokens: int | None = None
    counterfactual_tokens: int | None = None
    cache_marks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionApplied(Common):
    """When anything was cut. `scope` is `route` or `target:PROVIDER/MODEL`; counts are of items, sizes in estimated tokens."""

    TYPE: ClassVar[str] = "CompactionApplied"
    scope: str
    strategy: str
    kept: int
    dropped: int
    pruned: int
    boundary: int
    before_tokens: int
    after_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFinished(Common):
    """After each attempt, always. `status` None: the provider never answered. `reply` is the digest of the reply's body.

    The reply's body is JSON {"text", "tool_calls", "finish_reason", "refusal"?}. `reason` says why an attempt gave way to
    another target. `cost_usd` None: the price or the usage is unknown. A refused request has no snapshot and no target.

    `cost_parts_usd` are its parts, `uncached`, `cached`, `written` and `output`; empty when the cost is unknown.
    Cached tokens that were expected and those reported are the provider's own tokens, None: not known. A miss has
    `miss_cause`, one of `cache.diagnose.Cause`. Where the prompt parts from an earlier one, `miss_against` is that
    snapshot's id, `miss_segment` (`tools`, `stable`, `semi`, `dynamic`) and `miss_item` say in which part and in which of
    its items, and `miss_offset` is the first byte of this prompt that differs; the text around it is rebuilt from the bodies.
    `miss_tokens` were lost, and cost `miss_usd` more than they would have. After a failover, that is the cold start.
    `counterfactual_tokens` would have been cached had the client's own request gone out; `saved_usd` is what that would
    have cost above what was paid, negative when it would have been cheaper. Both are simulated, None: not known.
    """

    TYPE: ClassVar[str] = "CallFinished"
    outcome: Outcome
    target: str = ""
    status: int | None = None
    latency_s: float = 0.0
    first_token_s: float | None = None
    usage: Usage | None = None
    usage_estimated: bool = False
    cost_usd: float | None = None
    cost_parts_usd: Mapping[str, float] = field(default_factory=dict)
    cache_expected_tokens: int | None = None
    cache_reported_tokens: int | None = None
    miss_cause: str | None = None
    miss_against: str | None = None
    miss_segment: str | None = None
    miss_item: int | None = None
    miss_offset: int | None = None
    miss_tokens: int | None = None
    miss_usd: float | None = None
    counterfactual_tokens: int | None = None
    saved_usd: float | None = None
    reply: bytes | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChanged(Common):
    TYPE: ClassVar[str] = "ConfigChanged"
    digest: str
    source: str


Record = PromptComposed | CompactionApplied | CallFinished | ConfigChanged


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Records that are written together, with every body that they need: all of it or nothing.

    `bodies` maps digest to bytes and holds every body named by the records, known to the store or not; an adapter
    sends only those it does not know to be there. `roots` are the digests the store must have for the entry to count
    as whole (a node stands for the items below it). `nodes` are those roots that are nodes: one that is new needs its
    items too. Bodies that no root leads to are written as well when there are no nodes. See `codec.entry`.
    """

    records: tuple[Record, ...]
    bodies: Mapping[bytes, bytes] = field(default_factory=dict)
    roots: tuple[bytes, ...] = ()
    nodes: tuple[bytes, ...] = ()
