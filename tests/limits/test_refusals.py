from datetime import UTC, datetime, timedelta

import pytest

from gateway.errors import QuotaExceeded
from gateway.limits.base import NANO, Budget, Limit, Per, Refusal, Standing, Unit
from gateway.limits.refusals import amount, duration, exceeded, headers

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def standing(
    unit: Unit, per: Per, limit: int, used: int = 0, reserved: int = 0, resets_in_s: float | None = 10, *, key: str = ""
) -> Standing:
    return Standing(
        budget=Budget(route="" if key else "m", key=key, limits=()),
        limit=Limit(unit=unit, per=per, amount=limit),
        used=used,
        reserved=reserved,
        at=NOW,
        resets_at=None if resets_in_s is None else NOW + timedelta(seconds=resets_in_s),
    )


RATE = standing(Unit.REQUESTS, Per.MINUTE, 10, 9, resets_in_s=59.2)
DAY = standing(Unit.TOKENS, Per.DAY, 100, 60, 30, 43_200)
MINUTE = standing(Unit.TOKENS, Per.MINUTE, 1_000, 10, 0, 3)
MONEY = standing(Unit.USD, Per.MONTH, 25 * NANO, 24 * NANO, NANO // 2, 86_400, key="team")
PARALLEL = standing(Unit.REQUESTS, Per.PARALLEL, 4, reserved=4, resets_in_s=None)


def refused(one: Standing, *, wanted: int = 11, wait_s: float = 10, never: bool = False) -> Refusal:
    return Refusal(standing=one, wanted=wanted, wait_s=wait_s, never=never, standings=(RATE, DAY, MINUTE, MONEY, PARALLEL))


def test_a_rate_says_when_to_try_again_and_how_all_rates_stand() -> None:
    error = exceeded(refused(RATE, wanted=1, wait_s=12.3))

    assert (error.status, error.code, error.retry_after_s, error.type) == (429, "rate_limit_exceeded", 13, "rate_limit_error")
    assert error.headers == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "1",
        "x-ratelimit-reset-requests": "1m0s",
        "x-ratelimit-limit-tokens": "1000",
        "x-ratelimit-remaining-tokens": "990",
        "x-ratelimit-reset-tokens": "3s",
    }
    assert "the budget of route 'm' is 10 requests per minute: 9 requests used" in error.message


def test_a_budget_of_a_day_is_a_quota_that_sdks_do_not_try_again() -> None:
    error = exceeded(refused(DAY, wait_s=43_199.5))

    assert isinstance(error, QuotaExceeded)
    assert (error.code, error.retry_after_s, error.headers["x-should-retry"]) == ("insufficient_quota", 43_200, "false")
    assert error.headers["x-ratelimit-remaining-tokens"] == "10"
    assert error.headers["x-ratelimit-reset-tokens"] == "12h0m0s"
    assert "100 tokens per day: 60 tokens used, 30 tokens reserved, this call may take 11 tokens" in error.message


def test_money_is_told_in_usd_and_a_key_is_not_named() -> None:
    error = exceeded(refused(MONEY, wanted=NANO))

    assert "the budget of this key is 25 USD per month: 24 USD used, 0.5 USD reserved, this call may take 1 USD" in error.message
    assert "team" not in error.message


def test_what_can_never_pass_says_what_to_change() -> None:
    error = exceeded(refused(MINUTE, wanted=2_000, never=True))

    assert "2000 tokens, more than the whole budget of route 'm': 1000 tokens per minute" in error.message
    assert "max_tokens" in error.message
    assert error.headers["x-should-retry"] == "false"


def test_too_many_at_once_names_its_key_and_has_no_reset_of_its_own() -> None:
    error = exceeded(refused(PARALLEL, wanted=1, wait_s=1))

    assert "has 4 calls running, which is max_parallel" in error.message
    assert (error.code, error.retry_after_s) == ("rate_limit_exceeded", 1)
    assert headers([PARALLEL, MONEY]) == {}


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (0.2, "1s"), (59, "59s"), (61, "1m1s"), (3_600, "1h0m0s"), (90_061, "25h1m1s")]
)
def test_durations_are_spelled_as_openai_does(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(25 * NANO, "25 USD"), (1, "0 USD"), (NANO // 1_000, "0.001 USD"), (0, "0 USD")])
def test_amounts_of_money_have_no_more_digits_than_needed(count: int, text: str) -> None:
    assert amount(Unit.USD, count) == text
