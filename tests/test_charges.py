from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gateway import charges
from gateway.cache.cost import Prices
from gateway.cache.usage import Usage
from gateway.charges import Worst
from gateway.ledger.records import CallFinished, Outcome
from gateway.limits.base import NOTHING, Amounts
from tests.context import talks
from tests.test_planning import planned

PRICES = Prices(input=2, cached=0.2, cache_write=2.5, output=10)
WORST = Worst(prompt=Amounts(usd=100, tokens=10), answer=Amounts(usd=1_000, tokens=20))
WIDE = talks.policy(100_000, reserve_tokens=1_000)


def ended(outcome: Outcome = Outcome.COMPLETED, status: int | None = 200, **fields: object) -> CallFinished:
    return CallFinished(id="e", at=datetime(2026, 1, 1, tzinfo=UTC), outcome=outcome, status=status, **fields)  # type: ignore[arg-type]


def test_the_worst_case_is_a_written_prompt_and_the_reserved_answer() -> None:
    found = charges.worst(planned(WIDE), PRICES)

    assert found.answer == Amounts(usd=10_000_000, tokens=1_000)
    assert found.prompt.usd == charges.nano(found.prompt.tokens * 2.5 / 1e6)
    assert found.amounts.tokens == found.prompt.tokens + 1_000


def test_a_request_for_several_answers_reserves_each_and_its_own_limit_counts() -> None:
    assert charges.worst(planned(WIDE, n=3, max_tokens=50), PRICES).answer.tokens == 150


def test_tools_count_and_settings_of_the_model_do_not() -> None:
    plain = charges.worst(planned(WIDE), PRICES).prompt.tokens
    tools = [{"type": "function", "function": {"name": "f", "description": "word " * 100}}]

    assert plain == charges.worst(planned(WIDE, temperature=0.25), PRICES).prompt.tokens
    assert charges.worst(planned(WIDE, tools=tools), PRICES).prompt.tokens >= plain + 100


def test_without_prices_no_money_is_reserved() -> None:
    found = charges.worst(planned(WIDE), None).amounts

    assert found.usd == 0
    assert found.tokens > 1_000


USED = Usage(input_tokens=7, output_tokens=3)


@pytest.mark.parametrize(
    ("record", "counted"),
    [
        (None, WORST.amounts),
        (ended(usage=USED, cost_usd=0.000_000_5), Amounts(usd=500, tokens=10)),
        (ended(usage=USED), Amounts(usd=7 * 2_500 + 3 * 10_000, tokens=10)),
        (ended(usage=Usage(input_tokens=7)), Amounts(usd=7 * 2_500 + 20 * 10_000, tokens=27)),
        (ended(usage=USED, usage_estimated=True), Amounts(usd=10 * 2_500 + 3 * 10_000, tokens=13)),
        (ended(Outcome.CLIENT_CLOSED, None), WORST.prompt),
        (ended(Outcome.UPSTREAM_TIMEOUT, None), WORST.prompt),
        (ended(Outcome.UPSTREAM_ERROR, 500), NOTHING),
        (ended(Outcome.CLIENT_CLOSED, 429), NOTHING),
    ],
)
def test_what_an_attempt_counts_for(record: CallFinished | None, counted: Amounts) -> None:
    assert counted == charges.of(record, WORST, PRICES, sent=True)


def test_what_was_never_sent_counts_for_nothing() -> None:
    assert charges.of(None, WORST, PRICES, sent=False) == NOTHING


@pytest.mark.parametrize(("usd", "parts"), [(0.0, 0), (1e-9, 1), (1.1e-9, 2), (-1.0, 0), (float("nan"), 0), (float("inf"), 0)])
def test_money_is_rounded_up_to_its_smallest_part(usd: float, parts: int) -> None:
    assert parts == charges.nano(usd)


def test_a_sum_of_claims_never_goes_below_what_was_reported() -> None:
    record = ended(usage=USED, cost_usd=0.000_1)

    assert charges.of(replace(record, cost_usd=None), WORST, PRICES, sent=True).usd >= charges.nano(7 * 2 / 1e6)
