"""The group of all commands: how they fail, how they print on any terminal, and `--version`."""

import io
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cli.explanation import explain
from contracts.errors import InvalidInput


class Commands(TyperGroup):
    """Prints our errors as sentences, with exit code 1, or 2 if an option is at fault, as typer itself does.

    Any other exception is a bug and keeps its traceback.
    """

    def invoke(self, ctx: Any) -> Any:
        code = 1
        _print_on_any_terminal()
        try:
            return super().invoke(ctx)
        except Exception as error:
            if (sentence := explain(error)) is None:
                raise
            if isinstance(error, InvalidInput) and any(fault.field.startswith("--") for fault in error.faults):
                code = 2
        typer.secho(sentence, fg="red", err=True)
        raise typer.Exit(code)


def _print_on_any_terminal() -> None:
    """Print a character that the terminal's encoding lacks as JSON escapes it, rather than fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(version("morrow"))
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print Morrow's version and exit.")
]
