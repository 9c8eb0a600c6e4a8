"""Commands that lay two things side by side: `whatif`."""

import json
import os
import sys
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.commands import AsJson, LedgerUrl, Progress, Since, moment, with_ledger

if TYPE_CHECKING:
    from gateway.cache.cost import Prices
    from gateway.ledger.base import Ledger
    from gateway.settings import Settings
    from gateway.whatif import Compared, Side

commands = typer.Typer()


@commands.command()
def whatif(
    config: Annotated[
        Path, typer.Option("--config", help="The settings file to try; its ledger is read unless --ledger is given.")
    ],
    since: Since = None,
    ledger: LedgerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Run recorded traffic through another configuration on a simulated cache; sends nothing."""
    from gateway import settings

    found = settings.read(config, os.environ)
    start = moment(since)
    compared = with_ledger(config, ledger, lambda store: _compared(store, found, start))
    if as_json:
        typer.echo(json.dumps({name: _plain(each) for name, each in compared.items()}))
        return
    _show(compared)


async def _compared(store: "Ledger", settings: "Settings", since: datetime | None) -> "dict[str, Compared]":
    """Return both sides by route, in the order of their names. Progress goes to standard error."""
    from gateway import whatif as comparison
    from gateway import wiring
    from gateway.providers import catalog

    aims = wiring.aims_of(settings, {name: wiring.upstream_of(each) for name, each in settings.providers.items()})
    known = {aim.target.name: aim.prices for aim in aims.values()}

    def prices(target: str) -> "Prices | None":
        if target not in known:
            provider, _, model = target.partition("/")
            row = catalog.lookup([(provider, model)]).get((provider, model))
            known[target] = row.prices if row else None
        return known[target]

    new = {key: comparison.Aim(target=aim.target.name, policy=aim.policy, prices=aim.prices) for key, aim in aims.items()}
    running = comparison.WhatIf(settings.routes, new, prices)
    with Progress("calls") as progress:
        async with aclosing(running.run(store, since)) as counts:
            async for count in counts:
                progress(count)
    return dict(sorted(running.compared.items()))


def _plain(compared: "Compared") -> dict[str, object]:
    from dataclasses import asdict

    sides = {"before": compared.before, "after": compared.after}
    made: dict[str, object] = {name: {**asdict(side), "hit_ratio": side.hit_ratio} for name, side in sides.items()}
    return made | {"unreadable": compared.unreadable}


def _show(compared: "dict[str, Compared]") -> None:
    from rich.console import Console
    from rich.table import Table

    from gateway.whatif import Compared

    whole = Compared()
    for each in compared.values():
        whole.add(each)
    table = Table(title="estimated tokens on a simulated cache, before and after")
    columns = ("route", "", "calls", "refused", "compacted", "input", "cached", "hit ratio", "output", "cost USD", "unpriced")
    for name in columns:
        table.add_column(name, justify="left" if name in ("route", "") else "right")
    rows = [*compared.items(), *([("all routes", whole)] if len(compared) != 1 else [])]
    for name, each in rows:
        table.add_row(name, "before", *_figures(each.before))
        table.add_row("", "after", *_figures(each.after), end_section=True)
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 140)
    console.print(table)
    if whole.unreadable:
        console.print(f"{whole.unreadable} calls could not be rebuilt and are on neither side; `gateway verify` says why")


def _figures(side: "Side") -> tuple[str, ...]:
    ratio = "-" if side.hit_ratio is None else f"{side.hit_ratio:.3f}"
    counts = (side.calls, side.refused, side.compacted, side.input_tokens, side.cached_tokens)
    return (*(f"{each:,}" for each in counts), ratio, f"{side.output_tokens:,}", f"{side.cost_usd:,.4f}", f"{side.unpriced:,}")
