"""The pages of commands: `morrow`, and the benchmarks."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

import benchmarks
from benchmarks.__main__ import BENCHMARKS
from cli.main import app
from handbook.tables import code, table


def commands_page() -> str:
    """Every command with its arguments and options."""
    root = typer.main.get_command(app)
    told = "\n".join(_tell(name, command, context) for name, command, context in _walk("morrow", root, None))
    return (
        "# The command line\n\nEvery command says as much with `--help`. It ends with exit code 0 when it did what was "
        "asked, 1 with a sentence when it could not, 2 when it was asked wrongly, and 3 when some rows of an import "
        "were refused, or some ids of an erasure are not stored.\n\n"
        f"{told}"
    )


def benchmarks_page() -> str:
    """What `python -m benchmarks` can measure."""
    rows = [(f"[{name}](#{name})", purpose) for name, purpose in BENCHMARKS.items()]
    told = "\n".join(f"## {name}\n\n{_docstring(name)}\n" for name in BENCHMARKS)
    return (
        "# Benchmarks\n\n`python -m benchmarks NAME --help` tells the options of each. Figures of two runs compare "
        "only where both ran side by side.\n\n"
        f"{table(('name', 'what'), rows)}\n{told}"
    )


def _walk(name: str, command: Any, parent: Any) -> Iterator[tuple[str, Any, Any]]:
    context = typer.Context(command, info_name=name, parent=parent)
    if not isinstance(command, TyperGroup):
        yield name, command, context
        return
    for each in command.list_commands(context):
        yield from _walk(f"{name} {each}", command.get_command(context, each), context)


def _tell(name: str, command: Any, context: Any) -> str:
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    records = [record for parameter in command.get_params(context) if (record := parameter.get_help_record(context))]
    rows = [(code(term), meaning) for term, meaning in records if term != "--help"]
    help_text = "\n".join(line.strip() for line in (command.help or "").splitlines())
    return f"## {name}\n\n{help_text}\n\n```console\n$ {usage}\n```\n" + (
        f"\n{table(('argument or option', 'meaning'), rows)}" if rows else ""
    )


def _docstring(name: str) -> str:
    """Read without importing: a benchmark brings heavy libraries along."""
    folder = Path(benchmarks.__path__[0])
    file = folder / name / "command.py"
    tree = ast.parse((file if file.exists() else folder / f"{name}.py").read_text("utf-8"))
    return ast.get_docstring(tree) or ""
