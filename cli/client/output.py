"""How commands print what they did: a sentence for people or, with `--json`, the facts for programs.

With `--json` standard output holds the facts alone.
"""

import json
from typing import Any

import typer


def print_json(facts: Any) -> None:
    """Print facts as a JSON document. Raises ValueError for a number that JSON cannot express."""
    typer.echo(json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False))


def print_facts(facts: Any, sentence: str, *, as_json: bool) -> None:
    """Print the facts as JSON, or else the sentence."""
    if as_json:
        print_json(facts)
        return
    from rich.console import Console

    Console().print(sentence, markup=False, highlight=False)
