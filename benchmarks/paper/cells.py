"""A cell of a table in machine-readable form, and the file that keeps cells while a long run goes on.

The file is written anew, whole or not at all, after every cell: a run that is killed goes on where it was.
"""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

from benchmarks.paper.published import METRICS, Published
from benchmarks.paper.sets import PUBLISHED_AS
from benchmarks.paper.tables import Entry


class Cell(TypedDict):
    """Mean and standard deviation over `seeds` independent models, beside what was published.

    `seconds` is the wall clock of all of them together. `mean` is None where a file is missing, which `missing` names,
    or where no model came to be, which `failed` explains; `std` is None for a single figure.
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


Place = tuple[str, str, str, str]


def place(cell: Cell) -> Place:
    """What no two cells share: table, set, method, configuration."""
    return cell["table"], cell["set"], cell["method"], cell["config"]


def entry_place(entry: Entry) -> Place:
    """The place of the cell that an entry asks for."""
    return entry.table, entry.set, entry.label, entry.config


def filled(entry: Entry, values: Sequence[float], seconds: float) -> Cell:
    """The cell of an entry whose models scored these values."""
    count = len(values)
    mean = math.fsum(values) / count
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / count) if count > 1 else None
    return {**_blank(entry, count), "mean": mean, "std": std, "seconds": seconds}


def missing(entry: Entry, seeds: int, file: str) -> Cell:
    """The cell of an entry whose data are not here."""
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


def read_cells(file: Path | None) -> dict[Place, Cell]:
    """The cells that a file keeps; none where there is no file."""
    if file is None or not file.is_file():
        return {}
    found: list[Cell] = json.loads(file.read_text("utf-8"))
    return {place(cell): cell for cell in found}


def write_cells(file: Path, cells: Iterable[Cell]) -> None:
    """Replace the file's cells."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    partial.write_text(json.dumps(list(cells), indent=2, ensure_ascii=False) + "\n", "utf-8")
    partial.replace(file)


def still_holds(cell: Cell | None, entry: Entry, seeds: int) -> bool:
    """Whether a kept cell answers an entry: a figure over as many seeds, of settings that the same things chose."""
    if cell is None or cell["mean"] is None:
        return False
    return cell["chosen_by"] == entry.recipe.chosen_by and (entry.config == "rule" or cell["seeds"] == seeds)
