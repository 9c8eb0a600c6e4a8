"""What commands share: how they find the settings and the ledger, and how a time is written."""

import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from gateway.errors import ConfigurationError

if TYPE_CHECKING:
    from gateway.ledger.base import Ledger
    from gateway.settings import Settings

T = TypeVar("T")
DEFAULT_CONFIG = Path("config/gateway.yaml")
DEFAULT_LEDGER = "sqlite:gateway.db"
REPORT_EVERY = 10_000  # things done between two lines of progress where there is no terminal
READING_S = 5.0  # least time a command gives the ledger: nobody's call waits for it

Config = Annotated[Path | None, typer.Option("--config", help="Settings file; default config/gateway.yaml, else the environment.")]
LedgerUrl = Annotated[str | None, typer.Option("--ledger", help="Ledger URL instead of the settings file's.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Since = Annotated[str | None, typer.Option("--since", help="ISO time, or a span such as 30m, 2h, 7d.")]


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
    from gateway import wiring

    found = None if url else settings_of(config)
    place = url or (found.ledger.url.reveal() if found else DEFAULT_LEDGER)
    if place.startswith("sqlite:"):
        path = place.removeprefix("sqlite:").removeprefix("//") or DEFAULT_LEDGER.removeprefix("sqlite:")
        if not Path(path).is_file():
            raise ConfigurationError(f"there is no ledger file {path}; name another with --ledger URL or --config FILE")
    if found is None:
        return wiring.open_ledger(place, READING_S)
    return wiring.open_ledger(place, max(READING_S, found.ledger.timeout_s), pool=found.ledger.pool)


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


def listed(values: Mapping[str, object]) -> str:
    """Return figures by name in one line; an unknown one says so."""
    return "  ".join(f"{name} {'unknown' if value is None else value}" for name, value in values.items())


class Progress:
    """What long work says on standard error: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, noun: str) -> None:
        self._noun = noun

    def __enter__(self) -> "Callable[[int], None]":
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        terminal, reported = sys.stderr.isatty(), 0
        columns = (TextColumn("{task.completed:,.0f} " + self._noun), BarColumn(), TimeElapsedColumn())
        self._bar = Bar(*columns, console=Console(stderr=True), disable=not terminal, transient=True)
        self._bar.start()
        task = self._bar.add_task(self._noun, total=None)

        def progress(done: int) -> None:
            nonlocal reported
            self._bar.update(task, completed=done)
            if not terminal and done // REPORT_EVERY > reported:
                reported = done // REPORT_EVERY
                typer.echo(f"{done} {self._noun} so far", err=True)

        return progress

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
