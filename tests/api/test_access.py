import base64
import hashlib
from dataclasses import dataclass

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from gateway.api.access import AdminOnly, Caller, admin, allows, authorise
from gateway.api.sessions import COOKIE, LIFE_S, issue
from gateway.errors import InvalidKey


@dataclass(frozen=True)
class StoredKey:
    name: str
    sha256: str
    routes: tuple[str, ...] = ("*",)
    tenant: str = ""
    audience: tuple[str, ...] = ()


def stored(name: str, key: str, **more: tuple[str, ...]) -> StoredKey:
    return StoredKey(name=name, sha256=hashlib.sha256(key.encode()).hexdigest(), tenant=f"tenant-{name}", **more)


KEYS = (stored("a", "gw-a", routes=("chat-*",)), stored("b", "gw-b", audience=("internal",)))


@pytest.mark.parametrize(
    "headers",
    [
        [(b"authorization", b"Bearer gw-b")],
        [(b"authorization", b"bearer  gw-b ")],
        [(b"x-api-key", b"gw-b")],
        [(b"api-key", b"gw-b")],
        [(b"authorization", b"Bearer sdk-placeholder"), (b"x-api-key", b"gw-b")],
        [(b"authorization", b"Bearer gw-b"), (b"x-api-key", b"cl-1"), (b"api-key", b"cl-2")],
    ],
)
def test_a_known_key_in_any_header_is_its_caller(headers: list[tuple[bytes, bytes]]) -> None:
    assert Caller(name="b", tenant="tenant-b", routes=("*",), audience=("internal",)) == authorise(headers, KEYS)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", b"gw-b")],
        [(b"authorization", b"Basic gw-b")],
        [(b"x-api-key", b"")],
        [(b"x-api-key", "gw-\u00fc".encode())],
        [(b"cookie", b"gw-b")],
        [(b"x-api-key", KEYS[1].sha256.encode())],
    ],
)
def test_anything_else_is_refused_without_telling_it(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(InvalidKey) as caught:
        authorise(headers, KEYS)

    assert all(word in caught.value.message for word in ("Authorization: Bearer", "x-api-key", "api-key"))
    assert "gw-" not in caught.value.message


def test_hashes_may_be_written_in_capitals() -> None:
    key = StoredKey(name="c", sha256=KEYS[0].sha256.upper())

    assert authorise([(b"x-api-key", b"gw-a")], [key]).name == "c"


def test_without_keys_everyone_may_use_everything() -> None:
    caller = authorise([], ())

    assert (caller.name, allows(caller, "any")) == ("", True)


def test_routes_are_globs() -> None:
    caller = authorise([(b"x-api-key", b"gw-a")], KEYS)

    assert [allows(caller, name) for name in ("chat-small", "Chat-small", "batch")] == [True, False, False]


LOCAL = [(b"host", b"127.0.0.1:4100")]


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", "127.9.9.9", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("host", [b"127.0.0.1:4100", b"localhost:4100", b"LOCALHOST", b"[::1]:4100", b"gw.localhost"])
def test_without_an_admin_key_loopback_is_let_in(peer: str, host: bytes) -> None:
    admin([(b"host", host)], None, peer)


@pytest.mark.parametrize(
    ("headers", "peer"),
    [
        (LOCAL, "10.0.0.7"),
        (LOCAL, None),
        (LOCAL, "unix"),
        ([(b"host", b"rebound.example:4100")], "127.0.0.1"),
        ([*LOCAL, (b"x-forwarded-for", b"1.2.3.4")], "127.0.0.1"),
        ([*LOCAL, (b"authorization", b"Bearer ")], "10.0.0.7"),
    ],
)
def test_without_an_admin_key_all_others_stay_out(headers: list[tuple[bytes, bytes]], peer: str | None) -> None:
    with pytest.raises(InvalidKey, match="loopback"):
        admin(headers, None, peer)


def basic(password: str) -> bytes:
    return b"Basic " + base64.b64encode(b"anyone:" + password.encode())


@pytest.mark.parametrize("name", [b"authorization", b"x-api-key"])
def test_the_admin_key_opens_from_anywhere(name: bytes) -> None:
    admin([(name, b"Bearer ad-min" if name == b"authorization" else b"ad-min")], "ad-min", "10.0.0.7")


def test_the_admin_key_opens_as_a_password() -> None:
    admin([(b"authorization", basic("ad:min"))], "ad:min", "10.0.0.7")


@pytest.mark.parametrize("value", [b"Bearer gw-a", basic("gw-a"), b"Basic !!", b"Basic \xff", b"", basic("")])
def test_another_key_does_not_open_even_on_loopback(value: bytes) -> None:
    with pytest.raises(InvalidKey) as caught:
        admin([*LOCAL, (b"authorization", value)], "ad-min", "127.0.0.1")

    assert "ad-min" not in caught.value.message


NOW = 1_800_000_000.0


def guarded(key: str | None, *, now: float = NOW) -> TestClient:
    app = AdminOnly(PlainTextResponse("in"), lambda: key, clock=lambda: now)
    return TestClient(app, client=("10.0.0.7", 1), follow_redirects=False)


def test_the_guard_sends_browsers_to_the_form_and_programs_away() -> None:
    page = guarded("one").get("/dashboard?route=a&since=1", headers={"accept": "text/html,*/*"})
    assert (page.status_code, page.headers["location"]) == (303, "/dashboard/login?next=%2Fdashboard%3Froute%3Da%26since%3D1")

    refused = guarded("one").get("/dashboard")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Bearer ")


def test_the_guard_follows_a_reload() -> None:
    keys = ["one"]
    client = TestClient(AdminOnly(PlainTextResponse("in"), lambda: keys[0]))

    assert client.get("/dashboard", auth=("anyone", "one")).text == "in"
    keys[0] = "two"
    assert client.get("/dashboard", auth=("anyone", "one")).status_code == 401


def test_a_session_opens_until_it_ends_or_the_key_changes() -> None:
    cookie = {"cookie": f"theme=dark; {COOKIE}=forged; {COOKIE}={issue('one', NOW, 'n')}"}

    assert guarded("one").get("/dashboard", headers=cookie).text == "in"
    assert guarded("one", now=NOW + LIFE_S).get("/dashboard", headers=cookie).status_code == 401
    assert guarded("two").get("/dashboard", headers=cookie).status_code == 401
    assert guarded(None).get("/dashboard", headers=cookie).status_code == 401


def test_the_guard_does_not_ask_for_a_key_that_does_not_exist() -> None:
    refused = guarded(None).get("/dashboard", headers={"accept": "text/html"})

    assert refused.status_code == 401
    assert "www-authenticate" not in refused.headers
