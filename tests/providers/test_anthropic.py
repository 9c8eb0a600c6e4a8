from typing import Any

import pytest

from gateway.providers import anthropic
from gateway.providers.base import Headers, Outgoing
from tests.providers.test_openai import sends

ASKED: Headers = (("content-type", "application/json"), ("x-api-key", "clients-own"), ("authorization", "Bearer clients-own"))


def head_of(base: str, headers: Headers = ASKED, **endpoint: Any) -> str:
    server = sends(Outgoing(path="messages", body=b"{}", headers=headers), base=base, make=anthropic.upstream, **endpoint)
    return server.heads[-1].lower()


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/"])
def test_the_address_may_end_in_v1_or_not(base: str) -> None:
    assert (head_of(base)).startswith("post /v1/messages http")


def test_the_key_goes_as_its_own_header_and_the_clients_stays_here() -> None:
    head = head_of("", key="ours")

    assert "x-api-key: ours\r\n" in head
    assert "clients-own" not in head
    assert "authorization" not in head


def test_the_clients_own_key_goes_on_in_either_style_where_it_is_wanted() -> None:
    head = head_of("", client_key=True, key=None)

    assert "x-api-key: clients-own\r\n" in head
    assert "authorization: bearer clients-own\r\n" in head


def test_a_version_is_named_where_the_client_names_none() -> None:
    versioned = (*ASKED, ("anthropic-version", "2026-10-21"), ("anthropic-beta", "a,b"))

    assert "anthropic-version: 2023-06-01\r\n" in head_of("")
    head = head_of("", versioned)
    assert "anthropic-version: 2026-10-21\r\n" in head
    assert "anthropic-beta: a,b\r\n" in head
    assert head.count("anthropic-version") == 1
