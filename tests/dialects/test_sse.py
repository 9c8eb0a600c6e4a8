import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.sse import Splitter, events, strip_usage

ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A stream of whole events in one framing, and their data."""
    end, data = draw(ENDS), []
    stream = draw(st.sampled_from([b"", b": hello" + end + end]))
    for _ in range(draw(st.integers(0, 5))):
        lines = draw(st.lists(st.binary(min_size=1, max_size=6).map(lambda b: re.sub(rb"[\r\n]", b"x", b)), min_size=1, max_size=2))
        stream += draw(st.sampled_from([b"", b"event: e" + end])) + b"".join(b"data: " + line + end for line in lines) + end
        data.append(b"\n".join(lines))
    return stream, data


@settings(max_examples=200)
@given(streams(), st.lists(st.integers(1, 7), max_size=200))
def test_any_chunking_gives_the_same_events(stream: tuple[bytes, list[bytes]], sizes: list[int]) -> None:
    data, expected = stream
    splitter, blocks, position = Splitter(), [], 0
    for size in [*sizes, len(data)]:
        blocks.append(splitter.feed(data[position : position + size]))
        position += size

    assert data == b"".join(blocks) + splitter.rest
    assert expected == [event for block in blocks for event in events(block)]
    assert splitter.rest.strip(b"\r\n") == b""


@settings(max_examples=100)
@given(st.lists(st.sampled_from([b"\r", b"\n", b"a", b"\r\n", b"b\n\n"]), max_size=12))
def test_no_byte_is_lost_and_no_event_is_cut(parts: list[bytes]) -> None:
    splitter = Splitter()
    blocks = [splitter.feed(part) for part in parts]

    assert b"".join(parts) == b"".join(blocks) + splitter.rest
    assert all(block.endswith((b"\n", b"\r")) for block in blocks if block)


def test_a_finished_event_is_not_held_back() -> None:
    splitter = Splitter()

    assert splitter.feed(b"data: 1\r\n") == b""
    assert splitter.feed(b"\r") == b"data: 1\r\n\r"
    assert splitter.feed(b"\ndata: 2\n\ndata: 3") == b"\ndata: 2\n\n"
    assert splitter.rest == b"data: 3"
    assert splitter.feed(b"\n") == b""
    assert splitter.feed(b"\n") == b"data: 3\n\n"


def test_text_is_not_cut_at_other_line_breaks() -> None:
    data = "data: a\u2028b\u2029c\u0085d\x0be\x1cf\n\n".encode()

    assert list(events(data)) == [data[6:-2]]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b": ping\n\n", []),
        (b"event: ping\n\n", []),
        (b"data:\n\n", []),
        (b"data:x\n\n", [b"x"]),
        (b"data:  x\n\n", [b" x"]),
        (b"id: 1\ndata: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\n\ndata: [DONE]", [b"a", b"[DONE]"]),
    ],
)
def test_data_of_events(data: bytes, expected: list[bytes]) -> None:
    assert expected == list(events(data))


CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"A"}}]%s}%s'


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
@pytest.mark.parametrize(
    "null", [b',"usage":null', b' , "usage" : null', b',"usage":null,"obfuscation":"xy"', b',"usage": null,"a":1']
)
def test_null_usage_leaves_its_event(null: bytes, end: bytes) -> None:
    rest = re.sub(rb'\s*,\s*"usage"\s*:\s*null', b"", null)

    assert CHUNK % (rest, end) * 2 == strip_usage(CHUNK % (null, end) * 2)


def test_first_key_null_usage_leaves_legal_json() -> None:
    assert strip_usage(b'data: {"usage":null, "choices":[]}\n\n') == b'data: { "choices":[]}\n\n'


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_only_the_usage_event_goes(end: bytes) -> None:
    first, done = CHUNK % (b"", end), b"data: [DONE]" + end
    usage = b'data: {"choices":[ ],"usage":{"prompt_tokens":1}}' + end

    assert first + done == strip_usage(first + usage + done)


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"choices":[],"prompt_filter_results":[{"usage":1}]}\n\n',  # Azure
        b'data: {"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}\n\n',  # DeepSeek
        b'data: {"choices":[{"delta":{"content":"\\",\\"usage\\":null}\\""}}]}\n\n',
        b'data: {"choices":[{"delta":{"usage":null}}]}\n\n',
        b'data: "usage" is no JSON\n\n',
        b': "usage"\n\n',
        b'data: {"usage":null}\n\n',
        b'data: {"a":1\ndata: ,"usage": null }\n\n',
    ],
)
def test_other_events_stay_as_they_are(event: bytes) -> None:
    assert event == strip_usage(event)
