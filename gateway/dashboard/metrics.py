"""What the dashboard shows, as a pure fold over the ledger's records. No clock, no I/O: the same records, the same figures.

The state is bounded whatever the ledger holds: a few hundred buckets of time at each of four widths, in each the figures
of every route, target and key. It is a value: `dumps` and `loads` carry it over a restart, and the fold goes on with the
next record. Figures only add up, so several gateways may write in any interleaving.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

import msgspec

from gateway.ledger.records import CallFinished, CompactionApplied, Outcome, PromptComposed, Record

VERSION = 1  # of the state's shape: an older one is not read, the fold begins anew
WIDTHS = ((60, 420), (900, 200), (3_600, 200), (86_400, 400))  # seconds a bucket, buckets kept: seven hours to a year
SERIES = 300  # of one bucket; what comes beyond is counted under OTHER, so that made-up names cannot fill the memory
WORST = 3  # misses kept of each cause: the most expensive
LATEST = 1_000  # calls kept for the live log
UNDERWAY = 10_000  # prompts, requests and lineages remembered; the oldest are let go
ATTEMPTS = 15  # remembered of one request, beside the newest
WORDS = 24  # different reasons and causes counted for each series
OTHER = "(other)"
PASSTHROUGH = "passthrough"  # its targets name the address, ids and all: the first part tells enough

Key = tuple[str, str, str]
"""Route, target, name of the caller's key."""
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, order=True)
class Miss:
    """One call that found less in the cache than was expected; ordered by its cost. `before` is the prompt it is compared to."""

    usd: float
    tokens: int
    snapshot_id: str
    before: str
    cause: str
    route: str
    target: str
    key: str
    at: datetime


@dataclass(slots=True)
class Missed:
    """Misses of one cause: how many, what they cost in tokens read anew and in USD, and the most expensive, that one first."""

    count: int = 0
    tokens: int = 0
    usd: float = 0.0
    worst: list[Miss] = field(default_factory=list)

    def add(self, miss: Miss) -> None:
        self.count += 1
        self.tokens += miss.tokens
        self.usd += miss.usd
        if len(self.worst) < WORST or miss > self.worst[-1]:
            self.worst = heapq.nlargest(WORST, (*self.worst, miss))

    def merge(self, other: "Missed") -> None:
        self.count += other.count
        self.tokens += other.tokens
        self.usd += other.usd
        self.worst = heapq.nlargest(WORST, (*self.worst, *other.worst))


@dataclass(slots=True)
class Tally:
    """The figures of one route, target and key in one span of time. Tokens are as reported, USD where the price was known.

    `reported` calls said how much of their input came from a cache; `reported_input` and `reported_cached` are theirs alone.
    `unpriced` calls had usage but no cost. `saved_usd` is a counterfactual, over `compared` calls. `cut` prompts went out
    shortened; `compactions` are the times a boundary moved. `runway` figures are of prompts whose limit is known.
    """

    calls: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    input_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    output_tokens: int = 0
    reported: int = 0
    reported_input: int = 0
    reported_cached: int = 0
    expected_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0
    saved_usd: float = 0.0
    compared: int = 0
    prompts: int = 0
    runway_count: int = 0
    runway_sum: float = 0.0
    runway_max: float = 0.0
    cut: int = 0
    compactions: int = 0
    removed_tokens: int = 0
    misses: dict[str, Missed] = field(default_factory=dict)
    fallbacks: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def unreported(self) -> int:
        return self.calls - self.reported

    @property
    def hit_ratio(self) -> float | None:
        """Cached over input tokens of the calls that reported both; None when there is none: unknown is not zero."""
        return self.reported_cached / self.reported_input if self.reported_input else None

    @property
    def refusals(self) -> int:
        return self.outcomes.get(Outcome.REFUSED.value, 0)

    @property
    def runway_mean(self) -> float | None:
        """Estimate over limit, on average."""
        return self.runway_sum / self.runway_count if self.runway_count else None

    def merge(self, other: "Tally") -> None:
        """Add another's figures to these."""
        # Written out: ten thousand of these make one page, and a loop over names costs three times as much.
        self.calls += other.calls
        self.input_tokens += other.input_tokens
        self.cached_tokens += other.cached_tokens
        self.written_tokens += other.written_tokens
        self.output_tokens += other.output_tokens
        self.reported += other.reported
        self.reported_input += other.reported_input
        self.reported_cached += other.reported_cached
        self.expected_tokens += other.expected_tokens
        self.cost_usd += other.cost_usd
        self.unpriced += other.unpriced
        self.saved_usd += other.saved_usd
        self.compared += other.compared
        self.prompts += other.prompts
        self.runway_count += other.runway_count
        self.runway_sum += other.runway_sum
        self.cut += other.cut
        self.compactions += other.compactions
        self.removed_tokens += other.removed_tokens
        self.runway_max = max(self.runway_max, other.runway_max)
        _merge(self.outcomes, other.outcomes)
        _merge(self.fallbacks, other.fallbacks)
        _merge(self.reasons, other.reasons)
        for cause, missed in other.misses.items():
            self.misses.setdefault(cause, Missed()).merge(missed)


@dataclass(frozen=True, slots=True)
class Line:
    """One call of the live log. `shortened`: its prompt was cut to fit. Figures are None where they are not known."""

    snapshot_id: str
    at: datetime
    route: str
    target: str
    key: str
    outcome: str
    latency_s: float
    reason: str | None = None
    shortened: bool = False
    input_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    cause: str | None = None


@dataclass(slots=True)
class Thread:
    """The last prompt of a lineage to one target, and how far its history was cut."""

    snapshot_id: str = ""
    boundary: int = 0


@dataclass(slots=True)
class Totals:
    """The state of the fold. `widths` holds, for each of WIDTHS, the buckets by their first second.

    `plans` are prompts whose call has not ended: whether they were cut, and the prompt before them. `attempts` are the
    snapshots and targets of each request. All are in the order of appending.
    """

    records: int = 0
    newest: datetime | None = None
    widths: list[dict[int, dict[Key, Tally]]] = field(default_factory=lambda: [{} for _ in WIDTHS])
    latest: list[Line] = field(default_factory=list)
    plans: dict[str, tuple[bool, str]] = field(default_factory=dict)
    attempts: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    threads: dict[str, Thread] = field(default_factory=dict)

    def fold(self, records: Iterable[Record]) -> None:
        """Take more records in, in the order they were appended, each of them once. Never raises."""
        for record in records:
            self.records += 1
            if self.newest is None or record.at > self.newest:
                self.newest = record.at
            if isinstance(record, CallFinished):
                self._ended(record)
            elif isinstance(record, PromptComposed):
                self._composed(record)
            elif isinstance(record, CompactionApplied):
                self._compacted(record)

    def _composed(self, record: PromptComposed) -> None:
        thread = self._thread(record.lineage, record.target)
        shortened = record.compaction != "none"
        _keep(self.plans, record.id, (shortened, thread.snapshot_id))
        thread.snapshot_id = record.id
        attempts = self.attempts.get(record.request_id, [])
        before = attempts[-1][1] if attempts else record.target
        _keep(self.attempts, record.request_id, [*attempts[-ATTEMPTS:], (record.id, record.target)])
        estimate, limit = record.runway.get("estimate"), record.runway.get("limit")
        used = estimate / limit if estimate is not None and limit is not None and limit > 0 else None
        for tally in self._tallies(record, record.target):
            tally.prompts += 1
            tally.cut += shortened
            if used is not None:
                tally.runway_count += 1
                tally.runway_sum += used
                tally.runway_max = max(tally.runway_max, used)
        if before != record.target:
            for tally in self._tallies(record, before):
                _count(tally.fallbacks, record.target)

    def _compacted(self, record: CompactionApplied) -> None:
        target = record.scope.removeprefix("target:")
        thread = self._thread(record.lineage, target)
        moved = record.boundary > thread.boundary
        thread.boundary = max(record.boundary, thread.boundary)
        for tally in self._tallies(record, target):
            tally.compactions += moved
            tally.removed_tokens += max(record.before_tokens - record.after_tokens, 0)

    def _ended(self, record: CallFinished) -> None:
        shortened, before = self.plans.pop(record.snapshot_id, (False, ""))
        miss = _miss(record, before)
        for tally in self._tallies(record, record.target):
            _add(tally, record)
            if miss is not None:
                cause = miss.cause if miss.cause in tally.misses or len(tally.misses) < WORDS else OTHER
                tally.misses.setdefault(cause, Missed()).add(miss)
        self.latest.append(_line(record, shortened))
        if len(self.latest) >= 2 * LATEST:
            del self.latest[:-LATEST]

    def _thread(self, lineage: str, target: str) -> Thread:
        name = f"{lineage} {target}"
        thread = self.threads.pop(name, None) or Thread()
        _keep(self.threads, name, thread)
        return thread

    def _tallies(self, record: Record, target: str) -> list[Tally]:
        """Return where this record counts: one tally of each width."""
        second = int(record.at.timestamp())
        key = (record.route, _short(record.route, target), record.key)
        return [self._tally(at, second - second % width, key) for at, (width, _) in enumerate(WIDTHS)]

    def _tally(self, at: int, start: int, key: Key) -> Tally:
        buckets = self.widths[at]
        bucket = buckets.get(start)
        if bucket is None:
            bucket = buckets[start] = {}
            # By number and not by age: one gateway whose clock is a year ahead must not wipe out everybody's history.
            if len(buckets) > WIDTHS[at][1]:
                del buckets[min(buckets)]
        tally = bucket.get(key)
        if tally is None:
            if len(bucket) >= SERIES:
                key = (OTHER, OTHER, OTHER)
            tally = bucket.setdefault(key, Tally())
        return tally


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The fold's state, and the ledger's cursor behind the last record that is in it."""

    version: int
    cursor: str
    totals: Totals


def dumps(totals: Totals, cursor: str) -> bytes:
    """Return the state with its cursor as bytes."""
    return msgspec.msgpack.encode(Checkpoint(VERSION, cursor, totals))


def loads(data: bytes) -> tuple[Totals, str] | None:
    """Return what `dumps` was given; None when it is of another version or cannot be read: the fold begins anew then."""
    try:
        found = msgspec.msgpack.decode(data, type=Checkpoint)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    whole = found.version == VERSION and len(found.totals.widths) == len(WIDTHS)
    return (found.totals, found.cursor) if whole else None


def _add(tally: Tally, record: CallFinished) -> None:
    tally.calls += 1
    _count(tally.outcomes, record.outcome.value)
    tally.expected_tokens += record.cache_expected_tokens or 0
    tally.cost_usd += record.cost_usd or 0.0
    if record.saved_usd is not None:
        tally.saved_usd += record.saved_usd
        tally.compared += 1
    usage = record.usage
    if usage is not None:
        tally.input_tokens += usage.input_tokens or 0
        tally.cached_tokens += usage.cached_tokens or 0
        tally.written_tokens += usage.written_tokens or 0
        tally.output_tokens += usage.output_tokens or 0
        tally.unpriced += record.cost_usd is None
        if usage.input_tokens is not None and usage.cached_tokens is not None and not record.usage_estimated:
            tally.reported += 1
            tally.reported_input += usage.input_tokens
            tally.reported_cached += usage.cached_tokens
    if record.reason and record.outcome not in (Outcome.COMPLETED, Outcome.CLIENT_CLOSED):
        _count(tally.reasons, record.reason.partition(":")[0])


def _miss(record: CallFinished, before: str) -> Miss | None:
    if record.miss_cause is None:
        return None
    lost = record.miss_tokens
    if lost is None:  # records from before the cache was diagnosed
        lost = max((record.cache_expected_tokens or 0) - (record.cache_reported_tokens or 0), 0)
    return Miss(
        usd=record.miss_usd or 0.0,
        tokens=lost,
        snapshot_id=record.snapshot_id,
        before=record.miss_against or before,
        cause=record.miss_cause,
        route=record.route,
        target=record.target,
        key=record.key,
        at=record.at,
    )


def _line(record: CallFinished, shortened: bool) -> Line:
    usage = record.usage
    return Line(
        snapshot_id=record.snapshot_id or record.id,
        at=record.at,
        route=record.route,
        target=record.target,
        key=record.key,
        outcome=record.outcome.value,
        latency_s=record.latency_s,
        reason=record.reason,
        shortened=shortened,
        input_tokens=usage.input_tokens if usage else None,
        cached_tokens=usage.cached_tokens if usage else None,
        output_tokens=usage.output_tokens if usage else None,
        cost_usd=record.cost_usd,
        cause=record.miss_cause,
    )


def _short(route: str, target: str) -> str:
    return "/".join(target.split("/", 2)[:2]) if route == PASSTHROUGH else target


def _count(counts: dict[str, int], word: str) -> None:
    if word not in counts and len(counts) >= WORDS:
        word = OTHER
    counts[word] = counts.get(word, 0) + 1


def _merge(counts: dict[str, int], more: dict[str, int]) -> None:
    for word, count in more.items():
        counts[word] = counts.get(word, 0) + count


def _keep(memory: dict[K, V], name: K, value: V) -> None:
    memory[name] = value
    if len(memory) > UNDERWAY:
        del memory[next(iter(memory))]
