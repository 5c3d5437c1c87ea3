"""The table of `morrow events history`."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def print_imports(task: str, imports: Sequence[dict[str, Any]]) -> None:
    """Print a line for each import, newest first."""
    if not imports:
        Console().print(f"{task} has no import yet: `morrow events import {task} FILE` makes one.", highlight=False)
        return
    table = Table("import", "at", "by", "file", "retracted")
    for one in imports:
        retracted = "–" if one["retracted_at"] is None else f"{one['retracted_at']}, {one['num_retracted']:,} events"
        table.add_row(str(one["id"]), one["at"], one["actor"], one["source"], retracted)
    Console().print(table)
