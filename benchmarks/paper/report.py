"""The tables in print: one row a method, one column a set, ours above the published figure.

The same grid is drawn in a terminal and written as Markdown. The tables of the docs come from `handbook.results`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table as Drawing

from benchmarks.paper.cells import Cell, Kept
from benchmarks.paper.published import PUBLISHED, PUBLISHED_AS, Published
from benchmarks.paper.sets.files import ORIGINS
from benchmarks.paper.tables import TABLES, Entry

EXPLAINED = (
    "Errors on the first unseen domain, in percent of wrong classes or as mean absolute errors; mean ± standard "
    "deviation over independent models, above the published figure in brackets. `paper` is the recipe of the paper's "
    "appendix, one network a model; `released` is what the service trains, a cohort that answers as one model; `rule` "
    "costs no fit. A blank cell has not been run. `no FILE` means that the set's file was missing, `DNC` that the "
    "method did not converge."
)
_NAMES_WIDTH, _COLUMN_WIDTH = 30, 17
# Rows of later papers and of our goals, below the tables of all methods and of what is released.
_BESIDE = (("successors", "drain", "DRAIN 2023"), ("successors", "koodos", "Koodos 2024"), ("goal", "gi", "our goal"))


@dataclass(frozen=True)
class Grid:
    """A table in words: texts of rows, each as long as the header."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def figure(mean: float | None, std: float | None) -> str:
    """`7.5 ± 1.2`, with as many digits as the figure's size deserves."""
    if mean is None:
        return "–"
    digits = 1 if abs(mean) >= 10 else 2
    return f"{mean:.{digits}f}" if std is None else f"{mean:.{digits}f} ± {std:.{digits}f}"


def line(cell: Cell) -> str:
    """One cell as a sentence, for people who follow a run."""
    name = f"{cell['table']}, {cell['set']}, {cell['method']} ({cell['config']})"
    if "missing" in cell:
        return f"{name}: {cell['missing']} is missing, from {ORIGINS[cell['missing']]}"
    if "failed" in cell:
        return f"{name}: {cell['failed']}"
    published = "" if cell["published"] is None else f", published {figure(cell['published'], cell['published_std'])}"
    unit = {"error_percent": " %", "seconds": " s"}.get(cell["metric"], "")
    count = f"{cell['seeds']} models in {cell['seconds']:.1f} s"
    return f"{name}: {figure(cell['mean'], cell['std'])}{unit}{published}, {count}; chosen by {cell['chosen_by']}"


def grid(name: str, entries: Sequence[Entry], kept: Kept) -> Grid:
    """The grid of one table's entries; a cell that was not run yet is blank."""
    sets = tuple(dict.fromkeys(entry.set for entry in entries))
    methods = tuple(dict.fromkeys((entry.label, entry.config) for entry in entries))
    at = {(entry.label, entry.config, entry.set): entry for entry in entries}
    rows = [
        (label, config, *(_text(at.get((label, config, column)), kept) for column in sets)) for label, config in methods
    ]
    if name in ("main", "released"):
        rows += [
            (title, "published", *(_beside(table, key, column) for column in sets)) for table, key, title in _BESIDE
        ]
    return Grid(TABLES[name].title, ("method", "config", *sets), tuple(rows))


def grids(entries: Sequence[Entry], kept: Kept) -> list[Grid]:
    """The grids of all tables that these entries belong to."""
    names = dict.fromkeys(entry.table for entry in entries)
    return [grid(name, [entry for entry in entries if entry.table == name], kept) for name in names]


def draw(console: Console, drawn: Grid) -> None:
    """Print a grid."""
    table = Drawing(*drawn.header, title=drawn.title, title_justify="left", box=box.SIMPLE, show_lines=True)
    for row in drawn.rows:
        table.add_row(*row)
    # As wide as it needs: a terminal may scroll, and a log has no width.
    width = max(console.width, _NAMES_WIDTH + _COLUMN_WIDTH * len(drawn.header))
    Console(file=console.file, width=width, markup=False).print(table)


def write_markdown(file: Path, drawn: Sequence[Grid], notes: Sequence[str]) -> None:
    """Write grids, and below them what chose the settings of each cell."""
    parts = ["# The paper's tables, with ours", "", EXPLAINED, ""]
    for each in drawn:
        rows = [" | ".join(text.replace("\n", "<br>") for text in row) for row in (each.header, *each.rows)]
        rule = " | ".join("---" for _ in each.header)
        parts += [f"## {each.title}", "", *(f"| {text} |" for text in (rows[0], rule, *rows[1:])), ""]
    parts += ["## What chose the settings", "", *(f"- {note}" for note in notes), ""]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(parts), "utf-8")


def reasons(entries: Sequence[Entry], kept: Kept) -> list[str]:
    """What chose the settings of each filled cell, cells with the same reasons together."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        cell = kept.find(entry)
        if cell is not None and entry.config != "rule" and cell["mean"] is not None:
            found.setdefault(cell["chosen_by"], []).append(f"{entry.set} {entry.label}")
    return [f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in found.items()]


def _text(entry: Entry | None, kept: Kept) -> str:
    if entry is None:
        return ""
    cell, published = kept.find(entry), entry.published
    if cell is None:
        ours = ""
    elif "missing" in cell:
        ours = f"no {cell['missing']}"
    else:
        ours = "DNC" if "failed" in cell else figure(cell["mean"], cell["std"])
    return ours if published is None else f"{ours}\n({_published(published)})"


def _beside(table: str, key: str, column: str) -> str:
    published = PUBLISHED.get((table, PUBLISHED_AS.get(column, column), key))
    return "" if published is None else _published(published)


def _published(cell: Published) -> str:
    return "DNC" if cell.mean is None else figure(*cell)
