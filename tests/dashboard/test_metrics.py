import random
from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dashboard import metrics
from gateway.dashboard.metrics import LATEST, OTHER, SERIES, UNDERWAY, WIDTHS, WORST, Tally, Totals
from gateway.ledger.records import ConfigChanged, Outcome, Record
from tests.dashboard.records import START, composed, cut, finished, usage


def folded(*records: Record) -> Totals:
    totals = Totals()
    totals.fold(records)
    return totals


def whole(totals: Totals, width: int = -1) -> Tally:
    """The sum of all tallies of one width."""
    found = Tally()
    for bucket in totals.widths[width].values():
        for tally in bucket.values():
            found.merge(tally)
    return found


def test_the_ratio_weighs_tokens_not_calls() -> None:
    assert whole(folded(finished(1, usage(10, 0)), finished(2, usage(990, 990)))).hit_ratio == 0.99


def test_calls_that_did_not_report_are_shown_apart_and_do_not_lower_the_ratio() -> None:
    found = whole(
        folded(
            finished(1, usage(100, 90)),
            finished(2, usage(500)),
            finished(3, usage(500, 0), usage_estimated=True),
            finished(4),
        )
    )

    assert (found.calls, found.reported, found.unreported, found.hit_ratio) == (4, 1, 3, 0.9)
    assert found.input_tokens == 1_100


def test_nothing_reported_is_unknown_and_not_zero() -> None:
    assert whole(folded(finished(1, usage(100)))).hit_ratio is None
    assert Tally().runway_mean is None


def test_an_unknown_price_is_counted_and_not_taken_for_free() -> None:
    found = whole(folded(finished(1, usage(1), cost_usd=0.5), finished(2, usage(1)), finished(3)))

    assert (found.cost_usd, found.unpriced) == (0.5, 1)


def test_each_width_holds_the_same_sum() -> None:
    totals = folded(*(finished(n, usage(n, 0), second=n * 37) for n in range(200)))

    assert {whole(totals, width).input_tokens for width in range(len(WIDTHS))} == {sum(range(200))}
    assert len(totals.widths[0]) > len(totals.widths[1]) > len(totals.widths[2])


def test_old_buckets_go_and_a_wild_clock_takes_one_place_only() -> None:
    width, kept = WIDTHS[0]
    records: list[Record] = [finished(n, usage(1, 0), second=n * width) for n in range(kept + 50)]
    wild = finished(9, usage(1, 0), second=3e9)

    totals = folded(records[0], wild, *records[1:])

    starts = sorted(totals.widths[0])
    assert len(starts) == kept
    assert starts[0] == int(START.timestamp()) + (50 + 1) * width


def test_a_runway_is_measured_where_its_limit_is_known() -> None:
    found = whole(
        folded(
            composed(1, runway={"estimate": 20, "limit": 100}),
            composed(2, runway={"estimate": 80, "limit": 100}),
            composed(3, runway={"estimate": 80, "limit": 0}),
            composed(4, runway={"estimate": 80, "limit": None}),
        )
    )

    assert (found.prompts, found.runway_count, found.runway_mean, found.runway_max) == (4, 2, 0.5, 0.8)


def test_a_compaction_is_a_boundary_that_moves_and_not_each_prompt_behind_it() -> None:
    shortened = "sliding_window;kept=3;dropped=2;pruned=0"
    records: list[Record] = []
    for number, boundary in enumerate((4, 4, 9)):
        records += [composed(number, compaction=shortened, lineage="l"), cut(number, boundary, lineage="l")]

    found = whole(folded(*records))

    assert (found.cut, found.compactions, found.removed_tokens) == (3, 2, 180)


def test_a_fallback_is_a_request_that_went_on_to_another_target() -> None:
    totals = folded(
        composed(1, request_id="q", target="up/a"),
        finished(1, target="up/a", outcome=Outcome.UPSTREAM_ERROR, reason="server: answered 500"),
        composed(2, request_id="q", target="up/a", attempt=2),
        composed(3, request_id="q", target="up/b", attempt=3),
        finished(3, usage(9, 0), target="up/b"),
        composed(4, request_id="other", target="up/a"),
    )

    ((_, bucket),) = totals.widths[-1].items()
    assert bucket["r", "up/a", ""].fallbacks == {"up/b": 1}
    assert bucket["r", "up/a", ""].reasons == {"server": 1}
    assert bucket["r", "up/b", ""].fallbacks == {}


def test_the_most_expensive_misses_are_kept_with_the_prompt_before_them() -> None:
    records: list[Record] = []
    for number in range(WORST + 3):
        records.append(composed(number, lineage="l"))
        records.append(finished(number, miss_cause="expired", cache_expected_tokens=100 * number, cache_reported_tokens=0))

    found = whole(folded(*records))

    assert (found.misses["expired"].count, found.misses["expired"].tokens) == (WORST + 3, 100 * sum(range(WORST + 3)))
    worst = found.misses["expired"].worst
    assert [miss.tokens for miss in worst] == [100 * number for number in range(WORST + 2, 2, -1)]
    assert worst[0].before == f"{WORST + 1:032x}"


def test_a_diagnosed_miss_brings_its_cost_and_the_prompt_that_it_parts_from() -> None:
    record = finished(
        1, miss_cause="prefix_changed", miss_tokens=70, miss_usd=0.5, miss_against="earlier", cache_expected_tokens=900
    )

    (miss,) = whole(folded(composed(1), record)).misses["prefix_changed"].worst

    assert (miss.tokens, miss.usd, miss.before) == (70, 0.5, "earlier")


def test_what_was_saved_is_summed_over_the_calls_that_could_be_compared() -> None:
    found = whole(folded(finished(1, saved_usd=0.5), finished(2, saved_usd=-0.25), finished(3)))

    assert (found.saved_usd, found.compared) == (0.25, 2)


def test_keys_are_told_apart_and_made_up_names_cannot_fill_the_memory() -> None:
    totals = folded(*(finished(n, usage(1, 0), key=f"k{n}", second=0) for n in range(SERIES + 40)))

    (bucket,) = totals.widths[0].values()
    assert len(bucket) == SERIES + 1
    assert bucket[OTHER, OTHER, OTHER].calls == 40


def test_a_passed_through_address_counts_under_its_first_part() -> None:
    totals = folded(*(finished(n, route="passthrough", target=f"up/files/file-{n}", second=0) for n in range(3)))

    (bucket,) = totals.widths[0].values()
    assert list(bucket) == [("passthrough", "up/files", "")]


def test_reasons_and_causes_are_bounded() -> None:
    found = whole(
        folded(
            *(
                finished(n, second=0, reason=f"r{n}: x", outcome=Outcome.UPSTREAM_ERROR, miss_cause=f"c{n}")
                for n in range(metrics.WORDS + 20)
            )
        )
    )

    assert (len(found.reasons), found.reasons[OTHER]) == (metrics.WORDS + 1, 20)
    assert (len(found.misses), found.misses[OTHER].count) == (metrics.WORDS + 1, 20)


def test_what_is_underway_is_bounded_and_the_oldest_goes_first() -> None:
    totals = folded(*(composed(n) for n in range(UNDERWAY + 5)))

    assert len(totals.plans) == len(totals.threads) == len(totals.attempts) == UNDERWAY
    assert next(iter(totals.plans)) == f"{5:032x}"


def test_the_log_keeps_the_newest_calls_and_knows_which_were_cut() -> None:
    totals = folded(composed(1, compaction="sliding_window;kept=3"), composed(2), finished(1), finished(2))

    assert [line.shortened for line in totals.latest] == [True, False]

    totals.fold(finished(n) for n in range(3 * LATEST))
    assert LATEST <= len(totals.latest) <= 2 * LATEST
    assert totals.latest[-1].snapshot_id == f"{3 * LATEST - 1:032x}"


def test_other_records_are_counted_as_read_and_change_nothing_else() -> None:
    totals = folded(ConfigChanged(id="c", at=START, digest="d", source="s"))

    assert (totals.records, totals.newest) == (1, START)
    assert totals.widths == Totals().widths


Spec = Sequence[tuple[int, int, int]]


def talk(writer: int, spec: Spec) -> list[Record]:
    """The records of one gateway: calls at some second, with so many tokens, some missed, cut or given way."""
    records: list[Record] = []
    for at, (second, tokens, kind) in enumerate(spec):
        number = writer * 1_000 + at
        common = {"lineage": f"l{writer}", "key": f"k{kind}", "request_id": f"{writer}-{at // 2}"}
        records.append(composed(number, second=second, target=f"up/{kind}", runway={"estimate": tokens, "limit": 1_024}, **common))
        if kind == 2:
            records.append(cut(number, tokens, second=second, lineage=f"l{writer}", key="k2"))
        missed = "expired" if kind == 1 else None
        records.append(
            finished(
                number, usage(tokens, tokens // 2), second=second + 1, target=f"up/{kind}", key=f"k{kind}", cost_usd=tokens / 1_024,
                miss_cause=missed, cache_expected_tokens=tokens,
            )
        )  # fmt: skip
    return records


SPECS = st.lists(st.tuples(st.integers(0, 400_000), st.integers(0, 1_024), st.integers(0, 2)), max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(SPECS, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_any_interleaving_of_gateways_gives_the_same_figures(specs: list[Spec], chance: random.Random) -> None:
    talks = [talk(writer, spec) for writer, spec in enumerate(specs)]
    one_by_one = folded(*(record for each in talks for record in each))
    mixed: list[Record] = []
    waiting = [list(each) for each in talks if each]
    while waiting:
        each = chance.choice(waiting)
        mixed.append(each.pop(0))
        waiting = [rest for rest in waiting if rest]

    assert one_by_one.widths == folded(*mixed).widths


@settings(max_examples=40, deadline=None)
@given(SPECS, st.integers(0, 40))
def test_a_fold_that_stops_and_goes_on_is_one_that_never_stopped(spec: Spec, at: int) -> None:
    records = talk(0, spec)
    first = folded(*records[:at])

    resumed = metrics.loads(metrics.dumps(first, "cursor"))
    assert resumed is not None
    resumed[0].fold(records[at:])

    assert resumed == (folded(*records), "cursor")


@pytest.mark.parametrize("data", [b"", b"\x00", b"not a state", metrics.dumps(Totals(), "c")[:-3], b"\x83\xa7version\x63"])
def test_a_state_that_cannot_be_read_is_none(data: bytes) -> None:
    assert metrics.loads(data) is None


def test_a_state_of_another_version_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    old = metrics.dumps(folded(finished(1)), "c")
    monkeypatch.setattr(metrics, "VERSION", metrics.VERSION + 1)

    assert metrics.loads(old) is None


def test_records_out_of_order_of_time_count_where_they_belong() -> None:
    late = finished(1, usage(5, 5), second=0)
    totals = folded(finished(2, usage(7, 0), second=90_000), late)

    assert totals.newest == START + timedelta(seconds=90_000)
    assert totals.widths[-1][int(START.timestamp())]["r", "up/m", ""].input_tokens == 5
