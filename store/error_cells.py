"""The table of the error matrix: one cell for the error of one fit on one target window.

Backtest and live scoring write the same cells. A cell holds enough about its rows for every later use of the matrix, so
no row is scored twice for another purpose.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, delete, func, literal, select, text, tuple_
from sqlalchemy.dialects.postgresql import insert

from contracts.clock import from_micros, to_micros
from store.database import FIRST_MOMENT, error_cells, is_readable

NAIVE = "naive"
# What a fit would have answered otherwise: with the mixture of experts if its network answers alone, and vice versa.
MIXTURE, ALONE = "mixture", "alone"
VARIANTS = (MIXTURE, ALONE)


@dataclass(frozen=True)
class Cell:
    """Error of `method` fitted at `origin` on the rows of the window that starts at `window` (microseconds).

    loss, metric   mean log-loss and error rate, or mean Gaussian negative log-likelihood and absolute error
    num_revisions  revisions of events that the window held when it was scored; with `num_rows` it shows whether
                   anything has changed since
    is_complete    whether all labels of the window were due when it was scored; before, the cell is preliminary
    scores         sorted nonconformity scores, or as many evenly spaced quantiles of them
    (`trainer.evaluation.calibration`)
    tempered       mean log-loss at each temperature of `trainer.evaluation.calibration`; empty for regression
    """

    origin: int
    window: int
    method: str
    num_rows: int
    loss: float
    metric: float
    num_revisions: int = 0
    is_complete: bool = True
    scores: tuple[float, ...] = ()
    tempered: tuple[float, ...] = ()


@dataclass(frozen=True)
class Mark:
    """A stored cell without its sketches: the rows it was scored on, its error, and the time (microseconds)."""

    origin: int
    window: int
    method: str
    num_rows: int
    loss: float
    metric: float
    num_revisions: int
    is_complete: bool
    scored_at: int


def error_of(cell: Cell | Mark, error_name: str) -> float:
    """The error that a task is judged by, `Task.error_name`."""
    return cell.loss if error_name == "log_loss" else cell.metric


_NAMES = [field.name for field in fields(Cell)]
_MOMENTS = ("origin", "window")
_SKETCHES = ("scores", "tempered")
_KEY = ("task_id", "recipe", "origin", "window", "method")


def record_cells(connection: Connection, task_id: int, recipe: str, cells: Sequence[Cell], now: datetime) -> None:
    """Store cells; each replaces a stored one, unless that knew more revisions.

    With as many revisions, a stored cell stays if it was complete and the new one is not.
    """
    if not cells:
        return
    statement = insert(error_cells)
    found = statement.excluded
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=_KEY,
            set_={column.name: found[column.name] for column in error_cells.columns if column.name not in _KEY},
            where=tuple_(error_cells.c.num_revisions, error_cells.c.is_complete)
            <= tuple_(found.num_revisions, found.is_complete),
        ),
        [_row(cell) | {"task_id": task_id, "recipe": recipe, "scored_at": now} for cell in cells],
    )


def read_cells(
    connection: Connection,
    task_id: int,
    recipe: str,
    *,
    until: int,
    since: int | None = None,
    origin: int | None = None,
    methods: Collection[str] | None = None,
    sketched: Collection[str] | None = None,
) -> list[Cell]:
    """Cells whose target window starts before `until`, and at or after `since` if given; oldest window first.

    Only those of `origin` and of `methods`, if given. With `sketched`, cells of other methods come without `scores` and
    `tempered`, which are nearly all of their size.
    """
    chosen: list[ColumnElement[bool]] = []
    if since is not None:
        chosen.append(error_cells.c.window >= from_micros(since))
    if origin is not None:
        chosen.append(error_cells.c.origin == from_micros(origin))
    if methods is not None:
        chosen.append(error_cells.c.method.in_(methods))
    rows = connection.execute(
        select(*(_column(name, sketched) for name in _NAMES))
        .where(
            error_cells.c.task_id == task_id,
            error_cells.c.recipe == recipe,
            error_cells.c.window < from_micros(until),
            *chosen,
        )
        .order_by(error_cells.c.window, error_cells.c.origin, error_cells.c.method)
    )
    return [_cell(row) for row in rows]


def _column(name: str, sketched: Collection[str] | None) -> ColumnElement[Any]:
    column = error_cells.c[name]
    if name not in _SKETCHES or sketched is None:
        return column
    return case((error_cells.c.method.in_(sketched), column), else_=literal([], column.type))


def read_marks(connection: Connection, task_id: int, recipe: str, *, since: int | None) -> list[Mark]:
    """The stored cells of fits of origins at or after `since` (microseconds), without sketches; oldest window first.

    With None, those of all origins.

    Cells with a moment out of the calendar are left out; `store.paired_errors` counts them.
    """
    names = [field.name for field in fields(Mark)]
    rows = connection.execute(
        select(*(error_cells.c[name] for name in names))
        .where(
            error_cells.c.task_id == task_id,
            error_cells.c.recipe == recipe,
            error_cells.c.origin >= (FIRST_MOMENT if since is None else from_micros(since)),
            *(is_readable(error_cells.c[name]) for name in (*_MOMENTS, "scored_at")),
        )
        .order_by(error_cells.c.window, error_cells.c.origin, error_cells.c.method)
    )
    return [_mark(row) for row in rows]


def find_newest_origin(connection: Connection, task_id: int, recipe: str) -> int | None:
    """The newest origin whose fits were scored (microseconds); None if no cell of the recipe is stored."""
    newest = connection.execute(
        select(func.max(error_cells.c.origin)).where(
            error_cells.c.task_id == task_id, error_cells.c.recipe == recipe, is_readable(error_cells.c.origin)
        )
    ).scalar_one()
    return None if newest is None else to_micros(newest)


def find_oldest_of_newest(connection: Connection, task_id: int, recipe: str, *, until: int, count: int) -> int | None:
    """The oldest of the `count` newest target windows with cells before `until`; None if there are fewer.

    It costs as much however many older windows there are.
    """
    columns = error_cells.c
    newest = (
        select(columns.window)
        .where(columns.task_id == task_id, columns.recipe == recipe, columns.window < from_micros(until))
        .distinct()
        .order_by(columns.window.desc())
        .offset(count - 1)
        .limit(1)
    )
    oldest = connection.execute(newest).scalar_one_or_none()
    return None if oldest is None else to_micros(oldest)


def delete_older(
    connection: Connection, task_id: int, *, before: int, except_origins: Collection[int], size: int
) -> int:
    """Delete some cells of the task's windows before a moment (microseconds), of all recipes; returns how many.

    Cells of these origins stay.
    """
    given = {
        "task_id": task_id,
        "before": from_micros(before),
        "kept": [from_micros(origin) for origin in except_origins],
        "size": size,
    }
    return connection.execute(_DELETE_OLDER, given).rowcount


def delete_window(connection: Connection, task_id: int, recipe: str, window: int) -> None:
    """Delete the cells of a target window: corrections have moved all of its rows to others."""
    _delete_cells(connection, task_id, recipe, error_cells.c.window == from_micros(window))


def delete_origin(connection: Connection, task_id: int, recipe: str, origin: int) -> None:
    """Delete the cells of an origin, of all methods, before it is fitted again on other rows."""
    _delete_cells(connection, task_id, recipe, error_cells.c.origin == from_micros(origin))


def delete_marked(connection: Connection, task_id: int, recipe: str, marks: Collection[Mark]) -> None:
    """Delete these cells, unless they were scored again since they were read."""
    columns = error_cells.c
    keys = [(from_micros(mark.origin), from_micros(mark.window), mark.method, mark.num_revisions) for mark in marks]
    _delete_cells(
        connection,
        task_id,
        recipe,
        tuple_(columns.origin, columns.window, columns.method, columns.num_revisions).in_(keys),
    )


def _delete_cells(connection: Connection, task_id: int, recipe: str, chosen: ColumnElement[bool]) -> None:
    connection.execute(
        delete(error_cells).where(error_cells.c.task_id == task_id, error_cells.c.recipe == recipe, chosen)
    )


def _mark(row: Sequence[Any]) -> Mark:
    origin, window, *values, scored_at = row
    return Mark(*(to_micros(origin), to_micros(window), *values, to_micros(scored_at)))


def _cell(row: Sequence[Any]) -> Cell:
    origin, window, *values, scores, tempered = row
    return Cell(*(to_micros(origin), to_micros(window), *values, tuple(scores), tuple(tempered)))


def _row(cell: Cell) -> dict[str, object]:
    values = {name: getattr(cell, name) for name in _NAMES}
    return (
        values
        | {name: from_micros(values[name]) for name in _MOMENTS}
        | {name: list(values[name]) for name in _SKETCHES}
    )


_DELETE_OLDER = text("""
    DELETE FROM error_cells WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM error_cells
        WHERE task_id = :task_id AND "window" < :before AND origin <> ALL(CAST(:kept AS timestamptz[]))
        LIMIT :size
    ))
""")
