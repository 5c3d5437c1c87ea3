"""The table of the error matrix: one cell for the error of one fit on one target window.

Backtest and live scoring write the same cells. What a cell says of its rows is enough for everything that is read off
the matrix later, so no row is ever scored twice for another purpose.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.dialects.postgresql import insert

from contracts.clock import from_micros, to_micros
from contracts.database import error_cells

NAIVE = "naive"


@dataclass(frozen=True)
class Cell:
    """Error of `method` fitted at `origin` on the rows of the window that starts at `window` (microseconds).

    loss, metric   mean log-loss and error rate, or mean Gaussian negative log-likelihood and absolute error
    num_revisions  revisions of events that the window held when it was scored: with `num_rows` it tells whether
                   anything has changed since
    is_complete    whether all labels of the window were due when it was scored; before, the cell is a first look
    scores         sorted nonconformity scores, or as many evenly spaced quantiles of them (`trainer.calibrate`)
    tempered       mean log-loss at each temperature of `trainer.calibrate`; empty for regression
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


_NAMES = [field.name for field in fields(Cell)]
_MOMENTS = ("origin", "window")
_KEY = ("task_id", "recipe", "origin", "window", "method")


def record_cells(connection: Connection, task_id: int, recipe: str, cells: Sequence[Cell], now: datetime) -> None:
    """Store cells; one that is there already is replaced, unless it knew more revisions than the new one."""
    if not cells:
        return
    statement = insert(error_cells)
    found = statement.excluded
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=_KEY,
            set_={column.name: found[column.name] for column in error_cells.columns if column.name not in _KEY},
            where=error_cells.c.num_revisions <= found.num_revisions,
        ),
        [_row(cell) | {"task_id": task_id, "recipe": recipe, "scored_at": now} for cell in cells],
    )


def read_cells(
    connection: Connection, task_id: int, recipe: str, *, until: int, origin: int | None = None
) -> list[Cell]:
    """Cells whose target window starts before `until`, of one origin or of all; oldest window first."""
    of_origin = [] if origin is None else [error_cells.c.origin == from_micros(origin)]
    rows = connection.execute(
        select(*(error_cells.c[name] for name in _NAMES))
        .where(
            error_cells.c.task_id == task_id,
            error_cells.c.recipe == recipe,
            error_cells.c.window < from_micros(until),
            *of_origin,
        )
        .order_by(error_cells.c.window, error_cells.c.origin, error_cells.c.method)
    )
    return [_cell(row) for row in rows]


def _cell(row: Sequence[Any]) -> Cell:
    origin, window, *values, scores, tempered = row
    return Cell(*(to_micros(origin), to_micros(window), *values, tuple(scores), tuple(tempered)))


def _row(cell: Cell) -> dict[str, object]:
    values = {name: getattr(cell, name) for name in _NAMES}
    return (
        values
        | {name: from_micros(values[name]) for name in _MOMENTS}
        | {name: list(values[name]) for name in ("scores", "tempered")}
    )
