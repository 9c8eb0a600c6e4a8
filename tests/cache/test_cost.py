import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cache.cost import Prices, Tier, parts_usd
from gateway.cache.usage import Usage

WRITTEN = Usage(input_tokens=1000, written_tokens=1000, written_long_tokens=300, output_tokens=0)
LONG = Prices(
    input=2,
    output=10,
    tiers=(
        Tier(above_tokens=1000, prices=Prices(input=4, output=15)),
        Tier(above_tokens=2000, prices=Prices(input=8, output=15)),
    ),
)


@pytest.mark.parametrize(
    ("usage", "prices", "cost"),
    [
        (Usage(input_tokens=1000, output_tokens=100), Prices(input=2, output=10), 0.003),
        (Usage(input_tokens=1000, cached_tokens=400, output_tokens=0), Prices(input=2, cached=0.5), 0.0014),
        (Usage(input_tokens=1000, cached_tokens=400, output_tokens=0), Prices(input=2), 0.002),
        (Usage(input_tokens=1000, written_tokens=500, output_tokens=0), Prices(input=2, cache_write=4), 0.003),
        (Usage(input_tokens=1000, written_tokens=500, output_tokens=0), Prices(input=2), 0.002),
        (WRITTEN, Prices(input=2, cache_write=4, cache_write_long=8), 0.0052),
        (WRITTEN, Prices(input=2, cache_write=4), 0.004),
        (Usage(input_tokens=1001, output_tokens=100), LONG, 0.005504),
        (Usage(input_tokens=1000, output_tokens=100), LONG, 0.003),
        (Usage(input_tokens=2001, output_tokens=0), LONG, 2001 * 8 / 1e6),
        (Usage(input_tokens=0, output_tokens=0), Prices(input=2), 0.0),
        (Usage(input_tokens=1000), Prices(input=2), None),
        (Usage(input_tokens=1000, output_tokens=1), None, None),
        (None, Prices(input=2), None),
    ],
)
def test_a_call_costs_what_its_parts_cost(usage: Usage | None, prices: Prices | None, cost: float | None) -> None:
    parts = parts_usd(usage, prices)

    assert (sum(parts.values()) if parts else None) == (None if cost is None else pytest.approx(cost))


def test_each_part_is_told() -> None:
    usage = Usage(input_tokens=1000, cached_tokens=700, written_tokens=200, output_tokens=10)

    parts = parts_usd(usage, Prices(input=3, cached=0.3, cache_write=3.75, output=15))

    assert parts == pytest.approx({"uncached": 0.0003, "cached": 0.00021, "written": 0.00075, "output": 0.00015})


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_no_input_token_is_paid_twice(fresh: int, cached: int, written: int, output: int) -> None:
    usage = Usage(input_tokens=fresh + cached + written, cached_tokens=cached, written_tokens=written, output_tokens=output)

    parts = parts_usd(usage, Prices(input=1, cached=1, cache_write=1, output=1))

    assert sum(parts.values()) == pytest.approx((fresh + cached + written + output) / 1e6)
