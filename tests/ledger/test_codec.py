import dataclasses
import time

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.digest import digest
from gateway.context.items import Request
from gateway.errors import LedgerError
from gateway.ledger import codec
from gateway.ledger.records import CallFinished, CompactionApplied, ConfigChanged, Record
from tests.ledger.values import START, composed, finished, request


@pytest.mark.parametrize("count", [0, 1, 2, 31, 32, 33, 64, 123])
def test_joining_a_manifest_gives_the_very_bytes(count: int) -> None:
    asked = request(count)

    manifest, bodies = codec.manifest(asked)

    assert asked.body() == codec.joined(manifest, bodies.__getitem__)
    assert tuple(each.digest for each in asked.items) == codec.leaves(manifest, bodies.__getitem__)
    assert count // 32 == len(manifest.nodes)
    assert manifest.seams is None


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([b",", b" , ", b",\n\t"]), max_size=70))
def test_odd_seams_survive(seams: list[bytes]) -> None:
    asked = request(len(seams) + 1, seams=tuple(seams))

    manifest, bodies = codec.manifest(asked)

    assert asked.body() == codec.joined(manifest, bodies.__getitem__)
    assert (manifest.seams is None) == all(each == b"," for each in seams)


def test_long_values_are_bodies_of_their_own_and_short_ones_are_joined() -> None:
    asked = request(2)

    manifest, bodies = codec.manifest(asked)

    assert [b'{ "model": "m", "tools": ', asked.value("tools"), b', "messages":[ '] == [bodies[each] for each in manifest.head]
    assert [bodies[each] for each in manifest.tail] == [b' ],\n"stream":true}\n']
    assert all(digest(body) == name for name, body in bodies.items())


def test_the_next_turn_shares_all_but_what_is_new() -> None:
    _, before = codec.manifest(request(64))
    _, after = codec.manifest(request(65))

    assert len(after.keys() - before.keys()) == 1


def test_a_manifest_of_a_long_session_is_cheap() -> None:
    asked = request(123, tools_bytes=50_000)
    codec.manifest(asked)

    best = min(_seconds(asked) for _ in range(50))

    assert best < 0.000_5  # 0.05 ms when nothing else runs here


def _seconds(asked: Request) -> float:
    began = time.perf_counter()
    codec.manifest(asked)
    return time.perf_counter() - began


def test_an_entry_has_every_named_body_as_a_root_once() -> None:
    written = composed(70)

    entry = written.entry

    assert set(codec.roots(written.record.request)) | {written.record.policy} == set(entry.roots)
    assert len(set(entry.roots)) == len(entry.roots)
    assert written.record.request.nodes == entry.nodes
    assert finished("x", reply=b"{}").roots == (digest(b"{}"),)


@pytest.mark.parametrize(
    "record",
    [
        composed(40).record,
        finished("s").records[0],
        CompactionApplied(
            id="a", at=START, scope="route", strategy="w", kept=1, dropped=2, pruned=3, boundary=4, before_tokens=5, after_tokens=6
        ),
        ConfigChanged(id="b", at=START, digest="d", source="f"),
    ],
    ids=lambda record: record.TYPE,
)
def test_a_record_survives_its_json(record: Record) -> None:
    data = codec.dumps(record)

    fields = orjson.loads(data)
    renamed = {"request": "request_manifest", "prompt": "prompt_manifest"} if record.TYPE == "PromptComposed" else {}
    assert {renamed.get(each.name, each.name) for each in dataclasses.fields(record)} | {"type", "version"} == set(fields)
    assert fields["at"] == "2026-01-01T00:00:00+00:00"
    assert record == codec.loads(data)


def test_a_record_from_before_misses_were_diagnosed_is_read() -> None:
    fields = orjson.loads(codec.dumps(finished("s").records[0]))
    old = {name: value for name, value in fields.items() if not name.startswith("miss_") or name == "miss_cause"}
    for name in ("cost_parts_usd", "counterfactual_tokens", "saved_usd"):
        del old[name]

    record = codec.loads(orjson.dumps(old))

    assert isinstance(record, CallFinished)
    assert record.miss_against is None
    assert record.saved_usd is None
    assert record.cost_parts_usd == {}


def test_text_that_is_no_unicode_does_not_cost_the_record() -> None:
    record = dataclasses.replace(composed().record, session="a\ud800b")

    loaded = codec.loads(codec.dumps(record))

    assert loaded.session == "a?b"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"type":"New","version":1}',
        b'{"type":"ConfigChanged","version":2}',
        b'{"type":"ConfigChanged","version":1}',
        b'{"type":"ConfigChanged","version":1,"at":"x"}',
    ],
)
def test_what_is_no_record_is_told(data: bytes) -> None:
    with pytest.raises(LedgerError):
        codec.loads(data)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=400), st.integers(1, 50))
def test_compression_is_undone(body: bytes, times: int) -> None:
    assert body * times == codec.expand(codec.compress(body * times))


def test_short_bodies_stay_plain_and_long_ones_shrink() -> None:
    assert codec.compress(b"a" * 127) == b"p" + b"a" * 127
    assert len(codec.compress(b"a" * 10_000)) < 100


@pytest.mark.parametrize("stored", [None, b"", b"?x", b"zbroken", codec.compress(b"another")])
def test_a_body_that_is_not_its_digest_is_named(stored: bytes | None) -> None:
    wanted = digest(b"body")

    with pytest.raises(LedgerError, match=wanted.hex()):
        codec.verified(wanted, stored)
