"""The group of all commands: how they fail, how they print on any terminal, and `--version`."""

import io
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from contracts.errors import InvalidInput, MorrowError


class Commands(TyperGroup):
    """Prints our errors as sentences, with exit code 1, or 2 if an option is at fault, as typer itself does.

    Any other exception is a bug and keeps its traceback.
    """

    def invoke(self, ctx: Any) -> Any:
        from pydantic import ValidationError

        code = 1
        _print_on_any_terminal()
        try:
            return super().invoke(ctx)
        except MorrowError as error:
            sentence = str(error)
            if isinstance(error, InvalidInput) and any(fault.field.startswith("--") for fault in error.faults):
                code = 2
        except ValidationError as error:
            prefix = "MORROW_" if error.title.endswith("Settings") else ""
            sentence = "\n".join(
                f"{_name_field(fault['loc'], prefix)}: {fault['msg']}" for fault in error.errors(include_url=False)
            )
        typer.secho(sentence, fg="red", err=True)
        raise typer.Exit(code)


def _print_on_any_terminal() -> None:
    """Print a character that the terminal's encoding lacks as JSON escapes it, rather than fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _name_field(path: tuple[int | str, ...], prefix: str) -> str:
    """A field under the name that people write: for a setting, its environment variable."""
    name = ".".join(map(str, path))
    return prefix + name.upper() if prefix else name


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(version("morrow"))
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print Morrow's version and exit.")
]
