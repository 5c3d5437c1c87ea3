"""How commands print what they did: a sentence for people or, with `--json`, the facts for programs.

With `--json` standard output holds the facts alone.
"""

import json
import sys
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.progress import Progress


def print_json(facts: Any) -> None:
    """Print facts as a JSON document. Raises ValueError for a number that JSON cannot express."""
    typer.echo(json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False))


def confirm(question: str) -> None:
    """Ask before a step that loses something. Raises Abort unless the answer is yes; says so if nobody can answer."""
    try:
        is_agreed = typer.confirm(question, err=True)
    except typer.Abort:
        if not sys.stdin.isatty():
            typer.echo("\nStandard input holds no answer: to go on without the question, add --yes", err=True)
        raise
    if not is_agreed:
        raise typer.Abort


def print_facts(facts: Any, sentence: str, *, as_json: bool) -> None:
    """Print the facts as JSON, or else the sentence."""
    if as_json:
        print_json(facts)
        return
    from rich.console import Console

    Console().print(sentence, markup=False, highlight=False)


def row_progress() -> "Progress":
    """A progress bar on standard error for a file of rows; its fields are `rows` and `rate`, in rows a second."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TextColumn("{task.fields[rate]:,.0f} rows/s"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )
