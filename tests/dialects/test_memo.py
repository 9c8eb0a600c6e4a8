import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.items import Item, Kind, Tool
from gateway.dialects.chat import Memo, parse
from gateway.dialects.memo import CANDIDATES, HEAD_BYTES, Seen, _Cache
from gateway.errors import RequestError

HEAD = json.dumps({"role": "system", "content": "x" * HEAD_BYTES}).encode()
MESSAGES = [b'{"role":"user","content":"%d"}' % n for n in range(3)]
MESSAGES += [b'{"role":"user","content":"\\ud83d"}', '{"n":"é"}'.encode()]
STARTS = [b'{"model":"m","messages":[', b'{"messages": [ ', b'{"tools":[{"name":"t"}],"messages":[']
ENDS = [b"]}", b'],"model":"m"}', b' ] , "model":"m","tools":[{"name":"u"}]}', b'],"stream":true,"model":"m"} ']
BROKEN = [
    b"",
    b"]",
    b",]}",
    b"}}",
    b"]]}",
    b'],"messages":[],"model":"m"}',
    b'],"model":"m","model":"m"}',
    b',7],"model":"m"}',
    b',{"a":1,"a":2}],"model":"m"}',
    b'],"model":"m","x":{"a":1,"a":2}}',
    b'],"model":"m","x":NaN}',
    b'],"model":"\xff"}',
    b"],'model':1}",
]


def outcome(body: bytes, memo: Memo) -> object:
    try:
        request = parse(body, memo)
    except RequestError as error:
        return type(error), error.message, error.param
    assert body == request.body()
    return request


@st.composite
def talks(draw: st.DrawFn) -> bytes:
    body = draw(st.sampled_from(STARTS)) + HEAD
    for message in draw(st.lists(st.sampled_from(MESSAGES), max_size=5)):
        body += draw(st.sampled_from([b",", b",", b" ,\n"])) + message
    return body + draw(st.sampled_from(ENDS + BROKEN))


@settings(max_examples=150, deadline=None)
@given(st.lists(talks(), min_size=2, max_size=8))
def test_a_memo_never_changes_what_is_parsed_or_refused(bodies: list[bytes]) -> None:
    memo = Memo()
    for body in [*bodies, *bodies]:
        assert outcome(body, Memo()) == outcome(body, memo)


@pytest.mark.parametrize("end", BROKEN)
def test_an_illegal_tail_is_refused_as_ever(end: bytes) -> None:
    memo, start = Memo(), STARTS[0].replace(b'"model":"m",', b"") + HEAD + b"," + MESSAGES[0]
    parse(start + ENDS[1], memo)

    assert memo.knows(start + end)
    with pytest.raises(RequestError) as plain:
        parse(start + end, Memo())
    with pytest.raises(RequestError) as known:
        parse(start + end, memo)
    assert plain.value.message == known.value.message


def test_a_longer_talk_reuses_the_items_of_a_shorter_one() -> None:
    memo, start = Memo(), STARTS[0] + HEAD
    first = parse(start + ENDS[0], memo)
    second = parse(start + b"," + MESSAGES[0] + ENDS[0], memo)
    other = parse(start + b"," + MESSAGES[1] + ENDS[0], memo)

    assert first.items[0] is second.items[0] is other.items[0]


def seen(*parts: bytes) -> Seen:
    items = tuple(Item(raw=part, digest=b"", kind=Kind.USER, role="user") for part in parts)
    ends = tuple(sum(len(each) for each in parts[: n + 1]) for n in range(len(parts)))
    return Seen(b"".join(parts), (), items, (b"",) * len(parts), ends)


@pytest.mark.parametrize(
    ("body", "count"), [(b"abcdef", 3), (b"abcdefgh", 3), (b"abcdeX", 2), (b"abX", 1), (b"X", 0), (b"", 0), (b"abcd", 2)]
)
def test_the_shared_items_are_counted(body: bytes, count: int) -> None:
    assert count == seen(b"ab", b"cd", b"ef").shared(body)


def test_the_longest_known_talk_is_taken_among_many() -> None:
    memo, head = Memo(), b"h" * HEAD_BYTES
    for n in range(CANDIDATES):
        memo.remember(seen(head, b"%04d" % n))
    memo.remember(seen(head, b"0007", b"more"))

    found = memo.longest(head + b"0007more and more")
    assert found is not None
    assert found[0].ends == (HEAD_BYTES, HEAD_BYTES + 4, HEAD_BYTES + 8)
    assert memo.longest(b"x" + head) is None
    assert memo.longest(head) is None


def test_a_talk_that_was_continued_is_let_go() -> None:
    memo, head = Memo(), b"h" * HEAD_BYTES
    first, second = seen(head, b"a"), seen(head, b"a", b"b")
    memo.remember(first)
    memo.remember(second, instead_of=first)

    assert memo.longest(head + b"aX") == (second, 2)


def test_what_is_kept_is_bounded_and_what_is_used_stays() -> None:
    cache = _Cache[int](40_000)
    for n in range(1_000):
        cache.put(b"%d" % n, n, 1_000)
        assert cache.get(b"0") == 0

    assert sum(size for part in (cache._young, cache._old) for _, size in part.values()) <= 40_000
    assert cache.get(b"1") is None
    assert cache.get(b"999") == 999


def test_the_same_entry_again_takes_no_more_room() -> None:
    cache = _Cache[int](40_000)
    cache.put(b"first", 1, 1_000)
    for n in range(1_000):
        cache.put(b"again", n, 1_000)

    assert cache.get(b"first") == 1


def test_one_huge_value_is_not_kept() -> None:
    memo, made = Memo(limit_bytes=16_000), []

    def make(raw: bytes) -> tuple[Tool, ...]:
        made.append(raw)
        return ()

    for raw in (b"x" * 2_000, b"x" * 2_000, b"y", b"y"):
        memo.value(raw, make)

    assert len(made) == 3
