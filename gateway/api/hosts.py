"""Whether a name or an address is this machine's own, and what a request says of where it was meant to go."""

import ipaddress
from collections.abc import Iterable

# Whoever put these there is not the one at the other end of the connection, so a loopback peer says nothing.
FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"})


def asks_for_loopback(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    headers = tuple(headers)
    hosts = [value for name, value in headers if name == b"host"]
    return not any(name in FORWARDED for name, _ in headers) and all(is_loopback(_host(value)) for value in hosts)


def _host(value: bytes) -> str:
    """Return the host of a Host header without its port."""
    text = value.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def is_loopback(host: str | None) -> bool:
    if host is None:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
