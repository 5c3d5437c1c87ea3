"""What is left of a deleted or renamed task is cleared here, in short transactions, each safe to repeat after a kill.

Large tables are emptied in batches. The task's own row goes last, with everything that refers to it, and frees the
name. Writers that had begun before the deletion refer to that row, so the last step waits for them and looks again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, select, text, update

from store.database import metadata, row_counts, task_changes, tasks
from store.tasks.changes import Contents, read_contents, record_change

BATCH_SIZE = 10_000


@dataclass(frozen=True)
class DeletedTask:
    """A task that is still being removed. `registry_names` are all names under which MLflow may have it."""

    task_id: int
    name: str
    deleted_at: datetime
    actor: str
    contents: Contents | None = None
    registry_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class RenamedTask:
    """A task that still has its former name in MLflow.

    `former` are all its former names, for one of which an earlier renaming may have been under way; `trouble` is why
    MLflow refused the last attempt.
    """

    task_id: int
    name: str
    new_name: str
    trouble: str | None
    former: tuple[str, ...]


@dataclass(frozen=True)
class Batch:
    """How many rows were found and removed, and where the next batch begins."""

    num_rows: int
    num_current: int
    after: str


def list_deleted(connection: Connection) -> list[DeletedTask]:
    """Tasks that are still being removed, oldest deletion first."""
    return [
        DeletedTask(
            row.id,
            row.name,
            row.at,
            row.actor,
            read_contents(row.contents),
            tuple(dict.fromkeys([row.registry_name or row.name, row.name, *_former_names(connection, row.id)])),
        )
        for row in connection.execute(_LIST).all()
    ]


def list_renamed(connection: Connection) -> list[RenamedTask]:
    """Tasks for which MLflow still has the former name. Of deleted ones, MLflow loses everything anyhow."""
    found = select(tasks.c.id, tasks.c.registry_name, tasks.c.name, tasks.c.renaming_trouble).where(
        tasks.c.registry_name.is_not(None), tasks.c.lifecycle != "deleting"
    )
    return [
        RenamedTask(*row, _former_names(connection, row.id))
        for row in connection.execute(found.order_by(tasks.c.id)).all()
    ]


def finish_renaming(connection: Connection, renamed: RenamedTask) -> None:
    """Record that MLflow has the new name: cycles may begin again, unless another renaming has come meanwhile."""
    connection.execute(
        update(tasks)
        .where(tasks.c.id == renamed.task_id, tasks.c.name == renamed.new_name)
        .values(registry_name=None, renaming_trouble=None)
    )


def record_trouble(connection: Connection, renamed: RenamedTask, trouble: str) -> None:
    """Record why MLflow refuses the new name, unless another renaming has come meanwhile."""
    connection.execute(
        update(tasks)
        .where(tasks.c.id == renamed.task_id, tasks.c.name == renamed.new_name, tasks.c.registry_name.is_not(None))
        .values(renaming_trouble=trouble)
    )


def has_cycles_since(connection: Connection, task_id: int, since: datetime) -> bool:
    """Whether a cycle of the task runs or has ended since then, so that its process may still be at work."""
    return bool(connection.execute(_HAS_CYCLES, {"task_id": task_id, "since": since}).scalar_one())


def delete_events(connection: Connection, task_id: int, after: str = "", size: int = BATCH_SIZE) -> Batch:
    """Delete the next revisions of events, in the order of their ids."""
    key = {"task_id": task_id, "after": after, "size": size}
    num_found, num_current, last = connection.execute(_DELETE_EVENTS, key).one()
    return Batch(num_found, num_current, after if last is None else last)


def delete_refused(connection: Connection, task_id: int, size: int = BATCH_SIZE) -> int:
    """Delete some stored refused rows; returns how many."""
    return connection.execute(_DELETE_REFUSED, {"task_id": task_id, "size": size}).rowcount


def delete_cells(connection: Connection, task_id: int, size: int = BATCH_SIZE) -> int:
    """Delete some cells of the error matrix; returns how many."""
    return connection.execute(_DELETE_CELLS, {"task_id": task_id, "size": size}).rowcount


def delete_incomplete(connection: Connection, task_id: int, size: int = BATCH_SIZE) -> int:
    """Delete some events of which only a half has arrived; returns how many."""
    return connection.execute(_DELETE_INCOMPLETE, {"task_id": task_id, "size": size}).rowcount


def delete_predictions(connection: Connection, task_id: int, size: int = BATCH_SIZE) -> int:
    """Delete some logged answers; returns how many."""
    return connection.execute(_DELETE_PREDICTIONS, {"task_id": task_id, "size": size}).rowcount


DELETE_SOME: tuple[Callable[..., int], ...] = (
    delete_refused,
    delete_cells,
    delete_incomplete,
    delete_predictions,
)


def finish_deletion(connection: Connection, deleted: DeletedTask, now: datetime) -> bool:
    """Delete the task's row and all small tables' rows of it. False if a late writer has added to a large table.

    Waits for transactions that refer to the task's row. False as well if another trainer has finished before.
    """
    own = tasks.c.id == deleted.task_id
    locked = select(tasks.c.id).where(own, tasks.c.lifecycle == "deleting").with_for_update()
    if connection.execute(locked).one_or_none() is None:
        return False
    if connection.execute(_IS_LEFT, {"task_id": deleted.task_id}).scalar_one():
        return False
    for table in reversed(metadata.sorted_tables):
        if "task_id" in table.c and table.c.task_id.references(tasks.c.id):
            connection.execute(delete(table).where(table.c.task_id == deleted.task_id))
    connection.execute(delete(row_counts).where(row_counts.c.task_id == deleted.task_id))
    connection.execute(delete(tasks).where(own))
    record_change(
        connection, deleted.task_id, deleted.name, "deleted", actor="trainer", reason="everything is removed", now=now
    )
    return True


def _former_names(connection: Connection, task_id: int) -> tuple[str, ...]:
    """The names that a task had before, the latest first."""
    renamings = select(task_changes.c.name).where(task_changes.c.task_id == task_id, task_changes.c.action == "rename")
    return tuple(dict.fromkeys(connection.execute(renamings.order_by(task_changes.c.id.desc())).scalars()))


_LIST = text("""
    SELECT DISTINCT ON (changes.id) tasks.id, tasks.name, tasks.registry_name, changes.at, changes.actor,
        changes.contents
    FROM tasks JOIN task_changes AS changes ON changes.task_id = tasks.id AND changes.action = 'delete'
    WHERE tasks.lifecycle = 'deleting' ORDER BY changes.id
""")

_HAS_CYCLES = text("""
    SELECT EXISTS (
        SELECT FROM cycles WHERE task_id = :task_id AND (state = 'running' OR ended_at > :since)
    )
""")

_DELETE_EVENTS = text("""
    WITH doomed AS MATERIALIZED (
        SELECT ctid, event_id FROM events WHERE task_id = (SELECT CAST(:task_id AS integer)) AND event_id >= :after
        ORDER BY event_id, revision LIMIT :size FOR UPDATE
    ), gone AS (
        DELETE FROM events WHERE ctid = ANY(ARRAY(SELECT ctid FROM doomed)) RETURNING superseded_at
    )
    SELECT (SELECT count(*) FROM doomed), (SELECT count(*) FROM gone WHERE superseded_at IS NULL),
           (SELECT max(event_id) FROM doomed)
""")

_DELETE_REFUSED = text("""
    DELETE FROM rejected_events
    WHERE ctid = ANY(ARRAY(SELECT ctid FROM rejected_events WHERE task_id = :task_id LIMIT :size))
""")

_DELETE_CELLS = text("""
    DELETE FROM error_cells
    WHERE ctid = ANY(ARRAY(SELECT ctid FROM error_cells WHERE task_id = :task_id LIMIT :size))
""")

_DELETE_INCOMPLETE = text("""
    DELETE FROM incomplete_events
    WHERE ctid = ANY(ARRAY(SELECT ctid FROM incomplete_events WHERE task_id = :task_id LIMIT :size))
""")

# By ids, which partitions go by: a place in one partition is a place in each.
_DELETE_PREDICTIONS = text("""
    DELETE FROM predictions
    WHERE task_id = :task_id AND id <= coalesce(
        (SELECT id FROM predictions WHERE task_id = :task_id ORDER BY id OFFSET :size - 1 LIMIT 1),
        'ffffffff-ffff-ffff-ffff-ffffffffffff'
    )
""")

_IS_LEFT = text("""
    SELECT EXISTS (SELECT FROM events WHERE task_id = :task_id)
        OR EXISTS (SELECT FROM incomplete_events WHERE task_id = :task_id)
        OR EXISTS (SELECT FROM rejected_events WHERE task_id = :task_id)
        OR EXISTS (SELECT FROM error_cells WHERE task_id = :task_id)
        OR EXISTS (SELECT FROM predictions WHERE task_id = :task_id)
""")
