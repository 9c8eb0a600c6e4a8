import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from gateway.api.guard import PAGES, POLICY, Marked, SameOrigin, is_foreign, is_unasked

HOST = (b"host", b"gw.example:4100")


@pytest.mark.parametrize(
    ("headers", "foreign"),
    [
        ([HOST], False),  # a program
        ([HOST, (b"sec-fetch-site", b"same-origin")], False),
        ([HOST, (b"sec-fetch-site", b"none")], False),
        ([HOST, (b"sec-fetch-site", b"cross-site"), (b"origin", b"http://gw.example:4100")], True),
        ([HOST, (b"sec-fetch-site", b"same-site")], True),
        ([HOST, (b"origin", b"http://gw.example:4100")], False),
        ([HOST, (b"origin", b"http://GW.example:4100")], False),
        ([HOST, (b"origin", b"http://gw.example:4101")], True),
        ([HOST, (b"origin", b"http://gw.example")], True),
        ([HOST, (b"origin", b"null")], True),
        ([(b"origin", b"http://evil.example")], True),
    ],
)
def test_whose_page_asks(headers: list[tuple[bytes, bytes]], foreign: bool) -> None:
    assert foreign == is_foreign(headers)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_foreign_page_changes_nothing(method: str) -> None:
    client = TestClient(SameOrigin(PlainTextResponse("done")))

    assert client.request(method, "/", headers={"origin": "https://evil.example"}).status_code == 403
    assert client.request(method, "/").text == "done"
    assert client.get("/", headers={"origin": "https://evil.example"}).text == "done"


@pytest.mark.parametrize(
    ("headers", "origins", "unasked"),
    [
        ([], (), False),
        ([(b"origin", b"https://evil.example")], (), True),
        ([(b"origin", b"https://page.example")], ("https://page.example",), False),
        ([(b"origin", b"https://any.example")], ("*",), False),
        ([(b"host", b"rebound.example:4100"), (b"origin", b"http://rebound.example:4100")], (), True),
        ([(b"host", b"127.0.0.1:4100"), (b"origin", b"http://127.0.0.1:4100")], (), False),
        ([(b"host", b"127.0.0.1:4100"), (b"origin", b"http://localhost:3000")], (), True),
        ([(b"origin", b"null")], (), True),
        ([(b"origin", b"http://[oops")], (), True),
    ],
)
def test_which_pages_may_call_a_gateway_without_keys(
    headers: list[tuple[bytes, bytes]], origins: tuple[str, ...], unasked: bool
) -> None:
    assert unasked == is_unasked(headers, origins)


def test_pages_run_no_inline_script_and_keep_their_own_headers() -> None:
    own = PlainTextResponse("in", headers={"referrer-policy": "same-origin"})

    headers = TestClient(Marked(own, PAGES)).get("/").headers

    assert POLICY.decode() == headers["content-security-policy"]
    assert not any(word in headers["content-security-policy"] for word in ("unsafe-inline", "unsafe-eval", "*", "http"))
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "same-origin")
