"""What is the same for each dialect; the chat tests hold the long table of refusals."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.digest import digest
from gateway.context.items import Request
from gateway.dialects.base import Dialect
from gateway.dialects.memo import Memo
from gateway.dialects.messages import MESSAGES
from gateway.dialects.table import DIALECTS
from gateway.errors import InvalidRequest
from gateway.ledger import codec
from tests.dialects.bodies import arrays, objects, strings, values, written

FIELDS = {"chat": ("messages", ""), "messages": ("messages", "system")}


@st.composite
def bodies(draw: st.DrawFn) -> tuple[Dialect, bytes]:
    """Any legal body: any JSON in any field, in any order, with any white space."""
    dialect = DIALECTS[draw(st.sampled_from(list(DIALECTS)))]
    items, lead = FIELDS[dialect.name]
    members = draw(st.dictionaries(st.sampled_from(["tools", "new_2027", "seed", "metadata"]), values(), max_size=2))
    members |= {"model": b'"m"', items: draw(arrays(objects()))}
    if lead and draw(st.booleans()):
        members[lead] = draw(st.one_of(strings(), arrays(objects()), values()))
    return dialect, draw(written(members))


@settings(max_examples=300, deadline=None)
@given(bodies())
def test_parse_and_assemble_is_the_identity(made: tuple[Dialect, bytes]) -> None:
    dialect, body = made
    request = dialect.parse(body, Memo())
    manifest, stored = codec.manifest(request)

    assert body == request.body() == codec.joined(manifest, stored.__getitem__)
    assert [digest(item.raw) for item in request.items] == [item.digest for item in request.items]
    again = dialect.parse(request.with_items(request.items).body(), Memo())
    assert [item.raw for item in request.items] == [item.raw for item in again.items]


def messages(**fields: object) -> Request:
    return MESSAGES.parse(json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}).encode(), Memo())


@pytest.mark.parametrize("system", ["S", [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}], []])
def test_leading_items_stand_in_their_field_wherever_it_stands(system: object) -> None:
    request = messages(system=system)

    assert len(request.lead) == len(system) if isinstance(system, list) else 1
    assert [item.place for item in request.turns] == [""]
    assert system == json.loads(request.with_items((*request.turns, *request.lead)).body())["system"]


def test_leading_items_that_are_left_out_take_their_field_along() -> None:
    assert "system" not in json.loads(messages(system="S").with_items(messages().items).body())


def test_a_leading_text_becomes_a_block_among_others() -> None:
    request, other = messages(system="S"), messages(system=[{"type": "text", "text": "B"}])
    made = request.with_items((*request.items, *other.lead))

    assert json.loads(made.body())["system"] == [{"type": "text", "text": "S"}, {"type": "text", "text": "B"}]
    assert [item.raw for item in made.items] == [item.raw for item in MESSAGES.parse(made.body(), Memo()).items]


def test_the_same_bytes_may_be_an_item_and_a_leading_one() -> None:
    block, memo = {"type": "text", "text": "x"}, Memo()
    body = json.dumps({"model": "m", "system": [block], "messages": [block]}).encode()

    for _ in range(2):
        assert [item.place for item in MESSAGES.parse(body, memo).items] == ["system", ""]


@pytest.mark.parametrize("field", ["session_id", "prompt_cache_key"])
def test_the_session_is_named_by_the_first_hint(field: str) -> None:
    assert MESSAGES.hint(messages(**{field: "s"}, metadata={"user_id": "u"})) == "s"
    assert MESSAGES.hint(messages(metadata={"user_id": "u"})) == "u"
    assert MESSAGES.hint(messages()) is None


def test_a_body_without_items_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no messages"):
        MESSAGES.parse(b'{"model":"m"}', Memo())
