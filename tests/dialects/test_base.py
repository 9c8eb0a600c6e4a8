"""The contract of a dialect, run on every one of them."""

import json
from collections.abc import Mapping

import pytest

from gateway.dialects.base import Dialect
from gateway.dialects.memo import Memo
from gateway.dialects.table import DIALECTS
from gateway.errors import InvalidRequest

BODIES: Mapping[str, bytes] = {
    "chat": b'{ "model":"m", "messages" : [ {"role":"system","content":"S"} , {"role":"user","content":"Hi"} ],"seed":1.0 }',
    "messages": b'{ "model":"m", "max_tokens":1e2,"messages" : [ {"role":"user","content":"Hi"} ],"system" : "S" }',
}
pytestmark = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))


def test_a_body_comes_back_byte_for_byte(dialect: Dialect) -> None:
    request = dialect.parse(BODIES[dialect.name], Memo())

    assert BODIES[dialect.name] == request.body()
    assert request.model == "m"
    assert [dialect.texts(item) for item in request.items] == [("S",), ("Hi",)]


def test_the_gateway_object_is_taken_out_and_nothing_else(dialect: Dialect) -> None:
    whole = BODIES[dialect.name].rstrip(b"} ") + b',"gateway":{"session":"s"} }'

    request, extras = dialect.without_gateway(dialect.parse(whole, Memo()))

    assert extras == {"session": "s"}
    assert json.loads(BODIES[dialect.name]) == json.loads(request.body())
    with pytest.raises(InvalidRequest):
        dialect.without_gateway(dialect.parse(BODIES[dialect.name].rstrip(b"} ") + b',"gateway":7}', Memo()))


def test_an_error_event_is_read_as_an_error_and_as_no_end(dialect: Dialect) -> None:
    event = dialect.error_event("it broke", code="upstream_error", type="upstream_error")
    answer = dialect.read_stream(event)

    assert event.endswith(b"\n\n")
    assert answer.error == "it broke"
    assert not dialect.ended(answer)
    assert not dialect.ended(dialect.read_stream(b""))


def test_an_error_body_is_read_as_an_error(dialect: Dialect) -> None:
    assert dialect.read_reply(dialect.error_body(InvalidRequest("no"))).error == "no"


def test_bytes_that_are_no_answer_are_told_and_do_not_raise(dialect: Dialect) -> None:
    assert not dialect.read_reply(b"<html>").readable
    assert dialect.read_stream(b"data: {\n\n").error
