"""`morrow completion`: the script that lets a shell complete commands and options."""

import os
from typing import Annotated, Literal

import typer

Shell = Literal["bash", "zsh", "fish"]
# The variable in which Typer expects a completion request; it derives the name from the program's.
VARIABLE = "_MORROW_COMPLETE"


def answer_completions() -> None:
    """Answer a completion request in the form that these scripts read, if this is one. Call it before the app is built.

    Typer has these functions without a promise to keep them, so only a request and the command below import them.
    """
    if VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]  # re-exported

        completion_init()


def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print the script that lets a shell complete commands and options.

    In ~/.bashrc: `eval "$(morrow completion bash)"`; in ~/.zshrc the same with zsh, after compinit; in
    ~/.config/fish/config.fish: `morrow completion fish | source`.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # re-exported

    typer.echo(get_completion_script(prog_name="morrow", complete_var=VARIABLE, shell=shell))
