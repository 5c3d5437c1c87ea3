"""`morrow completion`: the script by which a shell completes commands and options."""

from typing import Literal

import typer
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]

Shell = Literal["bash", "zsh", "fish"]
# The name that Typer derives from the program's, and answers completions under.
VARIABLE = "_MORROW_COMPLETE"


def complete_as_typer() -> None:
    """Answer what these scripts ask in the form that they read. Before a command line is built."""
    completion_init()


def print_script(shell: Shell) -> None:
    """What the shell has to read at its start."""
    typer.echo(get_completion_script(prog_name="morrow", complete_var=VARIABLE, shell=shell))
