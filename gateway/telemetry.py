"""The figures of `/metrics`: what they are called, and how they count. Knows records and the client library, no HTTP.

Names and labels are the contract's. One `Metrics` has a registry of its own: two gateways in one process do not mix.
"""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from gateway.ledger.records import CallFinished, Usage
from gateway.limits.base import Amounts, Standing

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

# Seconds. Calls of models take from a tenth of a second to many minutes; our own work is held to a few milliseconds.
CALL_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)
OWN_BUCKETS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.5, 2)
RATIO_BUCKETS = (0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1)

SHARED_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # the client library's: where workers keep their figures together

ROUTED = ("route", "target")


@dataclass(slots=True)
class _Children:
    """What one route and target counts on, bound once: looking labels up costs more than counting."""

    seconds: Histogram
    overhead: Histogram
    first_token: Histogram
    uncached: Counter
    cached: Counter
    written: Counter
    output: Counter
    cost: Counter
    expected: Counter
    compactions: Counter
    refusals: Counter
    reported: Counter
    runway: Histogram
    requests: dict[str, Counter] = field(default_factory=dict)
    attempts: dict[str, Counter] = field(default_factory=dict)


class Metrics:
    """The meter that the pipeline is given. All methods are cheap, take tokens and seconds, and never raise on odd figures."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._bound: dict[tuple[str, str], _Children] = {}

        def counter(name: str, help: str, labels: Iterable[str] = ROUTED) -> Counter:
            return Counter(name, help, tuple(labels), registry=registry)

        def histogram(name: str, help: str, buckets: tuple[float, ...], labels: Iterable[str] = ROUTED) -> Histogram:
            return Histogram(name, help, tuple(labels), buckets=buckets, registry=registry)

        self._requests = counter("gateway_requests_total", "Requests that ended, by outcome", (*ROUTED, "outcome"))
        self._attempts = counter("gateway_attempts_total", "Attempts at a target that ended, by outcome", (*ROUTED, "outcome"))
        self._seconds = histogram("gateway_request_seconds", "From a request's arrival to the end of its answer", CALL_BUCKETS)
        self._overhead = histogram("gateway_overhead_seconds", "The part of it that the gateway itself took", OWN_BUCKETS)
        self._first_token = histogram("gateway_first_token_seconds", "From a request's arrival to the first token", CALL_BUCKETS)
        self._input = counter("gateway_input_tokens_total", "Input tokens as reported", (*ROUTED, "kind"))
        self._output = counter("gateway_output_tokens_total", "Output tokens as reported")
        self._cost = counter("gateway_cost_usd_total", "Cost of the attempts whose price and usage are known, in USD")
        self._misses = counter("gateway_cache_misses_total", "Attempts that missed the cache, by cause", (*ROUTED, "cause"))
        self._expected = counter("gateway_cache_expected_tokens_total", "Input tokens that should have come from the cache")
        self._compactions = counter("gateway_compactions_total", "Prompts that were cut to fit")
        self._refusals = counter("gateway_refusals_total", "Plans that found no room at a target")
        self._runway = histogram("gateway_runway_used_ratio", "Estimated tokens of a prompt over its limit", RATIO_BUCKETS)
        # What the cached tokens are a share of: `_input` also holds calls whose provider says nothing of its cache.
        self._reported = counter("gateway_cache_reported_input_tokens_total", "Input tokens of calls that reported cached ones")
        self._appends = histogram("gateway_ledger_append_seconds", "Until the ledger answered to an entry", OWN_BUCKETS, ())
        self._failures = counter("gateway_ledger_failures_total", "Entries that the ledger did not acknowledge", ())
        self._budgets = Gauge(
            "gateway_budget_used_ratio",
            "Used and reserved over the limit, as last seen by this process",
            ("route", "key", "unit", "per"),
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        self._inflight = Gauge(
            "gateway_inflight", "Requests whose answer has not ended", registry=registry, multiprocess_mode="livesum"
        )

    def request_began(self) -> None:
        """Count one more request in flight; `request_ended` takes it back, however it ended."""
        self._inflight.inc()

    def request_ended(self) -> None:
        self._inflight.dec()

    def request_finished(self, route: str, target: str, outcome: str, seconds: float, overhead_s: float) -> None:
        """Count one request: `target` is the last one tried, "" when none was."""
        children = self._children(route, target)
        _child(children.requests, self._requests, route, target, str(outcome)).inc()
        children.seconds.observe(seconds)
        children.overhead.observe(max(overhead_s, 0.0))

    def attempt_finished(self, route: str, record: CallFinished) -> None:
        """Count one attempt as its record tells it. What was not reported is not counted; it is not zero."""
        target = bounded(route, record.target)
        children = self._children(route, target)
        _child(children.attempts, self._attempts, route, target, record.outcome.value).inc()
        if record.first_token_s is not None:
            children.first_token.observe(record.first_token_s)
        if record.usage is not None:
            self._count_usage(route, target, children, record.usage, estimated=record.usage_estimated)
        if record.cost_usd is not None and 0 <= record.cost_usd < math.inf:
            children.cost.inc(record.cost_usd)
        children.expected.inc(_positive(record.cache_expected_tokens))
        if record.miss_cause is not None:
            self._misses.labels(route, target, record.miss_cause).inc()

    def planned(self, route: str, target: str, estimate: int, limit: int | None, compacted: bool) -> None:
        """Count one prompt: its estimate and its limit in tokens (None: no limit is known)."""
        children = self._children(route, target)
        if limit:
            children.runway.observe(estimate / limit)
        if compacted:
            children.compactions.inc()

    def refused(self, route: str, target: str) -> None:
        """Count one target that cannot hold what must be kept."""
        self._children(route, target).refusals.inc()

    def ledger_appended(self, seconds: float, *, failed: bool) -> None:
        """Count one append of an entry."""
        self._appends.observe(seconds)
        if failed:
            self._failures.inc()

    def stands(self, standings: Iterable[Standing]) -> None:
        """Show how budgets stand, as a store has just told it."""
        for each in standings:
            labels = (each.budget.route, each.budget.key, each.limit.unit.value, each.limit.per.value)
            self._budgets.labels(*labels).set(each.used_ratio)

    def settled(self, standings: Iterable[Standing], spent: Amounts) -> None:
        """Nothing more: `stands` was told the same."""

    def page(self) -> bytes:
        """Return the page in Prometheus' text format; its type is `CONTENT_TYPE`. Of several workers, the sums over all."""
        if SHARED_VARIABLE not in os.environ:
            return generate_latest(_WithoutBirthdays(self._registry))
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call] # the library's own
        return generate_latest(_WithoutBirthdays(together))

    def _count_usage(self, route: str, target: str, children: _Children, usage: Usage, *, estimated: bool) -> None:
        total, cached, written = _positive(usage.input_tokens), _positive(usage.cached_tokens), _positive(usage.written_tokens)
        children.uncached.inc(max(total - cached - written, 0))
        children.cached.inc(cached)
        children.written.inc(written)
        children.output.inc(_positive(usage.output_tokens))
        if usage.cached_tokens is None or not total or estimated:
            return
        children.reported.inc(total)

    def _children(self, route: str, target: str) -> _Children:
        bound = self._bound.get((route, target))
        if bound is None:
            labels = (route, target)
            bound = self._bound[labels] = _Children(
                seconds=self._seconds.labels(*labels),
                overhead=self._overhead.labels(*labels),
                first_token=self._first_token.labels(*labels),
                uncached=self._input.labels(*labels, "uncached"),
                cached=self._input.labels(*labels, "cached"),
                written=self._input.labels(*labels, "written"),
                output=self._output.labels(*labels),
                cost=self._cost.labels(*labels),
                expected=self._expected.labels(*labels),
                compactions=self._compactions.labels(*labels),
                refusals=self._refusals.labels(*labels),
                reported=self._reported.labels(*labels),
                runway=self._runway.labels(*labels),
            )
        return bound


class _WithoutBirthdays(Collector):
    """A registry without the `_created` series, which would be a third of the page and which nothing here reads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


def share(folder: str) -> None:
    """Have the processes that are started from here keep their figures in this folder, so that any of them tells the sums."""
    os.environ[SHARED_VARIABLE] = folder


def forget_dead() -> None:
    """Let go of what workers that are gone had in flight; what they counted stays."""
    folder = os.environ.get(SHARED_VARIABLE)
    for path in Path(folder).glob("gauge_live*.db") if folder else ():
        pid = int(path.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid)  # type: ignore[no-untyped-call] # the library's own


def bounded(route: str, target: str) -> str:
    """Return the target as a label: a passed-through address holds ids of files and batches, each of which would be a series."""
    return "/".join(target.split("/", 2)[:2]) if route == "passthrough" else target


def _child(bound: dict[str, Counter], counter: Counter, route: str, target: str, outcome: str) -> Counter:
    child = bound.get(outcome)
    if child is None:
        child = bound[outcome] = counter.labels(route, target, outcome)
    return child


def _positive(tokens: int | None) -> int:
    return max(tokens or 0, 0)  # a provider was seen to report less than nothing; a counter must not fall
