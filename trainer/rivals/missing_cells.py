"""The cells of the error matrix that rivals still lack: a cheap query, so the scheduler can ask often, without torch.

Rivals follow our method. They are fitted at its origins and scored on its newest windows, wherever its own cell is
complete. A rival's cell counts as missing again once ours was scored on other rows of the window. Rows can also go
without a revision, by SQL or with classes that a task no longer has. A rival that knows more revisions than ours is
right.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, select

from contracts.clock import from_micros, to_micros
from contracts.verdict import EXTRA_WINDOWS
from store.database import error_cells
from store.tasks.catalog import Schema


@dataclass(frozen=True, order=True)
class MissingCell:
    """A cell that a rival lacks; moments in microseconds. The other numbers are those of our cell."""

    method: str
    origin: int
    window: int
    num_revisions: int
    num_rows: int = 0


def find_missing_cells(connection: Connection, schema: Schema, until: int) -> list[MissingCell]:
    """The missing cells of the task's rivals before `until`, on as many newest windows as a cycle looks back on."""
    task, columns = schema.task, error_cells.c
    ours = (
        (columns.task_id == schema.task_id) & (columns.recipe == task.recipe) & columns.is_complete,
        columns.window < from_micros(until),
    )
    newest = (
        select(columns.window)
        .where(*ours, columns.method == task.training.method)
        .distinct()
        .order_by(columns.window.desc())
        .limit(task.guard.min_pairs + EXTRA_WINDOWS)
    )
    known: dict[str, dict[tuple[int, int], tuple[int, int]]] = {}
    for method, origin, window, num_revisions, num_rows in connection.execute(
        select(columns.method, columns.origin, columns.window, columns.num_revisions, columns.num_rows).where(
            *ours, columns.window.in_(newest)
        )
    ):
        known.setdefault(method, {})[to_micros(origin), to_micros(window)] = num_revisions, num_rows
    return sorted(
        MissingCell(rival, origin, window, *own)
        for (origin, window), own in known.get(task.training.method, {}).items()
        if task.clock.age(origin, window) < task.guard.max_age
        for rival in set(task.guard.rivals) - {task.training.method}
        if _is_missing(known.get(rival, {}).get((origin, window)), own)
    )


def _is_missing(theirs: tuple[int, int] | None, own: tuple[int, int]) -> bool:
    """Whether a rival was scored on other rows than we: revisions and rows of both."""
    return theirs is None or (theirs != own and theirs[0] <= own[0])
