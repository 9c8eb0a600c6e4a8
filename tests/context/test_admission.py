"""The sums of a runway, as a table."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.context import admission
from gateway.context.admission import Refused
from tests.context.talks import policy, request, user

RUNWAYS: list[tuple[dict[str, Any], int | None, int | None, int]] = [
    ({"window": 10_000, "reserve_tokens": 1_000}, None, 9_000, 1_000),
    ({"window": 10_000, "reserve_tokens": 1_000}, 3_000, 7_000, 3_000),
    ({"window": 10_000, "reserve_tokens": 1_000, "margin": 0.02}, None, 8_800, 1_000),
    ({"window": 100, "reserve_tokens": 1, "margin": 0.07}, None, 92, 1),
    ({"window": 10_000, "reserve_tokens": 1_000, "ceiling_tokens": 500}, None, 500, 1_000),
    ({"window": 10_000, "reserve_tokens": 1_000, "shrink_output": True}, 20_000, 9_000, 1_000),
    ({"window": 10_000, "reserve_tokens": 1_000, "shrink_output": True}, 300, 9_700, 300),
    ({"window": 10_000, "reserve_tokens": 1_000}, 20_000, -10_000, 20_000),
    ({"window": None, "ceiling_tokens": 500}, None, 500, 200),
]


@pytest.mark.parametrize(("values", "asked", "limit", "reserve"), RUNWAYS)
def test_a_runway_is_the_window_less_what_is_kept(values: dict[str, Any], asked: int | None, limit: int, reserve: int) -> None:
    fields = {} if asked is None else {"max_tokens": asked}
    found = admission.runway(policy(**values), request([user()], **fields))

    assert (limit, reserve) == (found.limit_tokens, found.reserve_tokens)


def test_the_placing_limit_does_not_follow_the_request() -> None:
    rule = policy(10_000, reserve_tokens=1_000)

    assert {9_000} == {admission.placing_limit(rule, request([user()], max_tokens=n)) for n in (1, 500, 8_000)}


def test_a_reserve_larger_than_the_window_places_by_the_request() -> None:
    assert admission.placing_limit(policy(1_000, reserve_tokens=5_000), request([user()], max_tokens=100)) == 900


def test_a_refusal_says_its_sums_also_for_an_unknown_window() -> None:
    rule = replace(policy(None), ceiling_tokens=500)
    said = Refused(required_tokens=700, runway=admission.runway(rule, request([user()]))).sums()

    assert all(each in said for each in ("700", "500", "unknown"))
