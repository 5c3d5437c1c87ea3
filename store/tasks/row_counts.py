"""How many rows a task has, without counting them: triggers add every change of the number in the same transaction.

Each statement that stores, supersedes or deletes rows adds one small row of changes, and updates none. So no writer
waits for another. Now and then one of them folds the rows of a task into one
(`docs/decisions/0027-counted-rows.md`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from sqlalchemy import Connection, func, select

from store.database import row_counts


@dataclass(frozen=True)
class RowCounts:
    """Events in their present revision, all stored revisions of events, and stored refused rows.

    Of incomplete events, those that lack their label, and labels that wait for their event.
    """

    num_events: int = 0
    num_revisions: int = 0
    num_rejected: int = 0
    num_unlabelled: int = 0
    num_waiting: int = 0


def read_counts(connection: Connection, task_ids: Sequence[int]) -> dict[int, RowCounts]:
    """Task id -> numbers of its rows, exact as of this statement's snapshot; a task without rows is left out."""
    sums = [row_counts.c[column.name] for column in fields(RowCounts)]
    rows = connection.execute(
        select(row_counts.c.task_id, *(func.sum(column) for column in sums))
        .where(row_counts.c.task_id.in_(task_ids))
        .group_by(row_counts.c.task_id)
    )
    return {task_id: RowCounts(*map(int, counts)) for task_id, *counts in rows}


def count_rows(connection: Connection, task_id: int) -> RowCounts:
    """The numbers of a task's rows."""
    return read_counts(connection, [task_id]).get(task_id, RowCounts())
