"""`--json`: the facts that a command prints, for programs. Nothing else is on standard output then."""

import json
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")]


def print_json(facts: Any) -> None:
    """Print facts as a JSON document. Raises ValueError for a number that JSON cannot say."""
    typer.echo(json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False))
