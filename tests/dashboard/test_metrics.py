from datetime import UTC, datetime, timedelta

from gateway.dashboard.metrics import AWAITED, LATEST, Totals
from gateway.ledger.records import CallFinished, ConfigChanged, Manifest, Outcome, PromptComposed, Usage

START = datetime(2026, 1, 1, tzinfo=UTC)
NOTHING = Manifest(head=(), nodes=(), items=(), tail=())


def composed(number: int, compaction: str = "none") -> PromptComposed:
    return PromptComposed(
        id=f"{number:032x}",
        at=START,
        attempt=1,
        target="up/m",
        dialect="chat",
        request=NOTHING,
        prompt=NOTHING,
        prompt_digest=b"",
        prompt_bytes=0,
        policy=b"",
        compaction=compaction,
    )


def finished(
    number: int = 0,
    usage: Usage | None = None,
    *,
    route: str = "r",
    target: str = "up/m",
    outcome: Outcome = Outcome.COMPLETED,
    cost_usd: float | None = None,
    estimated: bool = False,
) -> CallFinished:
    return CallFinished(
        id=f"f{number}",
        at=START + timedelta(seconds=number),
        snapshot_id=f"{number:032x}",
        route=route,
        target=target,
        outcome=outcome,
        usage=usage,
        usage_estimated=estimated,
        cost_usd=cost_usd,
    )


def test_the_ratio_weighs_tokens_not_calls() -> None:
    totals = Totals()

    totals.fold([finished(1, Usage(input_tokens=10, cached_tokens=0)), finished(2, Usage(input_tokens=990, cached_tokens=990))])

    assert totals.all.hit_ratio == 0.99


def test_calls_that_did_not_report_are_shown_apart_and_do_not_lower_the_ratio() -> None:
    totals = Totals()

    totals.fold(
        [
            finished(1, Usage(input_tokens=100, cached_tokens=90, written_tokens=5, output_tokens=7)),
            finished(2, Usage(input_tokens=100)),
            finished(3, Usage(input_tokens=100, cached_tokens=0), estimated=True),
            finished(4, outcome=Outcome.UPSTREAM_ERROR),
        ]
    )

    tally = totals.routes["r"]
    assert (tally.calls, tally.reported, tally.unreported, tally.hit_ratio) == (4, 1, 3, 0.9)
    assert (tally.input_tokens, tally.cached_tokens, tally.written_tokens, tally.output_tokens) == (300, 90, 5, 7)
    assert dict(tally.outcomes) == {"completed": 3, "upstream_error": 1}


def test_nothing_reported_is_unknown_and_a_reported_zero_is_zero() -> None:
    totals = Totals()

    totals.fold([finished(1, Usage(input_tokens=5)), finished(2, Usage(input_tokens=5, cached_tokens=0), route="z")])

    assert (totals.routes["r"].hit_ratio, totals.routes["z"].hit_ratio) == (None, 0.0)


def test_targets_are_told_apart_within_a_route_and_costs_added_where_known() -> None:
    totals = Totals()
    usage = Usage(input_tokens=1, output_tokens=1)

    totals.fold(
        [
            finished(1, usage, cost_usd=0.25),
            finished(2, usage, target="other/m", cost_usd=0.5),
            finished(3, usage),
            finished(4, usage, cost_usd=0.0),
        ]
    )

    assert {key: tally.calls for key, tally in totals.targets.items()} == {("r", "up/m"): 3, ("r", "other/m"): 1}
    assert (totals.all.cost_usd, totals.all.unpriced) == (0.75, 1)


def test_folding_in_two_parts_is_folding_at_once() -> None:
    records = [record for n in range(80) for record in (composed(n), finished(n, Usage(input_tokens=n, cached_tokens=n // 2)))]
    whole, parts = Totals(), Totals()

    whole.fold(records)
    parts.fold(records[:77])
    parts.fold(records[77:])

    assert whole == parts


def test_the_last_calls_are_kept_with_how_their_prompts_were_cut() -> None:
    totals = Totals()

    totals.fold([composed(1, "sliding_window"), composed(2), finished(2), finished(1), finished(3)])
    assert [(call.record.id, call.compaction) for call in totals.latest] == [("f2", "none"), ("f1", "sliding_window"), ("f3", "")]

    totals.fold(finished(n) for n in range(100))
    assert len(totals.latest) == LATEST
    assert totals.plans == {}


def test_plans_whose_call_never_ends_are_let_go() -> None:
    totals = Totals()

    totals.fold(composed(n) for n in range(AWAITED + 3))

    assert len(totals.plans) == AWAITED


def test_other_records_change_no_figure() -> None:
    totals = Totals()

    totals.fold([ConfigChanged(id="c", at=START, digest="d", source="file")])

    assert (totals.records, totals.all.calls, totals.routes) == (1, 0, {})
