import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from gateway.ledger.records import CallFinished, Outcome, Usage
from gateway.telemetry import SHARED_VARIABLE, Metrics


def finished(
    usage: Usage | None = None,
    *,
    outcome: Outcome = Outcome.COMPLETED,
    cost_usd: float | None = None,
    expected: int | None = None,
    miss_cause: str | None = None,
    first_token_s: float | None = None,
    estimated: bool = False,
    target: str = "up/m",
) -> CallFinished:
    return CallFinished(
        id="1",
        at=datetime(2026, 1, 1, tzinfo=UTC),
        route="r",
        target=target,
        outcome=outcome,
        usage=usage,
        usage_estimated=estimated,
        cost_usd=cost_usd,
        cache_expected_tokens=expected,
        miss_cause=miss_cause,
        first_token_s=first_token_s,
    )


def samples(metrics: Metrics) -> dict[tuple[str, str], float]:
    """Return value by name and by what its labels hold beside route and target."""
    found = {}
    for family in text_string_to_metric_families(metrics.page().decode()):
        for sample in family.samples:
            more = [value for name, value in sample.labels.items() if name not in ("route", "target")]
            found[sample.name, ",".join(more)] = sample.value
    return found


def test_usage_is_split_by_where_it_came_from() -> None:
    metrics = Metrics()

    metrics.attempt_finished(
        "r", finished(Usage(input_tokens=1000, cached_tokens=900, written_tokens=30, output_tokens=10), cost_usd=0.5)
    )
    metrics.attempt_finished("r", finished(Usage(input_tokens=100, cached_tokens=0, output_tokens=1), cost_usd=0.25))

    got = samples(metrics)
    kinds = [got["gateway_input_tokens_total", kind] for kind in ("uncached", "cached", "written")]
    assert kinds == [170, 900, 30]
    assert (got["gateway_output_tokens_total", ""], got["gateway_cost_usd_total", ""]) == (11, 0.75)
    assert got["gateway_cache_reported_input_tokens_total", ""] == 1100


def test_what_was_not_reported_leaves_no_ratio() -> None:
    metrics = Metrics()

    metrics.attempt_finished("r", finished())
    metrics.attempt_finished("r", finished(Usage(input_tokens=50)))
    metrics.attempt_finished("r", finished(Usage(input_tokens=0, cached_tokens=0)))
    metrics.attempt_finished("r", finished(Usage(input_tokens=50, cached_tokens=0), estimated=True))

    got = samples(metrics)
    assert got["gateway_cache_reported_input_tokens_total", ""] == 0
    assert got["gateway_input_tokens_total", "uncached"] == 100
    assert got["gateway_attempts_total", "completed"] == 4


def test_odd_figures_of_a_provider_raise_nothing() -> None:
    metrics = Metrics()

    metrics.attempt_finished("r", finished(Usage(input_tokens=-5, cached_tokens=7, output_tokens=-1), cost_usd=float("nan")))
    metrics.attempt_finished("r", finished(cost_usd=float("inf")))
    metrics.attempt_finished("r", finished(cost_usd=-1.0))

    assert samples(metrics)["gateway_cost_usd_total", ""] == 0


def test_requests_and_attempts_are_counted_by_outcome() -> None:
    metrics = Metrics()

    metrics.attempt_finished("r", finished(outcome=Outcome.OVERFLOW, first_token_s=0.2, expected=40, miss_cause="expired"))
    metrics.request_finished("r", "up/m", Outcome.COMPLETED, 1.5, 0.003)
    metrics.request_finished("r", "up/m", "completed", 0.5, -1.0)

    got = samples(metrics)
    assert got["gateway_attempts_total", "overflow"] == 1
    assert got["gateway_requests_total", "completed"] == 2
    assert (got["gateway_request_seconds_count", ""], got["gateway_request_seconds_sum", ""]) == (2, 2.0)
    assert got["gateway_overhead_seconds_sum", ""] == 0.003
    assert got["gateway_first_token_seconds_sum", ""] == 0.2
    assert got["gateway_cache_expected_tokens_total", ""] == 40
    assert got["gateway_cache_misses_total", "expired"] == 1


def test_plans_appends_and_flights_are_counted() -> None:
    metrics = Metrics()

    metrics.planned("r", "up/m", 90, 100, compacted=True)
    metrics.planned("r", "up/m", 90, None, compacted=False)
    metrics.planned("r", "up/m", 90, 0, compacted=False)
    metrics.refused("r", "up/m")
    metrics.ledger_appended(0.001, failed=False)
    metrics.ledger_appended(0.5, failed=True)
    metrics.request_began()
    metrics.request_began()
    metrics.request_ended()

    got = samples(metrics)
    assert (got["gateway_runway_used_ratio_count", ""], got["gateway_runway_used_ratio_sum", ""]) == (1, 0.9)
    assert (got["gateway_compactions_total", ""], got["gateway_refusals_total", ""]) == (1, 1)
    assert (got["gateway_ledger_append_seconds_count", ""], got["gateway_ledger_failures_total", ""]) == (2, 1)
    assert got["gateway_inflight", ""] == 1


def test_two_gateways_in_a_process_do_not_mix_and_the_page_has_no_birthdays() -> None:
    first, second = Metrics(), Metrics()

    first.refused("r", "up/m")

    assert "refusals_total{" in first.page().decode()
    assert "refusals_total{" not in second.page().decode()
    assert "_created" not in first.page().decode()


def test_passed_through_addresses_do_not_make_a_series_each() -> None:
    metrics = Metrics()

    for number in range(50):
        metrics.attempt_finished("passthrough", finished(target=f"up/files/file-{number}"))

    page = metrics.page().decode()
    assert 'gateway_attempts_total{outcome="completed",route="passthrough",target="up/files"} 50.0' in page
    assert "file-1" not in page


WORKER = """
import os, sys
from gateway import telemetry
from gateway.ledger.records import Outcome
telemetry.forget_dead()
metrics = telemetry.Metrics()
for _ in range(int(sys.argv[1])):
    metrics.request_began()
    metrics.refused("r", "up/m")
    metrics.request_finished("r", "up/m", Outcome.COMPLETED, 0.5, 0.1)
sys.stdout.write(metrics.page().decode())
"""


def test_any_of_several_workers_tells_the_sums_of_all(tmp_path: Path) -> None:
    env = {**os.environ, SHARED_VARIABLE: str(tmp_path)}

    first, second = (
        subprocess.run(
            [sys.executable, "-c", WORKER, count], env=env, capture_output=True, text=True, check=True, timeout=60
        ).stdout
        for count in ("2", "3")
    )

    labels = 'route="r",target="up/m"'
    assert f"gateway_refusals_total{{{labels}}} 2.0" in first
    assert f"gateway_refusals_total{{{labels}}} 5.0" in second
    assert f"gateway_request_seconds_count{{{labels}}} 5.0" in second
    assert "gateway_inflight 3.0" in second  # the first worker is gone, and so is what it had in flight
    assert "_created" not in second
    assert "pid=" not in second


def test_names_in_labels_cannot_break_the_page() -> None:
    metrics = Metrics()

    metrics.refused('r"\n# x', "up/<script>")

    assert samples(metrics)["gateway_refusals_total", ""] == 1
