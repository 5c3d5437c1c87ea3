"""The table of `morrow events history`."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from contracts.shown import say_count


def print_imports(task: str, imports: Sequence[dict[str, Any]]) -> None:
    """Print a line for each import, newest first."""
    if not imports:
        Console().print(f"{task} has no import yet: `morrow events import {task} FILE` makes one.", highlight=False)
        return
    table = Table("import")
    for heading in ("at", "by", "file", "events", "retracted"):
        table.add_column(heading, no_wrap=heading in {"at", "events"}, overflow="fold")
    for one in imports:
        retracted = (
            "–"
            if one["retracted_at"] is None
            else f"{_minute(one['retracted_at'])}, {say_count(one['num_retracted'], 'event')}"
        )
        table.add_row(str(one["id"]), _minute(one["at"]), one["actor"], one["source"], _count(one), retracted)
    Console().print(table)


def _count(one: dict[str, Any]) -> str:
    """How many events of an import are stored; one that never stored any says so."""
    num_events = one["num_events"] + one["num_corrected"]
    return f"{num_events:,}" if num_events or one["num_retracted"] else "none stored"


def _minute(moment: str) -> str:
    """A moment of the API to the minute."""
    return f"{moment[:16]}Z"
