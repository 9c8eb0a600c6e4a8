"""Edits at the top level of a body leave every other byte alone."""

import json

import pytest

from gateway.context import edits
from gateway.dialects.chat import parse
from tests.context.talks import MEMO, policy


@pytest.mark.parametrize(
    "options", [b'{"x":1e400,"include_usage":false}', b'{ "include_usage" : null , "x" : 1e400 }', b'{"x":1e400}']
)
def test_other_stream_options_keep_their_digits(options: bytes) -> None:
    body = b'{"model":"m","stream":true,"stream_options":%b,"messages":[]}' % options
    made = edits.spelled(parse(body, MEMO), policy(ask_usage=True))
    value = made.value("stream_options") or b""

    assert b"1e400" in value
    assert json.loads(value)["include_usage"] is True
    assert value.count(b"include_usage") == 1


def test_options_that_are_no_object_are_the_providers_to_refuse() -> None:
    made = parse(b'{"model":"m","stream":true,"stream_options":[],"messages":[]}', MEMO)

    assert edits.spelled(made, policy(ask_usage=True)) is made


def test_a_renamed_limit_is_still_the_one_that_shrinks() -> None:
    rule = policy(1_000, shrink_output=True, rename_fields=(("max_tokens", "max_completion_tokens"),))
    made = edits.spelled(parse(b'{"max_tokens":900,"model":"m","messages":[]}', MEMO), rule)
    made = edits.shrunk(made, 600, rule)

    assert made.value("max_completion_tokens") == b"400"
    assert made.output_limit == 400


def test_both_limits_shrink_when_both_are_there() -> None:
    rule = policy(1_000, shrink_output=True)
    made = parse(b'{"max_tokens":950,"max_completion_tokens":900,"model":"m","messages":[]}', MEMO)
    made = edits.shrunk(made, 600, rule)

    assert (made.value("max_tokens"), made.value("max_completion_tokens")) == (b"400", b"400")


def test_a_limit_of_thousands_of_digits_shrinks_too() -> None:
    rule = policy(1_000, shrink_output=True)
    made = parse(b'{"max_tokens":%b,"max_completion_tokens":900,"model":"m","messages":[]}' % (b"9" * 5_000), MEMO)

    assert edits.shrunk(made, 600, rule).value("max_tokens") == b"400"
