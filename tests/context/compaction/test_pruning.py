"""A pruned result is the same bytes each time, and only ever smaller."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.compaction.pruning import MARKER, pruned, saving
from gateway.dialects.chat import CHAT
from tests.context.talks import count, request, result, user


@given(st.text(max_size=600), st.text("abc_0123", min_size=1, max_size=200))
@settings(max_examples=150, deadline=None)
def test_pruning_saves_what_it_says_or_does_nothing(text: str, name: str) -> None:
    item = request([result(name, text)]).items[0]
    made = pruned(item, CHAT)
    size = count(CHAT.wire_text(item)) + 4
    saved = saving(item, size, CHAT, 1.0)

    assert len(made.raw) <= len(item.raw)
    assert made.answers == item.answers
    assert pruned(made, CHAT).raw == made.raw
    if saved:
        assert count(CHAT.wire_text(made)) + 4 <= size - saved
        assert json.loads(made.raw)["content"] == MARKER


def test_only_results_are_pruned() -> None:
    item = request([user("x" * 5_000)]).items[0]

    assert pruned(item, CHAT) is item
