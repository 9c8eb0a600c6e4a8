"""Text that must not show itself."""

import copy
import pickle

import pytest

from gateway.settings.values import Address, Secret


@pytest.mark.parametrize("shown", [repr, str, "{}".format, "{0!r}".format, lambda each: "%s" % each, lambda each: repr([each])])  # noqa: UP031
def test_a_secret_never_shows_itself(shown: object) -> None:
    assert callable(shown)
    assert "sk-1" not in shown(Secret("sk-1"))


def test_a_secret_is_its_text() -> None:
    assert Secret("sk-1").reveal() == "sk-1"
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1


def test_copies_are_secrets_too() -> None:
    assert [Secret("a")] * 2 == [copy.deepcopy(Secret("a")), pickle.loads(pickle.dumps(Secret("a")))]


@pytest.mark.parametrize(
    ("url", "display"),
    [
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("redis://user:p@ss@h:6379/0?password=x", "redis://h:6379/0"),
        ("sqlite:gateway.db", "sqlite:gateway.db"),
        ("sqlite:///a/b.db?key=x", "sqlite:///a/b.db"),
    ],
)
def test_an_address_shows_no_password(url: str, display: str) -> None:
    assert display == Address(url).display == str(Address(url))
    assert repr(display) in repr(Address(url))
    assert url == Address(url).reveal()
