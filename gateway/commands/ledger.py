"""Commands that read the ledger: `log`, `show`, `verify`."""

import json
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands import AsJson, Config, LedgerUrl, Progress, Since, listed, moment, with_ledger
from gateway.errors import GatewayError

if TYPE_CHECKING:
    from gateway.ledger.base import Ledger
    from gateway.ledger.records import Record
    from gateway.replay import Verdict

FOLLOW_S = 1.0  # between two looks for new records
commands = typer.Typer()


def line_of(record: "Record") -> str:
    """Return one readable line for a record: when, the id that `show` takes, what, and how it went."""
    from gateway.ledger import codec

    names = ("target", "outcome", "status", "compaction", "strategy", "reason", "source")
    said = " ".join(f"{name}={value}" for name in names if (value := getattr(record, name, None)) not in (None, ""))
    at = record.at.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    return f"{at}Z  {codec.group(record)}  {record.TYPE:<17} {record.route}  {said}".rstrip()


def _print(record: "Record", *, as_json: bool) -> None:
    from gateway.ledger import codec

    typer.echo(codec.dumps(record) if as_json else line_of(record))


@commands.command()
def log(
    follow: Annotated[bool, typer.Option("--follow", help="Keep printing what is appended, a JSON value a line.")] = False,
    route: Annotated[str | None, typer.Option(help="Only this route.")] = None,
    session: Annotated[str | None, typer.Option(help="Only this session.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many records.")] = 200,
    config: Config = None,
    ledger: LedgerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print the ledger, oldest first."""
    from gateway.ledger import codec

    def wanted(record: "Record") -> bool:
        return (route is None or record.route == route) and (session is None or record.session == session)

    async def work(store: "Ledger") -> None:
        found, last = await newest(store, wanted, limit=limit)
        if as_json and not follow:
            typer.echo(b"[" + b",\n".join(map(codec.dumps, found)) + b"]")
            return
        for record in found:
            _print(record, as_json=as_json)
        if follow:
            await followed(store, wanted, last, lambda record: _print(record, as_json=as_json))

    with_ledger(config, ledger, work)


async def newest(
    store: "Ledger", wanted: "Callable[[Record], bool]", *, after: str | None = None, limit: int | None = None
) -> "tuple[list[Record], str | None]":
    """Return the wanted records that were appended behind the one named `after`, oldest first, at most the newest `limit`.

    Beside them the id of the newest record of all, wanted or not, which is the next `after`. Goes by the order of
    appending: a call's end that waited for the ledger is older than what stands before it.
    """
    from gateway.api.admin import released

    found: list[Record] = []
    last = None
    async with released(store.read(newest_first=True)) as records:
        async for record in records:
            if record.id == after:
                break
            last = last or record.id
            if wanted(record):
                found.append(record)
            if len(found) == limit:
                break
    return found[::-1], last or after


async def followed(
    store: "Ledger",
    wanted: "Callable[[Record], bool]",
    last: str | None,
    write: "Callable[[Record], None]",
    pause_s: float = FOLLOW_S,
) -> None:
    """Write each wanted record that is appended behind `last`, until the task is cancelled."""
    import asyncio

    while True:
        await asyncio.sleep(pause_s)
        found, last = await newest(store, wanted, after=last)
        for record in found:
            write(record)


@commands.command()
def show(
    snapshot_id: Annotated[str, typer.Argument(metavar="ID", help="Id of a snapshot, as `gateway log` prints it.")],
    config: Config = None,
    ledger: LedgerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print one call: its records, its sums, the exact prompt that was sent, and the answer."""
    from gateway.api import admin
    from gateway.ledger import codec

    async def work(store: "Ledger") -> bytes:
        if not snapshot_id.isascii():  # no id of ours, and bytes that are no text at all break the stores' drivers
            raise GatewayError("there is no such snapshot in this ledger; `gateway log` lists them")
        response = await admin.snapshot(snapshot_id, store)
        body = bytes(response.body)
        if response.status_code == 404:
            raise GatewayError(f"there is no snapshot {snapshot_id} in this ledger; `gateway log` lists them")
        if response.status_code != 200:
            raise GatewayError(str(json.loads(body)["error"]["message"]))
        return body

    body = with_ledger(config, ledger, work)
    if as_json:
        typer.echo(body)
        return
    found = json.loads(body)
    for record in found["records"]:
        typer.echo(line_of(codec.loads(json.dumps(record).encode())))
    for record in found["records"]:
        for name in ("runway", "layout", "usage"):
            if record.get(name):
                typer.echo(f"{'segments' if name == 'layout' else name:<10}  {listed(record[name])}")
    for name in ("unavailable", "prompt", "reply_text", "reply_tool_calls"):
        if found.get(name):
            text = found[name] if isinstance(found[name], str) else json.dumps(found[name], ensure_ascii=False)
            typer.echo(f"\n{name}\n{text}".encode("utf-8", "surrogateescape"))


@commands.command()
def verify(
    since: Since = None,
    config: Config = None,
    ledger: LedgerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild every recorded prompt from its inputs and compare bit for bit. Exit status 1 at the first difference."""
    from dataclasses import asdict

    start = moment(since)
    count, wrong = with_ledger(config, ledger, lambda store: _verified(store, start))
    if as_json:
        typer.echo(json.dumps({"verified": count, "difference": None if wrong is None else asdict(wrong)}))
    elif wrong is None:
        typer.echo(f"{count} prompts verified, bit for bit")
    else:
        typer.echo(f"{wrong.snapshot_id}: {wrong.problem}")
        for name in ("recorded_digest", "stored_digest", "composed_digest", "offset", "stored_text", "composed_text"):
            if (value := getattr(wrong, name)) is not None:
                typer.echo(f"  {name.replace('_', ' '):<15}  {value}")
        typer.echo(f"{count} prompts before it verified")
    if wrong is not None:
        raise typer.Exit(1)


async def _verified(store: "Ledger", since: datetime | None) -> "tuple[int, Verdict | None]":
    """Return how many prompts verified, and the first that did not. Progress goes to standard error."""
    from gateway import replay

    count = 0
    with Progress("prompts") as progress:
        async with aclosing(replay.verify(store, since)) as verdicts:
            async for verdict in verdicts:
                if verdict.problem is not None:
                    return count, verdict
                count += 1
                progress(count)
    return count, None
