from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from gateway.cache.diagnose import Cause
from gateway.dashboard import wording


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("count", 12345, "12,345"),
        ("count", None, "–"),
        ("short", 999, "999"),
        ("short", 12_345, "12.3k"),
        ("short", 2_500_000, "2.5M"),
        ("short", 7e9, "7.0G"),
        ("short", None, "–"),
        ("usd", 0.00072, "$0.0007"),
        ("usd", 1234.5, "$1,234.50"),
        ("usd", 0.0, "$0.00"),
        ("usd", -0.5, "$-0.5000"),
        ("usd", None, "–"),
        ("percent", 0.905, "90.5 %"),
        ("percent", None, "–"),
        ("seconds", 1.234, "1.23 s"),
        ("seconds", None, "–"),
        ("moment", datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2))), "2026-03-01 10:00:00"),
        ("moment", None, "–"),
        ("iso", datetime(2026, 3, 1, tzinfo=UTC), "2026-03-01T00:00:00+00:00"),
        ("words", "upstream_error", "upstream error"),
        ("width", 0.5, "500.0"),
        ("width", 7, "1000.0"),
        ("width", -1, "0.0"),
        ("width", None, "0.0"),
        ("epoch", 0, "1970-01-01 00:00"),
        ("tojson_text", {"a": "ä"}, '{\n "a": "ä"\n}'),
    ],
)
def test_a_figure_is_spelled(name: str, value: Any, said: str) -> None:
    assert said == wording.FILTERS[name](value)


def test_every_cause_is_told_in_words() -> None:
    assert set(wording.CAUSES) == {each.value for each in Cause}


def test_a_share_of_nothing_is_unknown() -> None:
    assert (wording.share(1, 4), wording.share(1, 0), wording.share(None, 4), wording.share(0, 4)) == (0.25, None, None, 0.0)
