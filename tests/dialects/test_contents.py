import json

import pytest

from gateway.dialects import contents

RESULT = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "r"}, {"type": "image", "source": {}}]}


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("x", ["x"]),
        (None, []),
        ([], []),
        ([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}], ["a", "b"]),
        ([RESULT, {"type": "thinking", "thinking": "t", "signature": "S"}, {"type": "text", "text": "b"}], ["r", "b"]),
        ([{"type": "tool_result", "content": "whole"}], ["whole"]),
        ([{"text": 7}, "no block", {"text": "\ud83d"}], ["\ufffd"]),
    ],
)
def test_texts_in_order(content: object, found: list[str]) -> None:
    assert found == list(contents.texts(content))


@pytest.mark.parametrize(
    ("content", "texts", "made"),
    [
        ('"x"', ["y"], '"y"'),
        ('[ {"text":"a"} , {"text":"b"} ]', ["a", "c"], '[ {"text":"a"} , {"text": "c"} ]'),
        ('[ {"text":"a"} , {"text":"b"} ]', ["", "b"], '[ {"text":"b"} ]'),
        ('[{"text":"a"}]', [""], '[{"text":""}]'),
        (json.dumps([RESULT]), ["z"], None),
    ],
)
def test_texts_are_put_back_and_nothing_else_changes(content: str, texts: list[str], made: str | None) -> None:
    data = contents.with_texts(content.encode(), iter(texts), ascii_only=True)

    assert [text for text in texts if text or len(texts) == 1] == list(contents.texts(json.loads(data)))
    assert made is None or json.loads(made) == json.loads(data)


def test_equal_texts_keep_their_bytes() -> None:
    data = json.dumps([RESULT, {"type": "text", "text": "b\u00e9"}]).encode()

    assert data == contents.with_texts(data, iter(["r", "b\u00e9"]), ascii_only=True)
