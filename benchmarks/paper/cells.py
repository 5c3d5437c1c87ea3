"""A cell of a table in machine-readable form, and the file that keeps cells during a long run.

The file is rewritten after every cell, whole or not at all: a run that is killed continues where it was.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

from benchmarks.paper.published import METRICS, PUBLISHED_AS, UNITS, Published
from benchmarks.paper.tables import Entry
from benchmarks.result_files import Figure, Label


class Cell(TypedDict):
    """Mean and standard deviation over `seeds` independent models, and the published figure.

    `seconds` is the wall clock of all of them together. `mean` is None if a file is missing, which `missing` names, or
    if no model came to be, which `failed` explains. `std` is None for a single figure.
    """

    table: str
    set: str
    method: str
    config: str
    metric: str
    mean: float | None
    std: float | None
    seeds: int
    published: float | None
    published_std: float | None
    seconds: float | None
    chosen_by: str
    missing: NotRequired[str]
    failed: NotRequired[str]


def filled(entry: Entry, errors: Sequence[float], seconds: float) -> Cell:
    """The cell of an entry whose models made these errors in this many seconds together."""
    count = len(errors)
    cell: Cell = {**_blank(entry, count), "seconds": seconds}
    if entry.measure == "seconds":
        return {**cell, "mean": seconds / count}
    mean = math.fsum(errors) / count
    std = math.sqrt(math.fsum((error - mean) ** 2 for error in errors) / count) if count > 1 else None
    return {**cell, "mean": mean, "std": std}


def moved(cell: Cell, entry: Entry) -> Cell:
    """The cell of an entry that is the same fit as another entry's cell of errors."""
    blank = _blank(entry, cell["seeds"])
    if entry.measure == "seconds":
        assert cell["seconds"] is not None
        return {**blank, "mean": cell["seconds"] / cell["seeds"], "seconds": cell["seconds"]}
    return {**blank, "mean": cell["mean"], "std": cell["std"], "seconds": cell["seconds"]}


def missing(entry: Entry, seeds: int, file: str) -> Cell:
    """The cell of an entry whose data are missing."""
    return {**_blank(entry, seeds), "missing": file}


def failed(entry: Entry, seeds: int, reason: str) -> Cell:
    """The cell of an entry whose method refuses or does not converge."""
    return {**_blank(entry, seeds), "failed": reason}


def _blank(entry: Entry, seeds: int) -> Cell:
    published = entry.published or Published(None, None)
    return {
        "table": entry.table,
        "set": entry.set,
        "method": entry.label,
        "config": entry.config,
        "metric": "seconds" if entry.measure == "seconds" else METRICS[PUBLISHED_AS.get(entry.set, entry.set)],
        "mean": None,
        "std": None,
        "seeds": seeds,
        "published": published.mean,
        "published_std": published.std,
        "seconds": None,
        "chosen_by": entry.recipe.chosen_by,
    }


def figure_of(entry: Entry, cell: Cell) -> Figure | None:
    """A cell as data; None if its data are missing."""
    if "missing" in cell:
        return None
    of: dict[str, Label] = {"table": entry.table, "set": entry.set, "method": entry.method, "config": entry.config}
    is_time = entry.measure == "seconds"
    return Figure(
        of={**of, **dict(entry.changes)},
        measure="seconds" if is_time else "error",
        unit="s" if is_time else UNITS.get(entry.set, "%"),
        value=cell["mean"],
        std=cell["std"],
        yardstick=cell["published"],
        yardstick_std=cell["published_std"],
        note=cell.get("failed", ""),
    )


class Kept:
    """The cells of all runs so far, in a file if one is named. No other process may write the same file."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        found: list[Cell] = json.loads(file.read_text("utf-8")) if file is not None and file.is_file() else []
        self._cells = {(cell["table"], cell["set"], cell["method"], cell["config"]): cell for cell in found}
        self._new: set[tuple[str, str, str, str]] = set()

    def find(self, entry: Entry) -> Cell | None:
        """The cell of an entry; None if it was never run."""
        return self._cells.get(_place(entry))

    def answers(self, entry: Entry, seeds: int) -> bool:
        """Whether an entry has a figure over this many seeds, with the same settings."""
        cell = self.find(entry)
        if cell is None or cell["mean"] is None:
            return False
        return cell["chosen_by"] == entry.recipe.chosen_by and (entry.config == "rule" or cell["seeds"] == seeds)

    def is_new(self, entry: Entry) -> bool:
        """Whether this process put the entry's cell here; the others are of earlier runs."""
        return _place(entry) in self._new

    def keep(self, cells: Mapping[Entry, Cell]) -> None:
        """Put cells in place of those that were kept for their entries."""
        self._cells |= {_place(entry): cell for entry, cell in cells.items()}
        self._new |= {_place(entry) for entry in cells}
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            partial = self._file.with_name(f"{self._file.name}.partial")
            partial.write_text(json.dumps(list(self._cells.values()), indent=2, ensure_ascii=False) + "\n", "utf-8")
            partial.replace(self._file)


def _place(entry: Entry) -> tuple[str, str, str, str]:
    """What no two cells share."""
    return entry.table, entry.set, entry.label, entry.config
