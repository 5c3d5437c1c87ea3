"""The reference pages of the command line and of the benchmarks."""

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
    sections = "\n".join(_section(name, command, context) for name, command, context in _walk("morrow", root, None))
    return (
        "# The command line\n\nEvery command prints its part of this page with `--help`. Exit codes: 0, it succeeded; "
        "1, it failed, with a sentence that says why; 2, its arguments are wrong; 3, some rows of an import were "
        "refused, or some ids of an erasure are not stored.\n\n"
        f"{sections}"
    )


def benchmarks_page() -> str:
    """Every benchmark of `python -m benchmarks`."""
    rows = [(f"[{name}](#{name})", purpose) for name, purpose in BENCHMARKS.items()]
    sections = "\n".join(f"## {name}\n\n{_docstring(name)}\n" for name in BENCHMARKS)
    return (
        "# Benchmarks\n\n`python -m benchmarks NAME --help` lists the options of each. Compare the figures of two runs "
        "only if both ran at the same time on the same machine.\n\n"
        f"{table(('name', 'what it measures'), rows)}\n{sections}"
    )


def _walk(name: str, command: Any, parent: Any) -> Iterator[tuple[str, Any, Any]]:
    context = typer.Context(command, info_name=name, parent=parent)
    if not isinstance(command, TyperGroup):
        yield name, command, context
        return
    for each in command.list_commands(context):
        yield from _walk(f"{name} {each}", command.get_command(context, each), context)


def _section(name: str, command: Any, context: Any) -> str:
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    records = [record for parameter in command.get_params(context) if (record := parameter.get_help_record(context))]
    rows = [(code(term), meaning) for term, meaning in records if term != "--help"]
    help_text = "\n".join(line.strip() for line in (command.help or "").splitlines())
    return f"## {name}\n\n{help_text}\n\n```console\n$ {usage}\n```\n" + (
        f"\n{table(('argument or option', 'meaning'), rows)}" if rows else ""
    )


def _docstring(name: str) -> str:
    """The docstring of a benchmark, read without importing it, because it imports heavy libraries."""
    folder = Path(benchmarks.__path__[0])
    file = folder / name / "command.py"
    tree = ast.parse((file if file.exists() else folder / f"{name}.py").read_text("utf-8"))
    return ast.get_docstring(tree) or ""
