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
    cache_expected_tokens: int | None = None
    cache_reported_tokens: int | None = None
    miss_cause: str | None = None
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
