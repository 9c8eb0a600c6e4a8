from gateway.cache.expect import LIFETIME_S, Expectations

LINKS = [bytes([n]) * 32 for n in range(4)]
SIZES = [600, 600, 600, 600]


def test_a_prefix_that_was_sent_is_expected_up_to_its_last_item() -> None:
    cache = Expectations()
    cache.sent("p/m", b"tools", LINKS[:2], now=0.0)

    assert cache.expected("p/m", b"tools", LINKS, SIZES, 100, now=1.0) == 1_300


def test_nothing_is_expected_elsewhere_or_with_other_tools() -> None:
    cache = Expectations()
    cache.sent("p/m", b"tools", LINKS, now=0.0)

    assert cache.expected("q/m", b"tools", LINKS, SIZES, 100, now=1.0) == 0
    assert cache.expected("p/m", b"other", LINKS, SIZES, 100, now=1.0) == 0


def test_a_prefix_below_the_minimum_is_not_expected() -> None:
    cache = Expectations()
    cache.sent("p/m", b"", LINKS[:1], now=0.0)

    assert cache.expected("p/m", b"", LINKS, SIZES, 0, now=1.0) == 0


def test_a_prefix_expires_and_use_refreshes_it() -> None:
    cache = Expectations()
    cache.sent("p/m", b"", LINKS[:2], now=0.0)
    cache.sent("p/m", b"", LINKS[:3], now=LIFETIME_S - 1)

    assert cache.expected("p/m", b"", LINKS[:2], SIZES, 0, now=LIFETIME_S + 60) == 1_200
    assert cache.expected("p/m", b"", LINKS[:2], SIZES, 0, now=3 * LIFETIME_S) == 0


def test_memory_is_bounded() -> None:
    cache = Expectations(capacity=3)
    cache.sent("p/m", b"", LINKS, now=0.0)

    assert len(cache._seen) == 3
