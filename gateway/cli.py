"""The command line: one group of all commands. Each loads what it needs when it runs, so that `gateway --help` is quick."""

from typing import Any

import typer
from typer.core import TyperGroup

from gateway.commands import comparing, configuration, doctor, ledger, serving
from gateway.errors import GatewayError


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
for each in (serving, configuration, ledger, comparing, doctor):
    cli.add_typer(each.commands)


def main() -> None:
    """Run the command line."""
    cli()
