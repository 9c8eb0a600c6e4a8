from hashlib import sha1

from gateway.ledger.lua import APPEND, APPEND_SHA
from tests.ledger.server import RedisServer

STREAM, PREFIX = "{gw:0}:ledger", "{gw:0}:"
A, B, C = "a" * 64, "b" * 64, "c" * 64
RECORD = ("i1", "T", "s1", "{}")


def append(server: RedisServer, checked: str, *given: str) -> bytes:
    return server.says("EVAL", APPEND.decode(), "1", STREAM, PREFIX, "g", checked, str(len(given) // 2), *given, *RECORD)


def test_the_name_is_what_redis_computes(shared: RedisServer) -> None:
    assert shared.says("SCRIPT", "LOAD", APPEND.decode()) == b"$40\r\n%s\r\n" % APPEND_SHA.encode()
    assert sha1(APPEND).hexdigest() == APPEND_SHA


def test_missing_bodies_are_answered_and_nothing_is_written(shared: RedisServer) -> None:
    shared.says("SET", PREFIX + "body:" + B, "x")

    assert append(shared, A + B + C) == b"*2\r\n$64\r\n%s\r\n$64\r\n%s\r\n" % (A.encode(), C.encode())
    assert shared.says("DBSIZE") == b":1\r\n"


def test_missing_bodies_are_found_beyond_the_thousandth(shared: RedisServer) -> None:
    shared.says("SET", PREFIX + "body:" + B, "x")

    assert append(shared, B * 1_500 + C) == b"*1\r\n$64\r\n%s\r\n" % C.encode()


def test_a_record_is_written_once_and_a_body_never_again(shared: RedisServer) -> None:
    assert append(shared, "", A, "first") == b":1\r\n"
    assert append(shared, A) == b":1\r\n"
    assert append(shared, "", A, "second") == b":1\r\n"

    assert shared.says("XLEN", STREAM) == b":1\r\n"
    assert shared.says("GET", PREFIX + "body:" + A) == b"$5\r\nfirst\r\n"
