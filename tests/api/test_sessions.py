import hashlib
import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from gateway.api.sessions import COOKIE, FORM_BYTES, HOME, LIFE_S, LOGIN_PATH, Sessions, holds, issue, local, tokens

NOW = 1_800_000_000.0
TOKEN = issue("boss", NOW, "nonce")


def test_a_token_holds_until_its_end_under_its_own_key() -> None:
    assert holds(TOKEN, "boss", NOW + LIFE_S - 1)
    assert not holds(TOKEN, "boss", NOW + LIFE_S)
    assert not holds(TOKEN, "other", NOW)
    assert "boss" not in TOKEN


@given(st.text(max_size=120))
def test_no_other_text_is_a_token(text: str) -> None:
    assert not holds(text, "boss", NOW) or text == TOKEN


@given(st.integers(0, len(TOKEN) - 1), st.sampled_from("0123456789abcdef.é"))
def test_no_changed_token_holds(place: int, letter: str) -> None:
    changed = TOKEN[:place] + letter + TOKEN[place + 1 :]

    assert holds(changed, "boss", NOW) == (changed == TOKEN)


def test_every_cookie_of_the_name_is_looked_at() -> None:
    headers = [(b"cookie", f"a=1; {COOKIE}=x;{COOKIE}=y=z".encode()), (b"cookie", b"\xff; =; gateway_sessions=no")]

    assert tokens(headers) == ["x", "y=z"]


@pytest.mark.parametrize("path", ["/dashboard", "/dashboard/calls?route=a%2Fb&x=1#top", "/"])
def test_the_login_leads_on_to_our_own_pages(path: str) -> None:
    assert path == local(path)


@pytest.mark.parametrize(
    "path",
    ["", "//evil.example", "/\\evil.example", "https://evil.example", "/\t/evil.example", "javascript:alert(1)", "\\/x", "/\x00"],
)
def test_the_login_leads_nowhere_else(path: str) -> None:
    assert local(path) == HOME


@contextmanager
def client(key: str | None = "boss", base: str = "http://gw.example") -> Iterator[TestClient]:
    sessions = Sessions(lambda: key, clock=lambda: NOW, nonce=lambda: "nonce")
    app = Starlette(
        routes=[
            Route(LOGIN_PATH, sessions.login, methods=["GET", "POST"]),
            Route("/dashboard/logout", sessions.logout, methods=["POST"]),
        ]
    )
    with TestClient(app, base_url=base, follow_redirects=False) as made:
        yield made


def test_the_form_holds_no_script_and_its_style_is_the_one_allowed() -> None:
    with client() as http:
        page = http.get(LOGIN_PATH, params={"next": '/dashboard?q="><script>alert(1)</script>'})

    assert page.status_code == 200
    assert "<script" not in page.text
    style = re.search(r"<style>(.*)</style>", page.text)
    assert style is not None
    assert f"'sha256-{b64encode(hashlib.sha256(style[1].encode()).digest()).decode()}'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]


def test_the_right_key_sets_a_cookie_that_scripts_and_other_sites_do_not_get() -> None:
    with client() as http:
        answer = http.post(LOGIN_PATH, data={"key": "boss", "next": "/dashboard?route=a"})

    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard?route=a")
    cookie = answer.headers["set-cookie"]
    assert all(word in cookie for word in (f"{COOKIE}={TOKEN}", "HttpOnly", "SameSite=lax", "Path=/", f"Max-Age={LIFE_S}"))
    assert "Secure" not in cookie


@pytest.mark.parametrize(("base", "headers"), [("https://gw.example", {}), ("http://gw.example", {"x-forwarded-proto": "https"})])
def test_over_tls_the_cookie_stays_on_tls(base: str, headers: dict[str, str]) -> None:
    with client(base=base) as http:
        assert "Secure" in http.post(LOGIN_PATH, data={"key": "boss"}, headers=headers).headers["set-cookie"]


@pytest.mark.parametrize("form", [{"key": "boss2"}, {"key": ""}, {}, {"key": "\ud800".encode("utf-8", "surrogatepass")}])
def test_a_wrong_key_gets_the_form_again(form: dict[str, str]) -> None:
    with client() as http:
        answer = http.post(LOGIN_PATH, data=form)

    assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
    assert "not the admin key" in answer.text
    assert "boss" not in answer.text


def test_a_foreign_page_neither_logs_in_nor_out() -> None:
    with client() as http:
        for path in (LOGIN_PATH, "/dashboard/logout"):
            answer = http.post(path, data={"key": "boss"}, headers={"origin": "https://evil.example"})
            assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


def test_a_long_form_is_not_read() -> None:
    with client() as http:
        assert http.post(LOGIN_PATH, content=b"x" * (FORM_BYTES + 1)).status_code == 413


def test_logging_out_takes_the_cookie_back_and_is_no_link() -> None:
    with client() as http:
        answer = http.post("/dashboard/logout")
        assert http.get("/dashboard/logout").status_code == 405

    assert (answer.status_code, answer.headers["location"]) == (303, LOGIN_PATH)
    assert "Max-Age=0" in answer.headers["set-cookie"]


def test_without_an_admin_key_there_is_nothing_to_log_in_to() -> None:
    with client(key=None) as http:
        assert http.post(LOGIN_PATH, data={"key": ""}).headers["location"] == HOME
