"""Strategies for JSON as other programs write it: odd white space, escapes, any order of keys. Keys are unique."""

import json

from hypothesis import strategies as st

SPACE = st.sampled_from([b"", b"", b" ", b"\n  ", b"\t\r\n"])
TEXT = st.text(st.sampled_from('abc é😀"\\/\n\u2028{}[],:'), max_size=8)
LITERALS = [
    b"0",
    b"-1.50",
    b"1e400",
    b"12345678901234567890",
    b"true",
    b"null",
    b'"\\ud83d"',
    b'"\\ud83d\\ude00\\/"',
    b"{}",
    b"[ ]",
]


@st.composite
def strings(draw: st.DrawFn) -> bytes:
    return json.dumps(draw(TEXT), ensure_ascii=draw(st.booleans())).encode()


def values() -> st.SearchStrategy[bytes]:
    leaves = st.one_of(st.sampled_from(LITERALS), strings())
    return st.recursive(leaves, lambda inner: st.one_of(arrays(inner), objects(inner)), max_leaves=6)


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[bytes], max_size: int = 3) -> bytes:
    parts = [draw(SPACE) + each + draw(SPACE) for each in draw(st.lists(inner, max_size=max_size))]
    return b"[" + (b",".join(parts) or draw(SPACE)) + b"]"


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[bytes] | None = None) -> bytes:
    names = draw(st.lists(TEXT, unique=True, max_size=3))
    return draw(written({name: draw(values() if inner is None else inner) for name in names}))


@st.composite
def written(draw: st.DrawFn, members: dict[str, bytes]) -> bytes:
    """These members as one object, in any order, with any white space, names escaped or not."""
    parts = []
    for name in draw(st.permutations(list(members))):
        key = json.dumps(name, ensure_ascii=draw(st.booleans())).encode()
        if name and name[0].isalpha() and name.isascii() and draw(st.booleans()):
            key = b'"\\u%04x' % ord(name[0]) + key[2:]
        parts.append(draw(SPACE) + key + draw(SPACE) + b":" + draw(SPACE) + members[name] + draw(SPACE))
    return b"{" + (b",".join(parts) or draw(SPACE)) + b"}"
