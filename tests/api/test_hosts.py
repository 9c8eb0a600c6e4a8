import pytest

from gateway.api.hosts import asks_for_loopback, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost", "gw.localhost"])
def test_names_of_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", [None, "", "10.0.0.7", "::", "0.0.0.0", "localhost.example", "127.0.0.1.example", "2130706433"])
def test_names_of_others(host: str | None) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("headers", "asked"),
    [
        ([(b"host", b"[::1]:4100")], True),
        ([(b"host", b"LOCALHOST:4100")], True),
        ([(b"host", b"evil.example")], False),
        ([(b"host", b"localhost"), (b"host", b"evil.example")], False),
        ([(b"host", b"localhost"), (b"forwarded", b"for=1.2.3.4")], False),
    ],
)
def test_what_a_request_asks_for(headers: list[tuple[bytes, bytes]], asked: bool) -> None:
    assert asked == asks_for_loopback(iter(headers))
