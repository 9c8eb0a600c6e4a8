"""Which route takes a model, in which order its targets are tried, and when one cools down."""

import pytest

from gateway.errors import ModelNotFound
from gateway.routing import Cooldown, Cooldowns, Route, Target, order, resolve

ONE, TWO, THREE = (Target(provider=name, model="m") for name in ("one", "two", "three"))


def route(name: str, *models: str) -> Route:
    return Route(name=name, models=models or (name,), targets=(ONE,))


ROUTES = (route("coding", "gpt-5*", "coder"), route("odd", "a[b]c", "gpt-5.6"), route("rest", "team/*", "o?"))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("coder", "coding"),
        ("gpt-5.6", "coding"),  # the first that matches, though a later one names it exactly
        ("gpt-5", "coding"),
        ("a[b]c", "odd"),  # as written before as a glob
        ("abc", "odd"),
        ("team/x/y", "rest"),
        ("o3", "rest"),
    ],
)
def test_first_route_that_matches_takes_the_model(model: str, name: str) -> None:
    assert name == resolve(ROUTES, model).name


@pytest.mark.parametrize("model", ["Coder", "gpt-4", "o33", "", "xgpt-5", "coder\n"])
def test_a_model_that_no_route_takes_is_not_found(model: str) -> None:
    with pytest.raises(ModelNotFound):
        resolve(ROUTES, model)


def test_not_found_says_near_names() -> None:
    with pytest.raises(ModelNotFound, match="coder") as caught:
        resolve(ROUTES, "codr")

    assert (caught.value.status, caught.value.code, caught.value.param) == (404, "model_not_found", "model")


def test_a_named_route_wins_over_the_model() -> None:
    assert resolve(ROUTES, "coder", named="rest").name == "rest"


def test_a_named_route_that_is_not_there_lists_those_that_are() -> None:
    with pytest.raises(ModelNotFound, match="coding, odd, rest") as caught:
        resolve(ROUTES, "coder", named="codign")

    assert caught.value.param == "x-gateway-route"


def test_no_routes_at_all_is_said() -> None:
    with pytest.raises(ModelNotFound, match="none"):
        resolve((), "m")


def test_cooling_targets_come_last_and_none_is_dropped() -> None:
    assert order((ONE, TWO, THREE), frozenset({"one/m"})) == (TWO, THREE, ONE)
    assert order((ONE, TWO), frozenset({"one/m", "two/m"})) == (ONE, TWO)
    assert order((ONE, TWO), frozenset()) == (ONE, TWO)


def test_a_target_cools_down_after_so_many_failures_in_a_row() -> None:
    rule, cooldowns = Cooldown(failures=2, seconds=30), Cooldowns()
    cooldowns.failed("a", rule, now=100)

    assert frozenset() == cooldowns.cooling(100)

    cooldowns.failed("a", rule, now=101)

    assert frozenset({"a"}) == cooldowns.cooling(130.9)
    assert frozenset() == cooldowns.cooling(131)


def test_an_answer_starts_the_count_anew_and_ends_the_cooling() -> None:
    rule, cooldowns = Cooldown(failures=2, seconds=30), Cooldowns()
    cooldowns.failed("a", rule, now=0)
    cooldowns.succeeded("a")
    cooldowns.failed("a", rule, now=1)

    assert frozenset() == cooldowns.cooling(1)

    cooldowns.failed("a", rule, now=1)
    cooldowns.succeeded("a")

    assert frozenset() == cooldowns.cooling(2)


def test_the_providers_wait_makes_the_cooling_longer_but_not_shorter() -> None:
    rule, cooldowns = Cooldown(failures=1, seconds=30), Cooldowns()
    cooldowns.failed("long", rule, now=0, wait_s=60)
    cooldowns.failed("short", rule, now=0, wait_s=5)

    assert frozenset({"long", "short"}) == cooldowns.cooling(29)
    assert frozenset({"long"}) == cooldowns.cooling(59)
