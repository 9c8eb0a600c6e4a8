from datetime import timedelta

import pytest

from gateway.dashboard.metrics import OTHER, Totals
from gateway.dashboard.window import CALLS, LINES, SPANS, Query, view
from gateway.ledger.records import Record
from tests.dashboard.records import START, composed, finished, usage

NOW = (START + timedelta(hours=30)).timestamp()


def folded(*records: Record) -> Totals:
    totals = Totals()
    totals.fold(records)
    return totals


def at(hours_ago: float) -> float:
    """The second of START that is so many hours before NOW."""
    return (30 - hours_ago) * 3_600


def test_a_span_takes_what_is_in_it_and_no_more() -> None:
    totals = folded(*(finished(n, usage(1, 0), second=at(ago)) for n, ago in enumerate((0, 0.5, 2, 12, 29))))

    found = {span: view(totals, Query(span=span), NOW).all.calls for span in SPANS}

    assert found == {"1h": 2, "6h": 3, "24h": 4, "7d": 5, "30d": 5, "all": 5}


def test_a_query_is_what_the_address_says_and_nothing_worse() -> None:
    assert Query.parse({"span": "7d", "route": "a&b", "key": "k"}).chosen == {"span": "7d", "route": "a&b", "key": "k"}
    assert Query.parse({"span": "9 years"}).chosen == {}


def test_route_and_key_choose_and_what_may_be_chosen_stays() -> None:
    totals = folded(
        finished(1, usage(10, 5), second=at(1), route="a", key="x"),
        finished(2, usage(20, 5), second=at(1), route="b", key="x"),
        finished(3, usage(40, 5), second=at(1), route="b", key="y"),
    )

    found = view(totals, Query(route="b", key="y"), NOW)

    assert found.all.input_tokens == 40
    assert [line.route for line in found.calls] == ["b"]
    assert (found.routes_known, found.keys_known) == (("a", "b"), ("x", "y"))
    assert list(view(totals, Query(), NOW).routes) == ["b", "a"]
    assert view(totals, Query(route="gone"), NOW).routes_known == ("a", "b", "gone")


def test_lines_are_routes_and_of_one_route_its_targets() -> None:
    totals = folded(
        finished(1, usage(10, 5), second=at(3), target="up/m"),
        finished(2, usage(30, 0), second=at(2), target="up/n"),
        finished(3, usage(60), second=at(1), target="up/n"),
    )

    routes, targets = view(totals, Query(), NOW).chart, view(totals, Query(route="r"), NOW).chart

    assert list(routes.lines) == ["r"]
    assert list(targets.lines) == ["up/n", "up/m"]
    assert (routes.step_s, len(routes.starts)) == (900, 96)
    assert routes.starts[-1] <= NOW < routes.starts[-1] + routes.step_s
    used = [(point.tokens, point.ratio) for point in routes.lines["r"] if point.tokens]
    assert used == [(10, 0.5), (30, 0.0), (60, None)]


def test_many_lines_become_a_few_and_the_rest() -> None:
    totals = folded(*(finished(n, usage(n + 1, 0), second=at(1), route=f"r{n}") for n in range(LINES + 4)))

    lines = view(totals, Query(), NOW).chart.lines

    assert list(lines) == [*(f"r{n}" for n in range(LINES + 3, 3, -1)), OTHER]
    assert sum(point.tokens for point in lines[OTHER]) == 1 + 2 + 3 + 4


def test_the_most_expensive_cause_comes_first() -> None:
    causes = [("expired", 100), ("prefix_changed", 900), ("expired", 200)]
    records = [
        finished(n, second=at(1), miss_cause=cause, cache_expected_tokens=lost, cache_reported_tokens=0, key=f"k{n}")
        for n, (cause, lost) in enumerate(causes)
    ]

    found = view(folded(*records), Query(), NOW)

    assert [(cause, missed.tokens) for cause, missed in found.misses] == [("prefix_changed", 900), ("expired", 300)]
    assert [miss.tokens for miss in found.misses[1][1].worst] == [200, 100]


def test_the_log_is_the_newest_first_and_short() -> None:
    found = view(folded(*(finished(n, second=at(1) + n) for n in range(100))), Query(), NOW)

    assert len(found.calls) == CALLS
    assert found.calls[0].snapshot_id == f"{99:032x}"


@pytest.mark.parametrize("span", SPANS)
def test_an_empty_fold_has_an_empty_view(span: str) -> None:
    found = view(Totals(), Query(span=span), NOW)

    assert found.all.calls == 0
    assert found.chart.lines == {}
    assert len(found.chart.starts) >= 1


def test_a_clock_long_past_does_not_make_a_chart_without_end() -> None:
    found = view(folded(composed(1, second=-1.5e9)), Query(span="all"), NOW)

    assert len(found.chart.starts) == 400
