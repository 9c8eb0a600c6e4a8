"""What the dashboard shows, as a pure fold over the ledger's records. No clock, no I/O: the same records, the same figures."""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.ledger.records import CallFinished, PromptComposed, Record

LATEST = 50
AWAITED = 10_000  # plans whose call has not been seen; more are calls that never ended, and the oldest are let go


@dataclass(slots=True)
class Tally:
    """The calls of one route, or of one target of it.

    `reported` calls said how much of their input came from a cache; `reported_input` and `reported_cached` are theirs alone.
    Tokens are as reported, USD where the price was known. `unpriced` calls had usage but no cost.
    """

    calls: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
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

    @property
    def unreported(self) -> int:
        return self.calls - self.reported

    @property
    def hit_ratio(self) -> float | None:
        """Cached over input tokens of the calls that reported both; None when there is none: unknown is not zero."""
        return self.reported_cached / self.reported_input if self.reported_input else None

    def add(self, record: CallFinished) -> None:
        self.calls += 1
        self.outcomes[record.outcome.value] += 1
        self.expected_tokens += record.cache_expected_tokens or 0
        usage = record.usage
        if usage is not None:
            self.input_tokens += usage.input_tokens or 0
            self.cached_tokens += usage.cached_tokens or 0
            self.written_tokens += usage.written_tokens or 0
            self.output_tokens += usage.output_tokens or 0
            self.unpriced += record.cost_usd is None
            if usage.input_tokens is not None and usage.cached_tokens is not None and not record.usage_estimated:
                self.reported += 1
                self.reported_input += usage.input_tokens
                self.reported_cached += usage.cached_tokens
        self.cost_usd += record.cost_usd or 0.0


@dataclass(frozen=True, slots=True)
class Call:
    """One line of the table of last calls: the record of its end, and how its prompt was cut ("" when that is not known)."""

    record: CallFinished
    compaction: str = ""


@dataclass(slots=True)
class Totals:
    """The state of the fold: over all, by route, by route and target, and the last calls, oldest first. `records` were folded.

    `plans` holds how each prompt was cut until its call has ended, oldest first.
    """

    all: Tally = field(default_factory=Tally)
    routes: dict[str, Tally] = field(default_factory=dict)
    targets: dict[tuple[str, str], Tally] = field(default_factory=dict)
    latest: deque[Call] = field(default_factory=lambda: deque(maxlen=LATEST))
    plans: dict[str, str] = field(default_factory=dict)
    records: int = 0

    def fold(self, records: Iterable[Record]) -> None:
        """Take more records in, in the order they were appended, each of them once. Never raises."""
        for record in records:
            self.records += 1
            if isinstance(record, PromptComposed):
                self.plans[record.id] = record.compaction
                if len(self.plans) > AWAITED:
                    del self.plans[next(iter(self.plans))]
            elif isinstance(record, CallFinished):
                self.all.add(record)
                self.routes.setdefault(record.route, Tally()).add(record)
                self.targets.setdefault((record.route, record.target), Tally()).add(record)
                self.latest.append(Call(record, self.plans.pop(record.snapshot_id, "")))
