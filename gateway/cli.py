"""The commands. Each loads what it needs when it runs, so that `gateway --help` is quick."""

import json
import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from gateway.errors import ConfigurationError, GatewayError

if TYPE_CHECKING:
    from gateway.ledger.base import Ledger
    from gateway.ledger.records import Record
    from gateway.replay import Verdict
    from gateway.settings import Settings

T = TypeVar("T")
DEFAULT_CONFIG = Path("config/gateway.yaml")
DEFAULT_LEDGER = "sqlite:gateway.db"
READING_S = 5.0  # least time a command gives the ledger: nobody's call waits for it
FOLLOW_S = 1.0  # between two looks for new records
REPORT_EVERY = 10_000  # prompts between two lines of progress where there is no terminal
SIMULATED = "no settings file and no provider key in the environment: serving the built-in simulated provider"


class Commands(TyperGroup):
    """The group of all commands. An error of ours is said on standard error and ends with status 2, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        try:
            return super().invoke(ctx)
        except GatewayError as error:
            typer.echo(error.message, err=True)
            raise typer.Exit(2) from None


cli = typer.Typer(cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
Config = Annotated[Path | None, typer.Option("--config", help="Settings file; default config/gateway.yaml, else the environment.")]
LedgerUrl = Annotated[str | None, typer.Option("--ledger", help="Ledger URL instead of the settings file's.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def main() -> None:
    """Run the command line."""
    cli()


def settings_of(config: Path | None) -> "Settings | None":
    """Return the settings of this file, else of config/gateway.yaml, else of the provider keys in the environment; else None."""
    from gateway import settings

    path = config or (DEFAULT_CONFIG if DEFAULT_CONFIG.is_file() else None)
    return settings.read(path, os.environ) if path else settings.from_environment(os.environ)


def ledger_of(config: Path | None, url: str | None) -> "Ledger":
    """Return the ledger of this URL, else of the settings, else the default one.

    ConfigurationError for a file of SQLite that is not there: reading must not make one, and an empty answer from a
    mistyped path would pass for a good one.
    """
    from gateway import app

    found = None if url else settings_of(config)
    place = url or (found.ledger.url.reveal() if found else DEFAULT_LEDGER)
    if place.startswith("sqlite:"):
        path = place.removeprefix("sqlite:").removeprefix("//") or DEFAULT_LEDGER.removeprefix("sqlite:")
        if not Path(path).is_file():
            raise ConfigurationError(f"there is no ledger file {path}; name another with --ledger URL or --config FILE")
    if found is None:
        return app.open_ledger(place, READING_S)
    return app.open_ledger(place, max(READING_S, found.ledger.timeout_s), pool=found.ledger.pool)


def moment(text: str | None) -> datetime | None:
    """Return the time that `--since` names: an ISO time (UTC unless it says otherwise) or a span before now."""
    if text is None:
        return None
    span = re.fullmatch(r"(\d+)([smhd])", text)
    try:
        if span:
            unit = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}[span[2]]
            return datetime.now(UTC) - timedelta(**{unit: int(span[1])})
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is neither an ISO time nor a span such as 30m, 2h or 7d") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def with_ledger(config: Path | None, url: str | None, work: "Callable[[Ledger], Awaitable[T]]") -> T:
    """Return what the work on the ledger returns, and let go of the ledger afterwards."""
    import asyncio  # half of what importing this module would cost

    async def run() -> T:
        ledger = ledger_of(config, url)
        try:
            return await work(ledger)
        finally:
            await ledger.close()

    return asyncio.run(run())


@cli.command()
def serve(
    config: Config = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; default 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65_535, help="Port to listen on; default 4100.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
) -> None:
    """Run the proxy."""
    from gateway import app, settings

    found = settings_of(config)
    if found is None:
        typer.echo(SIMULATED, err=True)
        found = app.simulated_settings()
    if host is not None or port is not None:
        found = settings.with_server(found, host=host, port=port)
    app.serve(found, workers=workers)


@cli.command()
def demo(once: Annotated[bool, typer.Option("--once", help="End after the table.")] = False) -> None:
    """Play an agent session straight to a simulated provider and through the gateway, side by side."""
    import asyncio

    from gateway import demo as stage

    asyncio.run(stage.play(once=once, write=typer.echo))


@cli.command()
def check(file: Annotated[Path, typer.Argument(help="Settings file.")], as_json: AsJson = False) -> None:
    """Validate a settings file; every error with its place. Exit status 0 or 2."""
    from gateway import settings

    try:
        found = settings.read(file, os.environ)
    except ConfigurationError as error:
        if not as_json:
            raise
        typer.echo(json.dumps({"ok": False, "problems": _problems(file, error)}))
        raise typer.Exit(2) from None
    routes = [route.name for route in found.routes]
    if as_json:
        typer.echo(json.dumps({"ok": True, "routes": routes, "digest": found.digest, "problems": []}))
    else:
        typer.echo(f"{file}: ok, {len(routes)} {'route' if len(routes) == 1 else 'routes'}: {', '.join(routes)}")


def _problems(file: Path, error: ConfigurationError) -> list[dict[str, object]]:
    from dataclasses import asdict

    from gateway.settings import BadFile

    if isinstance(error, BadFile):
        return [asdict(each) for each in error.problems]
    return [{"file": str(file), "line": 0, "column": 0, "path": "", "value": None, "message": error.message}]


@cli.command()
def schema() -> None:
    """Print the JSON Schema of the settings file, for editors."""
    from gateway import settings

    typer.echo(json.dumps(settings.schema(), indent=2))


@cli.command()
def explain(
    request: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A request body, as JSON.")],
    route: Annotated[str | None, typer.Option(help="Route, instead of the one its model chooses.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Say, per target, what would happen to a request; sends nothing."""
    import asyncio

    from gateway import app

    found = settings_of(config) or app.simulated_settings()
    made = asyncio.run(app.explain(found, request.read_bytes(), route))
    if as_json:
        typer.echo(json.dumps(made))
        return
    typer.echo(f"route {made['route']}, model {made['model']}, {made['messages']} messages")
    for target in made["targets"]:
        typer.echo(f"{target['target']}: {target['verdict']}")
        for name, value in target.items():
            if name not in ("target", "verdict") and value != []:
                typer.echo(f"  {name:<12}  {_listed(value) if isinstance(value, dict) else value}")


def _listed(values: Mapping[str, object]) -> str:
    return "  ".join(f"{name} {'unknown' if value is None else value}" for name, value in values.items())


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


@cli.command()
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


@cli.command()
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
                typer.echo(f"{'segments' if name == 'layout' else name:<10}  {_listed(record[name])}")
    for name in ("unavailable", "prompt", "reply_text", "reply_tool_calls"):
        if found.get(name):
            text = found[name] if isinstance(found[name], str) else json.dumps(found[name], ensure_ascii=False)
            typer.echo(f"\n{name}\n{text}".encode("utf-8", "surrogateescape"))


@cli.command()
def verify(
    since: Annotated[str | None, typer.Option("--since", help="ISO time, or a span such as 30m, 2h, 7d.")] = None,
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
    from rich.console import Console
    from rich.progress import Progress

    from gateway import replay

    count, terminal = 0, sys.stderr.isatty()
    with Progress(console=Console(stderr=True), disable=not terminal) as progress:
        task = progress.add_task("prompts", total=None)
        async with aclosing(replay.verify(store, since)) as verdicts:
            async for verdict in verdicts:
                if verdict.problem is not None:
                    return count, verdict
                count += 1
                progress.update(task, completed=count, description=f"{count} prompts")
                if not terminal and count % REPORT_EVERY == 0:
                    typer.echo(f"{count} prompts so far", err=True)
    return count, None
