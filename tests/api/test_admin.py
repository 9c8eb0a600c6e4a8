import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Path
from starlette.testclient import TestClient

from gateway.api import admin
from gateway.context.digest import digest
from gateway.context.items import Field, Item, Kind
from gateway.context.items import Request as Draft
from gateway.errors import LedgerError, SnapshotUnavailable
from gateway.ledger import codec
from gateway.ledger.records import CallFinished, Entry, Manifest, Outcome, PromptComposed, Record, Usage
from gateway.limits.base import NANO, Amounts, Budget, Limit, Per, Unit
from gateway.limits.memory import MemoryLimits
from gateway.limits.reservations import Reservations
from gateway.routing import Route, Target

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


class ListLedger:
    """Records in a list, in the order given, and bodies in a dictionary. `down` fails every call."""

    def __init__(self, records: Iterable[Record] = (), bodies: Mapping[bytes, bytes] | None = None, *, down: bool = False) -> None:
        self.records, self.stored, self.down = list(records), dict(bodies or {}), down
        self.read_count = self.open_readings = 0

    async def read(self, *, since: datetime | None = None, newest_first: bool = False) -> AsyncIterator[Record]:
        self.open_readings += 1
        try:
            await self.ready()
            for record in list(reversed(self.records) if newest_first else self.records):
                if since is None or record.at >= since:
                    self.read_count += 1
                    yield record
        finally:
            self.open_readings -= 1

    async def follow(self, cursor: str = "") -> AsyncIterator[tuple[str, Record]]:
        await self.ready()
        for at, record in enumerate(self.records[int(cursor or 0) :], int(cursor or 0) + 1):
            self.read_count += 1
            yield str(at), record

    async def find(self, snapshot_id: str) -> tuple[Record, ...]:
        await self.ready()
        return tuple(record for record in self.records if codec.group(record) == snapshot_id)

    async def bodies(self, digests: Iterable[bytes]) -> Mapping[bytes, bytes]:
        return {each: codec.verified(each, codec.compress(self.stored[each]) if each in self.stored else None) for each in digests}

    async def append(self, entry: Entry) -> None:
        self.records += entry.records

    async def ready(self) -> None:
        if self.down:
            raise SnapshotUnavailable("the ledger did not answer in 2 s")

    async def close(self) -> None: ...


def manifest(*messages: bytes) -> tuple[Manifest, dict[bytes, bytes]]:
    items = tuple(Item(raw=raw, digest=digest(raw), kind=Kind.USER, role="user") for raw in messages)
    fields = (Field(name="model", lead=b'{"model":', value=b'"m"'), Field(name="messages", lead=b', "messages":', value=b""))
    seams = (b"[", *(b", " for _ in messages[1:]), b"]")
    return codec.manifest(Draft(fields=fields, close=b"}", items=items, seams=seams))


def composed(snapshot: str, request: Manifest, prompt: Manifest | None = None, **more: Any) -> PromptComposed:
    fields: dict[str, Any] = {"at": START, "route": "r", "attempt": 1, "target": "up/m", "dialect": "chat", **more}
    return PromptComposed(
        id=snapshot,
        snapshot_id=snapshot,
        request=request,
        prompt=prompt or request,
        prompt_digest=b"",
        prompt_bytes=0,
        policy=b"",
        **fields,
    )


def finished(number: int, **more: Any) -> CallFinished:
    fields: dict[str, Any] = {"route": "r", "session": "s", "outcome": Outcome.COMPLETED, "target": "up/m", **more}
    return CallFinished(id=f"f{number}", at=START + timedelta(minutes=number), snapshot_id=f"snap{number}", **fields)


def client(ledger: ListLedger) -> TestClient:
    async def listed(request: Request) -> Response:
        return await admin.snapshots(request, ledger)

    async def one(request: Request) -> Response:
        return await admin.snapshot(request.path_params["id"], ledger)

    return TestClient(Starlette(routes=[Path("/gateway/snapshots", listed), Path("/gateway/snapshots/{id}", one)]))


def ids(ledger: ListLedger, query: str = "") -> tuple[list[str], str | None]:
    answer = client(ledger).get("/gateway/snapshots" + query)
    assert answer.status_code == 200, answer.text
    assert ledger.open_readings == 0
    return [item["id"] for item in answer.json()["items"]], answer.json()["next"]


def test_records_are_listed_newest_first() -> None:
    ledger = ListLedger([finished(1), finished(2, usage=Usage(input_tokens=10, cached_tokens=0), cost_usd=0.5)])

    answer = client(ledger).get("/gateway/snapshots").json()

    assert ([item["id"] for item in answer["items"]], answer["next"]) == (["f2", "f1"], None)
    newest, usage = answer["items"][0], answer["items"][0]["usage"]
    assert (newest["type"], newest["outcome"], newest["snapshot_id"]) == ("CallFinished", "completed", "snap2")
    assert (usage["input_tokens"], usage["cached_tokens"], usage["output_tokens"], newest["cost_usd"]) == (10, 0, None, 0.5)


def test_an_empty_ledger_is_an_empty_list() -> None:
    assert ids(ListLedger()) == ([], None)


def test_lists_are_filtered() -> None:
    ledger = ListLedger([finished(1), finished(2, route="other"), finished(3, session="t"), finished(4)])

    assert ids(ledger, "?route=r")[0] == ["f4", "f3", "f1"]
    assert ids(ledger, "?route=r&session=t")[0] == ["f3"]
    assert ids(ledger, "?since=2026-03-01T12:03:00Z")[0] == ["f4", "f3"]
    assert ids(ledger, "?since=2026-03-01T14:04:00+02:00")[0] == ["f4"]
    assert ids(ledger, "?since=2026-03-01")[0] == ["f4", "f3", "f2", "f1"]


def test_pages_follow_one_another_without_gap_or_double() -> None:
    ledger = ListLedger(finished(n) for n in range(7))
    seen, cursor = [], ""

    while True:
        page, following = ids(ledger, f"?limit=3{cursor}")
        seen.append(page)
        if following is None:
            break
        cursor = f"&cursor={following}"
        ledger.records.append(finished(100 + len(seen)))  # what comes in meanwhile does not move the pages

    assert seen == [["f6", "f5", "f4"], ["f3", "f2", "f1"], ["f0"]]


def test_a_page_reads_no_more_than_it_shows() -> None:
    ledger = ListLedger(finished(n) for n in range(500))

    ids(ledger, "?limit=3")

    assert ledger.read_count == 4


def test_a_filter_that_nothing_matches_stops_and_can_be_followed() -> None:
    ledger = ListLedger([finished(1, route="rare"), *(finished(n) for n in range(2, admin.SCANNED + 2))])

    page, following = ids(ledger, "?route=rare")
    assert (page, following) == ([], "f2")
    assert ids(ledger, f"?route=rare&cursor={following}") == (["f1"], None)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "limit=-1", "limit=", "limit=²", "limit=" + "9" * 5000, "since=soon"]
)
def test_a_query_that_cannot_be_read_names_its_parameter(query: str) -> None:
    answer = client(ListLedger()).get("/gateway/snapshots?" + query)

    assert (400, query.partition("=")[0]) == (answer.status_code, answer.json()["error"]["param"])


def test_a_ledger_that_is_down_is_503() -> None:
    for path in ("/gateway/snapshots", "/gateway/snapshots/x"):
        answer = client(ListLedger(down=True)).get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "snapshot_unavailable")


def test_a_snapshot_shows_the_exact_prompt_and_the_answer() -> None:
    many = [b'{"role":"user","content":"%d"}' % n for n in range(70)]  # more than two nodes of 32
    request, bodies = manifest(*many)
    note = b'{"role":"user","content":"note","n":12345678901234567890.10}'
    prompt, more = manifest(*many[5:], note)
    reply = b'{"text":"ok","tool_calls":[{"id":"c1"}],"finish_reason":"stop"}'
    records = (composed("snap1", request, prompt), finished(1, reply=digest(reply)), finished(2))

    answer = client(ListLedger(records, bodies | more | {digest(reply): reply})).get("/gateway/snapshots/snap1")

    page = answer.json()
    assert [record["type"] for record in page["records"]] == ["PromptComposed", "CallFinished"]
    expected = b'{"model":"m", "messages":[' + b", ".join([*many[5:], note]) + b"]}"
    assert expected.decode() == page["prompt"]
    assert b'{"model":"m", "messages":[' + b", ".join(many) + b"]}" == page["request"].encode()
    assert b'"request_json":' + expected in answer.content
    assert (page["reply_text"], page["reply_tool_calls"], page["finish_reason"]) == ("ok", [{"id": "c1"}], "stop")
    assert "refusal" not in page
    assert "unavailable" not in page


def test_an_unchanged_request_is_shown_once() -> None:
    request, bodies = manifest(b'{"role":"user","content":"hi"}')

    page = client(ListLedger([composed("s", request)], bodies)).get("/gateway/snapshots/s").json()

    assert "request" not in page
    assert page["request_json"]["messages"][0]["content"] == "hi"


def test_nul_and_lone_surrogates_stay_legal_json() -> None:
    request, bodies = manifest(b'{"role":"user","content":"a\\u0000b \\ud800"}')
    reply = b'{"text":"\\u0000\\udfff <script>","tool_calls":[],"finish_reason":null}'
    records = (composed("snap1", request), finished(1, reply=digest(reply)))

    answer = client(ListLedger(records, bodies | {digest(reply): reply})).get("/gateway/snapshots/snap1")

    page = json.loads(answer.content.decode("utf-8"))
    assert page["request_json"]["messages"][0]["content"] == "a\0b \ud800"
    assert page["reply_text"] == "\0\udfff <script>"
    assert (answer.headers["content-type"], answer.headers["x-content-type-options"]) == ("application/json", "nosniff")


def test_a_body_that_is_gone_leaves_the_records_and_says_so() -> None:
    request, bodies = manifest(b'{"role":"user","content":"hi"}')
    gone = request.items[0]
    del bodies[gone]

    page = client(ListLedger([composed("s", request)], bodies)).get("/gateway/snapshots/s").json()

    assert page["records"][0]["type"] == "PromptComposed"
    assert gone.hex() in page["unavailable"]
    assert "prompt" not in page


def test_a_snapshot_that_is_not_there() -> None:
    answer = client(ListLedger()).get("/gateway/snapshots/none")

    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_routes_are_listed_with_their_window_and_targets() -> None:
    route = Route(name="r", models=("r", "gpt-*"), targets=(Target(provider="up", model="m", window_tokens=1000),))

    body = json.loads(bytes(admin.routes([route], lambda route: 900).body))

    target = {"name": "up/m", "provider": "up", "model": "m", "window_tokens": 1000}
    assert {"items": [{"name": "r", "models": ["r", "gpt-*"], "window_tokens": 900, "targets": [target]}]} == body


def test_config_tells_how_the_last_reload_went() -> None:
    def told(last_reload: admin.Reload | None) -> dict[str, Any]:
        answer = admin.config(digest="ab", since=START, source="config/gateway.yaml", last_reload=last_reload)
        value = json.loads(bytes(answer.body))
        assert isinstance(value, dict)
        return value

    assert told(None) == {
        "digest": "ab",
        "since": "2026-03-01T12:00:00+00:00",
        "source": "config/gateway.yaml",
        "last_reload": None,
    }
    assert told(admin.Reload(at=START))["last_reload"]["ok"]
    assert {"at": START.isoformat(), "ok": False, "error": "line 3"} == told(admin.Reload(at=START, error="line 3"))["last_reload"]


@pytest.mark.anyio
async def test_budgets_are_listed_with_money_in_usd() -> None:
    store = MemoryLimits(clock=lambda: 1_767_225_600.0)
    money = Limit(unit=Unit.USD, per=Per.DAY, amount=25 * NANO)
    desk = Reservations(
        store, [Budget(route="m", limits=(money,)), Budget(key="k", limits=(Limit(unit=Unit.TOKENS, per=Per.HOUR, amount=9),))]
    )
    await store.reserve(desk.budgets[:1], "a", 1, Amounts(usd=NANO // 2))

    found = json.loads(bytes((await admin.budgets(desk.standings)).body))

    shown = {"route": "m", "key": None, "unit": "usd", "per": "day", "limit": 25.0, "used": 0.0, "reserved": 0.5}
    other = {"route": None, "key": "k", "unit": "tokens", "per": "hour", "limit": 9, "used": 0, "reserved": 0}
    resets = ({"resets_at": "2026-01-02T00:00:00Z"}, {"resets_at": "2026-01-01T01:00:00Z"})
    assert found == {"items": [shown | resets[0], other | resets[1]]}
    store.unavailable = "away"
    assert (await admin.budgets(desk.standings)).status_code == 503


def test_a_reading_left_early_is_let_go() -> None:
    ledger = ListLedger(finished(n) for n in range(3))

    async def leave() -> None:
        async with admin.released(ledger.read()) as records:
            async for _ in records:
                raise LedgerError("left")

    with pytest.raises(LedgerError, match="left"):
        asyncio.run(leave())
    assert ledger.open_readings == 0
