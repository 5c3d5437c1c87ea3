"""The table of `morrow events history`."""

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_imports(task: str, imports: Sequence[dict[str, Any]]) -> None:
    """Print a line for each import, newest first."""
    if not imports:
        Console().print(f"{task} has no import yet: `morrow events import {task} FILE` makes one.", highlight=False)
        return
    rows = [_describe(one) for one in imports]
    widths = [max(map(cell_len, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    console = Console()
    others = sum(widths) - widths[_FILE] + 2 * (len(widths) - 1)
    widths[_FILE] = min(widths[_FILE], max(_LEAST_NAME, console.width - others))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading, width in zip(_HEADINGS, widths, strict=True):
        table.add_column(heading, no_wrap=True, min_width=width)
    for row in rows:
        table.add_row(*map(Text, map(cut_middle, row, widths)))
    console.print(table, no_wrap=True, crop=False, width=max(console.width, others + widths[_FILE]))


_HEADINGS = ("import", "at", "by", "events", "retracted", "file")
_FILE = 5
# Names are never cut below this width, and lines are then longer than the screen.
_LEAST_NAME = 12
_LONGEST_ACTOR = 12


def cut_middle(text: str, width: int) -> str:
    """The text in this many columns of a screen, without its middle if it is longer."""
    if cell_len(text) <= width:
        return text
    head, tail = text, ""
    for kept in range(len(text), 0, -1):
        head, tail = text[: kept - kept // 2], text[len(text) - kept // 2 :]
        if cell_len(head) + cell_len(tail) < width:
            break
    return f"{head}…{tail}"


def _describe(one: dict[str, Any]) -> tuple[str, ...]:
    retracted = "–" if one["retracted_at"] is None else _minute(one["retracted_at"])
    actor = cut_middle(one["actor"], _LONGEST_ACTOR)
    return str(one["id"]), _minute(one["at"]), actor, _count(one), retracted, one["source"]


def _count(one: dict[str, Any]) -> str:
    """How many events of an import are stored, and of how many; one that never stored any says so."""
    num_events = one["num_events"] + one["num_corrected"]
    if one["num_retracted"]:
        return f"{num_events:,} of {num_events + one['num_retracted']:,}"
    return f"{num_events:,}" if num_events else "none stored"


def _minute(moment: str) -> str:
    """A moment of the API to the minute."""
    return f"{moment[:16]}Z"
