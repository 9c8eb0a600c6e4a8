"""Commands that run a gateway: `serve`, `demo`."""

from typing import Annotated

import typer

from gateway.commands import DEFAULT_CONFIG, Config, settings_of

SIMULATED = "no settings file and no provider key in the environment: serving the built-in simulated provider"
commands = typer.Typer()


@commands.command()
def serve(
    config: Config = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; default 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65_535, help="Port to listen on; default 4100.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
) -> None:
    """Run the proxy."""
    from gateway import serving, settings

    path = config or (DEFAULT_CONFIG if DEFAULT_CONFIG.is_file() else None)
    if path is None and settings_of(None) is None:
        typer.echo(SIMULATED, err=True)
        found = settings.with_server(serving.simulated_settings(), host=host, port=port)
        serving.serve(found, workers=workers)
        return
    source = serving.source_of(path, host=host, port=port)
    serving.serve(source.read(), workers=workers, source=source)


@commands.command()
def demo(once: Annotated[bool, typer.Option("--once", help="End after the table.")] = False) -> None:
    """Play an agent session straight to a simulated provider and through the gateway, side by side."""
    import asyncio

    from gateway import demo as stage

    asyncio.run(stage.play(once=once, write=typer.echo))
