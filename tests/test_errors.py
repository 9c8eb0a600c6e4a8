import inspect

import pytest

from gateway import errors
from gateway.errors import GatewayError, UpstreamRefused

TREE = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, GatewayError)]


@pytest.mark.parametrize("kind", TREE)
def test_every_error_is_drawn_in_the_tree(kind: type[GatewayError]) -> None:
    assert kind.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize("kind", [each for each in TREE if each is not UpstreamRefused])
def test_every_error_has_what_an_answer_needs(kind: type[GatewayError]) -> None:
    made = kind("what was wrong")

    assert made.message == str(made) == "what was wrong"
    assert 400 <= made.status < 600
    assert made.code
    assert made.type


def test_a_refusal_keeps_the_providers_status_and_shows_no_body() -> None:
    made = UpstreamRefused(status=400, body=b'{"secret": 1}', target="up/m", headers={"retry-after": "1"})

    assert made.upstream_status == 400
    assert made.body == b'{"secret": 1}'
    assert "secret" not in str(made)
