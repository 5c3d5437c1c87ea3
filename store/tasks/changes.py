"""The history of tasks as a whole: who paused, archived, renamed or deleted one, when and why.

The history is append-only and outlives its tasks: the row of a deletion is its tombstone, and says what the task held.
Earlier names are found here as well, so a request that uses one learns the present name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import msgspec
from sqlalchemy import Connection, func, select, text

from contracts.clock import format_moment, to_micros
from contracts.errors import NotFound, TaskRenamed
from contracts.spec.spec_values import say_no_task
from store.database import task_changes, tasks

Lifecycle = Literal["active", "paused", "archived"]
Action = Literal["pause", "resume", "archive", "unarchive", "rename", "delete", "deleted"]


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds of a task."""

    num_events: int
    num_revisions: int
    num_rejected: int
    num_cycles: int
    num_versions: int
    num_erasures: int
    num_unlabelled: int = 0
    num_waiting: int = 0


@dataclass(frozen=True)
class TaskChange:
    """One row. `name` is the task's name before the change; `contents` belong to deletions."""

    change_id: int
    task_id: int
    name: str
    action: Action
    new_name: str | None
    actor: str
    reason: str
    at: datetime
    contents: Contents | None


@dataclass(frozen=True)
class Departures:
    """Names that no process may serve, and why.

    archived   names of archived tasks
    renamed    a task's earlier names -> its present one, unless another task has the earlier name now
    deleted    name -> ids of the deleted tasks that had it
    former     id of a task -> all names that it had before
    num_changes   the length of the history that this was read from
    """

    num_changes: int = 0
    archived: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)
    deleted: Mapping[str, frozenset[int]] = field(default_factory=dict)
    former: Mapping[int, frozenset[str]] = field(default_factory=dict)


def record_change(
    connection: Connection,
    task_id: int,
    name: str,
    action: Action,
    *,
    actor: str,
    reason: str,
    now: datetime,
    new_name: str | None = None,
    contents: Contents | None = None,
) -> TaskChange:
    """Append one row."""
    row = connection.execute(
        task_changes.insert().returning(*_COLUMNS),
        {
            "task_id": task_id,
            "name": name,
            "action": action,
            "new_name": new_name,
            "actor": actor,
            "reason": reason,
            "at": now,
            "contents": None if contents is None else msgspec.to_builtins(contents),
        },
    ).one()
    return _change(row)


def read_contents(document: object) -> Contents | None:
    """A column of the history; None if it is empty, or of another form: a deletion goes on without these numbers."""
    try:
        return None if document is None else msgspec.convert(document, Contents)
    except msgspec.ValidationError:
        return None


def list_changes(connection: Connection, task_id: int, limit: int = 1000) -> list[TaskChange]:
    """The history of a task, newest first."""
    rows = connection.execute(
        select(*_COLUMNS).where(task_changes.c.task_id == task_id).order_by(task_changes.c.id.desc()).limit(limit)
    )
    return [_change(row) for row in rows]


def find_deletion(connection: Connection, task_id: int) -> TaskChange | None:
    """The row by which a task was deleted; None if it was not."""
    return next((row for row in list_changes(connection, task_id) if row.action == "delete"), None)


def explain_missing(connection: Connection, name: str) -> NotFound:
    """The error for a name that no task has: the task was renamed, was deleted, or never existed."""
    row = connection.execute(
        select(*_COLUMNS, tasks.c.name.label("present"), tasks.c.lifecycle)
        .outerjoin(tasks, tasks.c.id == task_changes.c.task_id)
        .where(task_changes.c.name == name, task_changes.c.action.in_(("rename", "delete")))
        .order_by(task_changes.c.id.desc())
        .limit(1)
    ).one_or_none()
    if row is None:
        return NotFound(say_no_task(name, _list_names(connection)))
    if row.action == "rename" and row.present is not None and row.lifecycle != "deleting":
        return TaskRenamed(name, row.present)
    deletion = find_deletion(connection, row.task_id)
    if deletion is None:
        return NotFound(f"There is no task named {name!r}.")
    when = format_moment(to_micros(deletion.at))
    return NotFound(f"There is no task named {name!r}: it was deleted at {when} by {deletion.actor}.")


def find_renamed(connection: Connection, name: str, task_id: int) -> str | None:
    """The present name of another task that had this name before; None if there is none."""
    present: str | None = connection.execute(
        select(tasks.c.name)
        .join(task_changes, task_changes.c.task_id == tasks.c.id)
        .where(task_changes.c.name == name, task_changes.c.action == "rename")
        .where(tasks.c.id != task_id, tasks.c.lifecycle != "deleting")
        .order_by(task_changes.c.id.desc())
        .limit(1)
    ).scalar()
    return present


def _list_names(connection: Connection) -> Sequence[str]:
    """The names of tasks; of very many, the newest."""
    named = select(tasks.c.name).where(tasks.c.lifecycle != "deleting").order_by(tasks.c.id.desc()).limit(_NUM_COMPARED)
    return connection.execute(named).scalars().all()


def read_departures(connection: Connection, known: Departures) -> Departures:
    """The names that have left by now; `known` itself if nothing was added to the history."""
    num_changes = connection.execute(select(func.count()).select_from(task_changes)).scalar_one()
    if num_changes == known.num_changes:
        return known
    deleted: dict[str, frozenset[int]] = {}
    for name, task_id in connection.execute(_DELETED):
        deleted[name] = deleted.get(name, frozenset()) | {task_id}
    return Departures(
        num_changes,
        frozenset(connection.execute(select(tasks.c.name).where(tasks.c.lifecycle == "archived")).scalars()),
        {row.former: row.present for row in connection.execute(_RENAMED)},
        deleted,
        {task_id: frozenset(names) for task_id, names in connection.execute(_FORMER)},
    )


# Names that an unknown one is compared with, the newest tasks first, and how alike two names must be.
_NUM_COMPARED = 1000
_COLUMNS = (
    task_changes.c.id,
    task_changes.c.task_id,
    task_changes.c.name,
    task_changes.c.action,
    task_changes.c.new_name,
    task_changes.c.actor,
    task_changes.c.reason,
    task_changes.c.at,
    task_changes.c.contents,
)

# A deleted task may have had other names before.
_DELETED = text("""
    SELECT DISTINCT changes.name, changes.task_id FROM task_changes AS changes
    WHERE changes.action IN ('rename', 'delete')
      AND EXISTS (SELECT FROM task_changes AS ends WHERE ends.task_id = changes.task_id AND ends.action = 'delete')
""")

_FORMER = text("SELECT task_id, array_agg(name) FROM task_changes WHERE action = 'rename' GROUP BY task_id")

_RENAMED = text("""
    SELECT DISTINCT ON (changes.name) changes.name AS former, tasks.name AS present
    FROM task_changes AS changes JOIN tasks ON tasks.id = changes.task_id AND tasks.lifecycle <> 'deleting'
    WHERE changes.action = 'rename' AND NOT EXISTS (SELECT FROM tasks AS others WHERE others.name = changes.name)
    ORDER BY changes.name, changes.id DESC
""")


def _change(row: Sequence[Any]) -> TaskChange:
    change_id, task_id, name, action, new_name, actor, reason, at, contents = row[: len(_COLUMNS)]
    return TaskChange(change_id, task_id, name, action, new_name, actor, reason, at, read_contents(contents))
