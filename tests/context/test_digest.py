"""The chain stands for all that came before, in order."""

import hashlib

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.digest import EMPTY, chain, digest, link

DIGESTS = st.lists(st.binary(max_size=4).map(digest), max_size=8)


def test_a_digest_is_the_sha256_of_the_bytes() -> None:
    assert digest(b"abc") == hashlib.sha256(b"abc").digest()
    assert bytes(32) == EMPTY


@given(DIGESTS, DIGESTS)
@settings(max_examples=80, deadline=None)
def test_a_chain_goes_on_from_its_end(first: list[bytes], more: list[bytes]) -> None:
    start = chain(first)

    assert chain([*first, *more]) == start + chain(more, start[-1] if start else EMPTY)


@given(DIGESTS, DIGESTS)
@settings(max_examples=80, deadline=None)
def test_two_chains_share_links_only_as_far_as_their_items_are_equal(one: list[bytes], other: list[bytes]) -> None:
    for at, (left, right) in enumerate(zip(chain(one), chain(other), strict=False), 1):
        assert (left == right) == (one[:at] == other[:at])


def test_order_and_nesting_count() -> None:
    a, b = digest(b"a"), digest(b"b")

    assert len({link(a, b), link(b, a), link(EMPTY, a), chain([a, b])[-1]}) == 4
