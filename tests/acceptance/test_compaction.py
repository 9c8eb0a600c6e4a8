"""What compaction costs on the recorded sessions, by the figures that `tests.bench.compaction` prints."""

import pytest

from tests.acceptance.transcripts import sessions
from tests.bench.compaction import RECUT, away_and_back, table

pytestmark = pytest.mark.skipif(not sessions(), reason="the transcripts are not beside this repository")


@pytest.mark.parametrize(("window", "least"), [(16_384, 0.95), (8_192, 0.90)])
def test_a_window_cut_rarely_keeps_the_cache_at_a_quarter_of_the_cost(window: int, least: float) -> None:
    made = table([window], ["sliding + pruning", RECUT])
    tally = made[window, "sliding + pruning"]

    assert (tally.refused, tally.calls) == (0, 1_206)
    assert tally.largest < window
    assert tally.ratio >= least
    assert tally.cost <= made[window, RECUT].cost / 4


def test_a_call_to_a_smaller_fallback_costs_the_primary_nothing() -> None:
    back, primary = away_and_back()

    assert sum(back) / len(back) >= 0.9
    assert primary.ratio >= 0.95
