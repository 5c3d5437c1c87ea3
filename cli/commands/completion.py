"""`morrow completion`: the script that lets a shell complete commands and options."""

from typing import Annotated, Literal

import typer
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]

Shell = Literal["bash", "zsh", "fish"]
# The variable in which Typer expects a completion request; it derives the name from the program's.
VARIABLE = "_MORROW_COMPLETE"


def answer_completions() -> None:
    """Answer completion requests in the form that these scripts read. Call this before building a command line."""
    completion_init()


def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print the script that lets a shell complete commands and options.

    In ~/.bashrc: `eval "$(morrow completion bash)"`; in ~/.zshrc the same with zsh, after compinit; in
    ~/.config/fish/config.fish: `morrow completion fish | source`.
    """
    typer.echo(get_completion_script(prog_name="morrow", complete_var=VARIABLE, shell=shell))
