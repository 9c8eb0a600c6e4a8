"""What the commands and the dashboard ask over HTTP: the records, the routes, the configuration in force. Reads only.

Answers are JSON in ASCII: a NUL or a lone surrogate in a prompt stays legal JSON, as an escape.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response

from gateway.api import errors
from gateway.errors import InvalidRequest, LedgerError, LimitsUnavailable
from gateway.ledger import codec
from gateway.ledger.base import Ledger
from gateway.ledger.records import CallFinished, Manifest, PromptComposed, Record
from gateway.limits.base import Standing
from gateway.limits.refusals import item
from gateway.routing import Route, Target

T = TypeVar("T")
LIMIT = 100  # records on a page when none is asked for
MAX_LIMIT = 1_000
SCANNED = 20_000  # records looked at for one page: a filter that nothing matches must not read a year's ledger


@asynccontextmanager
async def released(records: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Give the records; a reading that is left before its end lets go of its connection at once."""
    try:
        yield records
    finally:
        close = getattr(records, "aclose", None)  # iterators that are generators have it; the port does not ask for it
        if close is not None:
            await close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a list of records is asked for. `cursor` is the id of the last record of the page before."""

    route: str | None = None
    session: str | None = None
    since: datetime | None = None
    limit: int = LIMIT
    cursor: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "Query":
        """Return the query; InvalidRequest names the parameter that cannot be read and what it takes."""
        limit = given.get("limit", str(LIMIT))
        if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= MAX_LIMIT):
            raise InvalidRequest(f"limit takes a number from 1 to {MAX_LIMIT}", param="limit")
        return cls(
            route=given.get("route"),
            session=given.get("session"),
            since=_moment(given["since"]) if "since" in given else None,
            limit=int(limit),
            cursor=given.get("cursor"),
        )

    def takes(self, record: Record) -> bool:
        return (self.route is None or record.route == self.route) and (self.session is None or record.session == self.session)


async def snapshots(request: Request, ledger: Ledger) -> Response:
    """Return `{"items": [record…], "next"}`, newest first; `next` is the cursor of the page after, null at the end."""
    try:
        query = Query.parse(request.query_params)
        records, following = await _page(ledger, query)
    except (InvalidRequest, LedgerError) as error:
        return errors.response(error)
    items = b",".join(codec.dumps(record) for record in records)
    return _json(b'{"items":[' + items + b'],"next":' + json.dumps(following).encode() + b"}")


async def snapshot(snapshot_id: str, ledger: Ledger) -> Response:
    """Return one snapshot: its records, and what they say in full; 404 where there is none.

    `prompt` is the exact text that was sent, `request_json` the same as a value, `request` the client's own text where it
    differs; `reply_text`, `reply_tool_calls` and `finish_reason` are the answer's. `unavailable` says which body is gone.
    """
    try:
        records = await ledger.find(snapshot_id)
    except LedgerError as error:
        return errors.response(error)
    if not records:
        return errors.response(errors.NotFound("there is no snapshot of this id; GET /gateway/snapshots lists them", param="id"))
    parts = {"id": json.dumps(snapshot_id).encode(), "records": b"[" + b",".join(map(codec.dumps, records)) + b"]"}
    try:
        for record in records:
            if isinstance(record, PromptComposed):
                parts |= await _prompt(ledger, record)
            elif isinstance(record, CallFinished) and record.reply is not None:
                parts |= _reply((await ledger.bodies([record.reply]))[record.reply])
    except LedgerError as error:
        parts["unavailable"] = json.dumps(error.message).encode()
    return _json(_object(parts))


def routes(configured: Sequence[Route], window_of: Callable[[Route], int | None]) -> Response:
    """Return `{"items": [{name, models, window_tokens, targets}]}` in the order of configuration.

    `window_of` gives a route's window in tokens, null when not known; a target's `window_tokens` is what the settings say.
    """
    items = [
        {
            "name": route.name,
            "models": list(route.models),
            "window_tokens": window_of(route),
            "targets": [_target(target) for target in route.targets],
        }
        for route in configured
    ]
    return _json(json.dumps({"items": items}).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """The last attempt to reload: `error` None where it went well."""

    at: datetime
    error: str | None = None


def config(*, digest: str, since: datetime, source: str, last_reload: Reload | None) -> Response:
    """Return which configuration is in force: its digest (hex), since when, from where, and how the last reload went."""
    reload = None
    if last_reload is not None:
        reload = {"at": last_reload.at.isoformat(), "ok": last_reload.error is None, "error": last_reload.error}
    value = {"digest": digest, "since": since.isoformat(), "source": source, "last_reload": reload}
    return _json(json.dumps(value).encode())


async def budgets(standings: Callable[[], Awaitable[Sequence[Standing]]]) -> Response:
    """Return `{"items": [{route, key, unit, per, limit, used, reserved, resets_at}]}`, an item for each limit of each budget.

    One of `route` and `key` is null. `used` is what ended calls cost, `reserved` what running ones may cost; money is in USD.
    """
    try:
        found = await standings()
    except LimitsUnavailable as error:
        return errors.response(error)
    return _json(json.dumps({"items": [item(each) for each in found]}).encode())


async def _page(ledger: Ledger, query: Query) -> tuple[list[Record], str | None]:
    found: list[Record] = []
    last, scanned, reached = "", 0, query.cursor is None
    async with released(ledger.read(since=query.since, newest_first=True)) as records:
        async for record in records:
            if not reached:
                reached = record.id == query.cursor
                continue
            if scanned == SCANNED:
                return found, last
            scanned += 1
            if query.takes(record):
                if len(found) == query.limit:
                    return found, found[-1].id
                found.append(record)
            last = record.id
    return found, None


def _moment(text: str) -> datetime:
    try:
        # A query's `+` arrives as a blank: `12:00:00+02:00` is meant where a zone follows a time.
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    except ValueError:
        raise InvalidRequest("since takes a time such as 2026-03-01T12:00:00Z", param="since") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


async def _prompt(ledger: Ledger, record: PromptComposed) -> dict[str, bytes]:
    manifests = (record.prompt,) if record.request == record.prompt else (record.prompt, record.request)
    bodies = dict(await ledger.bodies(dict.fromkeys(root for each in manifests for root in codec.roots(each))))
    nodes = dict.fromkeys(node for each in manifests for node in each.nodes)
    items = dict.fromkeys(item for node in nodes for item in codec.children(bodies[node]) if item not in bodies)
    bodies |= await ledger.bodies(items)
    # Megabytes of prompt are decoded and checked beside the loop, which has calls to serve.
    return await asyncio.to_thread(_prompt_parts, manifests, bodies)


def _prompt_parts(manifests: Sequence[Manifest], bodies: Mapping[bytes, bytes]) -> dict[str, bytes]:
    sent, *received = (codec.joined(each, bodies.__getitem__) for each in manifests)
    parts = {"prompt": _text(sent), "request_json": _value(sent)}
    if received:
        parts["request"] = _text(received[0])
    return parts


def _reply(body: bytes) -> dict[str, bytes]:
    reply = json.loads(body)
    names = {"reply_text": "text", "reply_tool_calls": "tool_calls", "finish_reason": "finish_reason", "refusal": "refusal"}
    return {ours: json.dumps(reply[name]).encode() for ours, name in names.items() if name in reply}


def _target(target: Target) -> dict[str, object]:
    return {"name": target.name, "provider": target.provider, "model": target.model, "window_tokens": target.window_tokens}


def _text(body: bytes) -> bytes:
    return json.dumps(body.decode("utf-8", "surrogateescape")).encode()


def _value(body: bytes) -> bytes:
    """Return the body as a JSON value, its own bytes: nothing is read and written again, so numbers keep their digits."""
    try:
        json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError):  # RecursionError: brackets a thousand deep
        return b"null"
    return body


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON")


def _object(parts: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join(json.dumps(name).encode() + b":" + value for name, value in parts.items()) + b"}"


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json", headers={"cache-control": "no-store", "x-content-type-options": "nosniff"})
