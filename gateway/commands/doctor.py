"""The command `doctor`."""

import json

import typer

from gateway.commands import AsJson, Config, settings_of
from gateway.errors import ConfigurationError

commands = typer.Typer()


@commands.command()
def doctor(config: Config = None, as_json: AsJson = False) -> None:
    """Check the installation, the settings, the ledger and the keys. Exit status 1 where something is wrong."""
    import asyncio
    from dataclasses import asdict

    from gateway import doctor as checks
    from gateway import wiring

    findings = [checks.installation()]
    try:
        found = settings_of(config)
    except ConfigurationError as error:
        found = None
        findings.append(checks.Finding(level="error", about="settings", said=error.message, hint="see `gateway check FILE`"))
    else:
        if found is None:
            said = "no settings file and no provider key in the environment: `gateway serve` would serve the simulated provider"
            findings.append(checks.Finding(level="warning", about="settings", said=said, hint="export a key"))
    if found is not None:
        findings += checks.settings(found)
        store = found.ledger
        findings.append(
            asyncio.run(checks.ledger(lambda: wiring.open_ledger(store.url.reveal(), store.timeout_s, pool=1), store.timeout_s + 1))
        )
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in findings]))
    else:
        for each in findings:
            typer.echo(f"{each.level:<8} {each.about}: {each.said}" + (f" ({each.hint})" if each.hint else ""))
    if any(each.level == "error" for each in findings):
        raise typer.Exit(1)
