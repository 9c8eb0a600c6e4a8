"""Requests and records to write in the tests of the ledger."""

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gateway.context.digest import digest
from gateway.context.items import Field, Item, Kind, Request
from gateway.ledger import codec
from gateway.ledger.records import CallFinished, Entry, Outcome, PromptComposed, Usage

START = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = b'{"model":"m"}'


def item(text: str) -> Item:
    raw = b'{"role":"user","content":"' + text.encode() + b'"}'
    return Item(raw=raw, digest=digest(raw), kind=Kind.USER, role="user")


def request(count: int, *, seams: tuple[bytes, ...] | None = None, tools_bytes: int = 2_000, mark: str = "") -> Request:
    inner = (b",",) * max(0, count - 1) if seams is None else seams
    return Request(
        fields=(
            Field(name="model", lead=b'{ "model": ', value=b'"m"'),
            Field(name="tools", lead=b', "tools": ', value=b'["' + b"t" * tools_bytes + b'"]'),
            Field(name="messages", lead=b', "messages":', value=b""),
            Field(name="stream", lead=b',\n"stream":', value=b"true"),
        ),
        close=b"}\n",
        items=tuple(item(f"{mark} message {at} " + "words and words " * 8) for at in range(count)),
        seams=(b"[ ", *inner, b" ]") if count else (b"[]",),
    )


@dataclass(frozen=True, slots=True)
class Written:
    entry: Entry
    record: PromptComposed
    body: bytes


def composed(count: int = 3, *, at: int = 0, name: str | None = None, mark: str = "") -> Written:
    asked = request(count, mark=mark)
    manifest, bodies = codec.manifest(asked)
    name = name or os.urandom(16).hex()
    record = PromptComposed(
        id=name, at=START + timedelta(seconds=at), snapshot_id=name, route="r", session="s", lineage="l",
        tenant="t", request_id="q",
        attempt=1, target="p/m", dialect="chat", request=manifest, prompt=manifest, prompt_digest=digest(asked.body()),
        prompt_bytes=len(asked.body()), policy=digest(POLICY), evidence={"counting": "bytes", "list": [1, 2]},
        runway={"estimate": 10, "window": None}, layout={"stable": 1}, cache_expected_tokens=7,
    )  # fmt: skip
    return Written(codec.entry((record,), bodies | {digest(POLICY): POLICY}), record, asked.body())


def finished(snapshot: str, *, at: int = 0, reply: bytes = b'{"text":"yes"}') -> Entry:
    record = CallFinished(
        id=os.urandom(16).hex(), at=START + timedelta(seconds=at), snapshot_id=snapshot, outcome=Outcome.COMPLETED, target="p/m",
        status=200, latency_s=0.25, usage=Usage(input_tokens=5, output_tokens=1), cost_usd=0.001, reply=digest(reply),
        cost_parts_usd={"uncached": 0.0005, "output": 0.0005}, miss_cause="prefix_changed", miss_against="earlier",
        miss_segment="semi", miss_item=2, miss_offset=321, miss_tokens=40, miss_usd=0.0002,
        counterfactual_tokens=3, saved_usd=-0.0001,
    )  # fmt: skip
    return codec.entry((record,), {digest(reply): reply})
