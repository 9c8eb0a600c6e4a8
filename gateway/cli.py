"""The commands. Each loads what it needs when it runs, so that `gateway --help` is quick."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from gateway.errors import GatewayError

if TYPE_CHECKING:
    from gateway.ledger.base import Ledger
    from gateway.ledger.records import Record
    from gateway.settings import Settings

T = TypeVar("T")
DEFAULT_CONFIG = Path("config/gateway.yaml")
SIMULATED = "no settings file and no provider key in the environment: serving the built-in simulated provider"

cli = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
Config = Annotated[Path | None, typer.Option("--config", help="Settings file; default config/gateway.yaml, else the environment.")]
LedgerUrl = Annotated[str | None, typer.Option("--ledger", help="Ledger URL instead of the settings file's.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Since = Annotated[str | None, typer.Option("--since", help="ISO time, or a span such as 30m, 2h, 7d.")]


def main() -> None:
    """Run the command line. An error of ours is said on standard error and ends with status 2."""
    try:
        cli()
    except GatewayError as error:
        typer.echo(error.message, err=True)
        sys.exit(2)


def settings_of(config: Path | None) -> "Settings | None":
    """Return the settings of this file, else of config/gateway.yaml, else of the provider keys in the environment; else None."""
    from gateway import settings

    path = config or (DEFAULT_CONFIG if DEFAULT_CONFIG.is_file() else None)
    return settings.read(path, os.environ) if path else settings.from_environment(os.environ)


def ledger_of(config: Path | None, url: str | None) -> "Ledger":
    """Return the ledger of this URL, else of the settings; the default one of SQLite where there are none."""
    from gateway import app

    found = None if url else settings_of(config)
    if found is None:
        return app.open_ledger(url or "sqlite:gateway.db", 5)
    each = found.ledger
    return app.open_ledger(each.url.reveal(), max(5, each.timeout_s), pool=each.pool)


def moment(text: str | None) -> datetime | None:
    """Return the time that `--since` names: an ISO time (UTC unless it says otherwise) or a span before now."""
    if text is None:
        return None
    span = re.fullmatch(r"(\d+)([smhd])", text)
    if span:
        unit = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}[span[2]]
        return datetime.now(UTC) - timedelta(**{unit: int(span[1])})
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither an ISO time nor a span such as 2h") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def with_ledger(config: Path | None, url: str | None, work: "Callable[[Ledger], Any]") -> Any:
    """Run a coroutine on the ledger, and let go of it afterwards."""

    async def run() -> Any:
        ledger = ledger_of(config, url)
        try:
            return await work(ledger)
        finally:
            await ledger.close()

    return asyncio.run(run())


@cli.command()
def serve(
    config: Config = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; default 4100.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
) -> None:
    """Run the proxy."""
    from gateway import app, settings

    found = settings_of(config)
    if found is None:
        typer.echo(SIMULATED, err=True)
        found = app.simulated_settings()
    if host or port:
        found = settings.with_server(found, host=host, port=port)
    app.serve(found, workers=workers)


@cli.command()
def demo(once: Annotated[bool, typer.Option("--once", help="End after the table.")] = False) -> None:
    """Play an agent session straight to a simulated provider and through the gateway, side by side."""
    from gateway import demo as stage

    asyncio.run(stage.play(once=once, write=typer.echo))


@cli.command()
def check(file: Annotated[Path, typer.Argument(help="Settings file.")], as_json: AsJson = False) -> None:
    """Validate a settings file; every error with its place. Exit status 0 or 2."""
    from gateway import settings
    from gateway.errors import ConfigurationError

    try:
        found = settings.read(file, os.environ)
    except ConfigurationError as error:
        problems = getattr(error, "problems", ())
        if as_json:
            typer.echo(
                json.dumps(
                    {"ok": False, "problems": [each.to_dict() if hasattr(each, "to_dict") else str(each) for each in problems]}
                )
            )
        else:
            typer.echo(error.message, err=True)
        raise typer.Exit(2) from None
    routes = [route.name for route in found.routes]
    typer.echo(
        json.dumps({"ok": True, "routes": routes, "digest": found.digest}) if as_json else f"{file}: ok, {len(routes)} route(s)"
    )


@cli.command()
def schema() -> None:
    """Print the JSON Schema of the settings file, for editors."""
    from gateway import settings

    typer.echo(json.dumps(settings.schema(), indent=2))


@cli.command()
def explain(
    request: Annotated[Path, typer.Argument(help="A request body, as JSON.")],
    route: Annotated[str | None, typer.Option(help="Route, instead of the one its model chooses.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Say, per target, what would happen to a request; sends nothing."""
    from gateway import app

    found = settings_of(config) or app.simulated_settings()
    made = asyncio.run(app.explain(found, request.read_bytes(), route))
    if as_json:
        typer.echo(json.dumps(made))
        return
    typer.echo(f"route {made['route']}, {made['messages']} messages")
    for target in made["targets"]:
        sums = ", ".join(f"{name} {'unknown' if value is None else value}" for name, value in target["runway"].items())
        typer.echo(f"  {target['target']}: {target['verdict']} ({sums})")
        for name in ("compaction", "segments", "cut", "reason"):
            if name in target:
                typer.echo(f"    {name}: {target[name]}")


def line_of(record: "Record") -> str:
    """Return one readable line for a record."""
    values = json.loads(_dumps(record))
    named = " ".join(
        f"{name}={values[name]}" for name in ("target", "outcome", "status", "compaction", "reason") if values.get(name) is not None
    )
    return f"{values['at'][:23]}  {values['id']}  {values['type']:<17} {values['route']}  {named}"


def _dumps(record: "Record") -> bytes:
    from gateway.ledger import codec

    return codec.dumps(record)


@cli.command()
def log(
    follow: Annotated[bool, typer.Option("--follow", help="Keep printing what is appended.")] = False,
    route: Annotated[str | None, typer.Option(help="Only this route.")] = None,
    session: Annotated[str | None, typer.Option(help="Only this session.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many records.")] = 200,
    config: Config = None,
    ledger: LedgerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print the ledger, oldest first."""

    def wanted(record: "Record") -> bool:
        return (route is None or record.route == route) and (session is None or record.session == session)

    async def newest(store: "Ledger") -> "list[Record]":
        found: list[Record] = []
        async for record in store.read(newest_first=True):
            if wanted(record):
                found.append(record)
            if len(found) == limit:
                break
        return found[::-1]

    async def work(store: "Ledger") -> None:
        found = await newest(store)
        if as_json and not follow:
            typer.echo(b"[" + b",\n".join(map(_dumps, found)) + b"]")
            return
        seen = {each.id for each in found}
        for each in found:
            typer.echo(_dumps(each) if as_json else line_of(each))
        since = max((each.at for each in found), default=datetime.now(UTC))
        while follow:
            await asyncio.sleep(1)
            async for record in store.read(since=since - timedelta(seconds=5)):
                if record.id not in seen and wanted(record):
                    typer.echo(_dumps(record) if as_json else line_of(record))
                seen.add(record.id)
                since = max(since, record.at)

    with_ledger(config, ledger, work)


@cli.command()
def show(
    snapshot_id: Annotated[str, typer.Argument(help="Id of a snapshot.")],
    config: Config = None,
    ledger: LedgerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print one call: its records, its sums and the exact prompt that was sent."""
    from gateway import replay
    from gateway.ledger import codec
    from gateway.ledger.records import PromptComposed

    async def work(store: "Ledger") -> None:
        records = await store.find(snapshot_id)
        composed = next((each for each in records if isinstance(each, PromptComposed)), None)
        if composed is None:
            raise GatewayError(f"no snapshot {snapshot_id!r} in this ledger")
        bodies = await replay.bodies_of(store, [composed])
        prompt = codec.joined(composed.prompt, bodies.__getitem__).decode("utf-8", "replace")
        if as_json:
            typer.echo(json.dumps({"records": [json.loads(_dumps(each)) for each in records], "prompt": prompt}))
            return
        for each in records:
            typer.echo(line_of(each))
        typer.echo("runway      " + "  ".join(f"{name} {value}" for name, value in composed.runway.items()))
        typer.echo("segments    " + "  ".join(f"{name} {value}" for name, value in composed.layout.items()))
        typer.echo(f"compaction  {composed.compaction}\n\n{prompt}")

    with_ledger(config, ledger, work)


@cli.command()
def verify(since: Since = None, config: Config = None, ledger: LedgerUrl = None, as_json: AsJson = False) -> None:
    """Rebuild every recorded prompt from its inputs and compare bit for bit. Exit status 1 at the first difference."""
    from rich.console import Console
    from rich.progress import Progress

    from gateway import replay

    async def work(store: "Ledger") -> tuple[int, "replay.Verdict | None"]:
        count = 0
        with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
            task = progress.add_task("prompts", total=None)
            async for verdict in replay.verify(store, moment(since)):
                if verdict.problem is not None:
                    return count, verdict
                count += 1
                progress.update(task, advance=1)
        return count, None

    count, wrong = with_ledger(config, ledger, work)
    if as_json:
        found = None if wrong is None else {name: getattr(wrong, name) for name in wrong.__slots__}
        typer.echo(json.dumps({"verified": count, "difference": found}))
    elif wrong is None:
        typer.echo(f"{count} prompts verified, bit for bit")
    else:
        typer.echo(f"{wrong.snapshot_id}: {wrong.problem}")
        if wrong.offset is not None:
            typer.echo(f"  from byte {wrong.offset}\n  recorded: …{wrong.recorded}…\n  rebuilt:  …{wrong.rebuilt}…")
        typer.echo(f"{count} prompts before it verified")
    if wrong is not None:
        raise typer.Exit(1)
