"""Commands about the settings file: `check`, `schema`, `explain`, `import-litellm`."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from gateway.commands import AsJson, Config, listed, settings_of
from gateway.errors import ConfigurationError

commands = typer.Typer()


@commands.command()
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


@commands.command()
def schema() -> None:
    """Print the JSON Schema of the settings file, for editors."""
    from gateway import settings

    typer.echo(json.dumps(settings.schema(), indent=2))


@commands.command()
def explain(
    request: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A request body, as JSON.")],
    route: Annotated[str | None, typer.Option(help="Route, instead of the one its model chooses.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Say, per target, what would happen to a request; sends nothing."""
    import asyncio

    from gateway import app, serving

    found = settings_of(config) or serving.simulated_settings()
    made = asyncio.run(app.explain(found, request.read_bytes(), route))
    if as_json:
        typer.echo(json.dumps(made))
        return
    typer.echo(f"route {made['route']}, model {made['model']}, {made['messages']} messages")
    for target in made["targets"]:
        typer.echo(f"{target['target']}: {target['verdict']}")
        for name, value in target.items():
            if name not in ("target", "verdict") and value != []:
                typer.echo(f"  {name:<12}  {listed(value) if isinstance(value, dict) else value}")


@commands.command("import-litellm")
def import_litellm(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, readable=True, help="A LiteLLM proxy configuration.")],
    output: Annotated[Path | None, typer.Option("--output", help="Write the settings here; default standard output.")] = None,
    as_json: AsJson = False,
) -> None:
    """Turn a LiteLLM proxy YAML into ours; say what was kept, changed and refused."""
    from dataclasses import asdict

    from gateway import litellm_import

    made = litellm_import.convert(file.read_text(encoding="utf-8-sig"), os.environ)
    if output is not None:
        output.write_text(made.yaml, encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(asdict(made)))
        return
    if output is None:
        typer.echo(made.yaml, nl=False)
    for each in made.findings:
        typer.echo(f"{each.fate:<8} {each.path}: {each.said}", err=True)
    if made.variables:
        typer.echo(f"set in the environment: {', '.join(made.variables)}", err=True)
