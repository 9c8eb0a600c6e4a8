import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from gateway.api.cors import Cors

ORIGIN = "https://app.example"
PREFLIGHT = {
    "origin": ORIGIN,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type",
}


def client(*origins: str, **headers: str) -> TestClient:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return TestClient(Cors(PlainTextResponse("reached", headers=named), lambda: origins))


def test_a_preflight_of_a_configured_origin_needs_no_key_and_goes_no_further() -> None:
    answer = client(ORIGIN).options("/v1/chat/completions", headers=PREFLIGHT)

    assert (answer.status_code, answer.text) == (204, "")
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "authorization" in answer.headers["access-control-allow-headers"]
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "origin" in answer.headers["vary"]
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("origins", [(), ("https://other.example",), ("https://app.example.evil",)])
def test_a_preflight_of_any_other_origin_is_refused_in_silence(origins: tuple[str, ...]) -> None:
    answer = client(*origins).options("/v1/chat/completions", headers=PREFLIGHT)

    assert (answer.status_code, answer.text) == (405, "")
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_a_call_of_a_configured_origin_may_read_our_headers() -> None:
    answer = client(ORIGIN).get("/v1/models", headers={"origin": ORIGIN})

    assert answer.text == "reached"
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "x-gateway-snapshot-id" in answer.headers["access-control-expose-headers"]
    assert "x-request-id" in answer.headers["access-control-expose-headers"]
    assert "origin" in answer.headers["vary"]


def test_a_call_of_another_origin_is_answered_without_leave_to_read_it() -> None:
    answer = client(ORIGIN).get("/v1/models", headers={"origin": "https://other.example"})

    assert answer.text == "reached"
    assert "access-control-allow-origin" not in answer.headers
    assert "origin" in answer.headers["vary"]


def test_the_providers_own_leave_does_not_travel() -> None:
    answer = client(ORIGIN, access_control_allow_origin="*").get("/v1/models", headers={"origin": "https://other.example"})

    assert "access-control-allow-origin" not in answer.headers


def test_a_star_allows_every_origin_without_credentials() -> None:
    answer = client("*").options("/v1/chat/completions", headers=PREFLIGHT)

    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "access-control-allow-credentials" not in answer.headers


def test_options_that_are_no_preflight_reach_the_application() -> None:
    assert client(ORIGIN).options("/v1/models").text == "reached"
