import json

from starlette.responses import Response

from gateway.api import models
from gateway.api.access import Caller
from gateway.routing import Route, Target

WINDOWS = {"coding": 400_000, "globs-only": 128_000}


def window_of(route: Route) -> int | None:
    return WINDOWS.get(route.name)


def target(model: str) -> Target:
    return Target(provider="up", model=model)


ROUTES = (
    Route(name="coding", models=("coding", "gpt-5*", "coder"), targets=(target("large"), target("small"))),
    Route(name="cheap", models=("cheap", "gpt-5-mini", "coder"), targets=(target("unknown"),)),
    Route(name="globs-only", models=("claude-*",), targets=(target("small"),)),
)


def body(response: Response) -> dict[str, object]:
    value = json.loads(bytes(response.body))
    assert isinstance(value, dict)
    return value


def listed(caller: Caller) -> list[dict[str, object]]:
    value = body(models.listing(ROUTES, caller, window_of))
    assert value["object"] == "list"
    assert isinstance(value["data"], list)
    return value["data"]


def test_listed_are_the_names_that_their_own_route_takes() -> None:
    """`coder` and `gpt-5-mini` of the second route go to the first; `globs-only` and the globs are no names to send."""
    assert [(m["id"], m["owned_by"]) for m in listed(Caller())] == [("coding", "coding"), ("coder", "coding"), ("cheap", "cheap")]


def test_a_key_sees_its_own_routes_only() -> None:
    assert [model["id"] for model in listed(Caller(name="k", routes=("ch*",)))] == ["cheap"]
    assert listed(Caller(name="k", routes=())) == []


def test_the_window_is_the_routes_and_left_out_when_unknown() -> None:
    found = {model["id"]: model for model in listed(Caller())}

    assert found["coding"] == {
        "id": "coding",
        "object": "model",
        "created": models.CREATED,
        "owned_by": "coding",
        "context_window": 400_000,
    }
    assert "context_window" not in found["cheap"]


def test_one_model() -> None:
    answer = models.one("coder", ROUTES, Caller(), window_of)

    assert answer.status_code == 200
    assert (body(answer)["id"], body(answer)["owned_by"]) == ("coder", "coding")


def test_a_name_that_a_glob_takes_is_a_model() -> None:
    assert body(models.one("claude-x", ROUTES, Caller(), window_of))["context_window"] == 128_000


def test_a_model_that_is_not_there_is_named_with_near_ones() -> None:
    answer = models.one("codr", ROUTES, Caller(), window_of)

    assert answer.status_code == 404
    error = body(answer)["error"]
    assert isinstance(error, dict)
    assert error["code"] == "model_not_found"
    assert "coder" in error["message"]


def test_a_model_of_another_key_is_not_there_and_not_near() -> None:
    answer = models.one("coder", ROUTES, Caller(routes=("cheap",)), window_of)

    assert answer.status_code == 404
    assert "coding" not in bytes(answer.body).decode()
