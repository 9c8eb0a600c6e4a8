from gateway.cache.diagnose import Cause


def test_the_causes_are_those_of_the_design() -> None:
    assert {
        "first_call", "expired", "prefix_changed", "below_minimum", "routed_elsewhere", "tools_changed", "model_changed", "marks",
        "evicted",
    } == {each.value for each in Cause}  # fmt: skip
