"""Pause, archive and rename a task, and begin to delete one. Each is one row in the history of changes.

A paused task answers as before, and no cycle of it begins. An archived one takes no events and no questions either. A
deleted one is gone for every request at once; `store.tasks.deletion` removes what is left of it.
"""

from dataclasses import asdict
from datetime import datetime
from typing import Literal

from sqlalchemy import Connection, select, text, update
from sqlalchemy.exc import IntegrityError

from contracts.errors import Conflict
from store.database import cycles, tasks
from store.tasks.catalog import NamedTask, find_named, find_task_id, lock_task, require_free
from store.tasks.changes import Contents, Lifecycle, TaskChange, record_change
from store.tasks.row_counts import count_rows

Move = Literal["pause", "resume", "archive", "unarchive"]

_MOVES: dict[Move, tuple[tuple[Lifecycle, ...], Lifecycle]] = {
    "pause": (("active",), "paused"),
    "resume": (("paused",), "active"),
    "archive": (("active", "paused"), "archived"),
    "unarchive": (("archived",), "active"),
}


def move_task(connection: Connection, name: str, move: Move, *, actor: str, reason: str, now: datetime) -> TaskChange:
    """Pause, resume, archive or unarchive a task. Raises NotFound, and Conflict if it is in another state.

    Cycles that wait stay requested. One that runs ends as if nothing had happened.
    """
    found = _lock(connection, name)
    allowed, lifecycle = _MOVES[move]
    if found.lifecycle not in allowed:
        raise Conflict(f"The task {name!r} is {found.lifecycle}, so there is nothing to {move}.")
    connection.execute(update(tasks).where(tasks.c.id == found.task_id).values(lifecycle=lifecycle))
    return record_change(connection, found.task_id, name, move, actor=actor, reason=reason, now=now)


def rename_task(
    connection: Connection, name: str, new_name: str, *, actor: str, reason: str, now: datetime
) -> TaskChange:
    """Give a task another name; the trainer then renames what MLflow holds of it.

    If an earlier renaming has not reached MLflow, this one replaces it, also by the former name. Raises NotFound;
    TaskLeaving if the new name is not free yet; Conflict if it is taken, or if a cycle is running.
    """
    task_id = find_task_id(connection, name)
    # Stronger than `lock_task`: no cycle can be claimed meanwhile (`store.cycles.leases.claim_cycle`).
    row = connection.execute(
        select(tasks.c.name, tasks.c.lifecycle, tasks.c.registry_name).where(tasks.c.id == task_id).with_for_update()
    ).one_or_none()
    if row is None or row.lifecycle == "deleting" or row.name != name:
        raise Conflict(f"The task {name!r} has just been changed by another request: look again.")
    require_free(connection, new_name, task_id)
    if connection.execute(select(tasks.c.id).where(tasks.c.name == new_name)).first() is not None:
        raise Conflict(f"There is a task named {new_name!r} already.")
    running = select(cycles.c.id).where(cycles.c.task_id == task_id, cycles.c.state == "running")
    if (cycle_id := connection.execute(running.limit(1)).scalar_one_or_none()) is not None:
        raise Conflict(f"Cycle {cycle_id} of {name!r} is running under that name: try again when it has ended.")
    renamed = {"name": new_name, "registry_name": row.registry_name or name, "renaming_trouble": None}
    try:
        connection.execute(update(tasks).where(tasks.c.id == task_id).values(renamed))
    except IntegrityError as error:
        raise Conflict(f"There is a task named {new_name!r} already.") from error
    return record_change(connection, task_id, name, "rename", actor=actor, reason=reason, now=now, new_name=new_name)


def begin_deletion(connection: Connection, name: str, *, actor: str, reason: str, now: datetime) -> TaskChange:
    """Take a task away from every request, and its cycles from their trainers. Raises NotFound.

    Of two requests the second finds no task. A trainer that carries out a cycle loses its lease, and so can release
    nothing.
    """
    task_id = _lock(connection, name).task_id
    contents = count_contents(connection, task_id)
    connection.execute(update(tasks).where(tasks.c.id == task_id).values(lifecycle="deleting"))
    connection.execute(
        update(cycles).where(cycles.c.task_id == task_id, cycles.c.state == "running").values(lease_until=now)
    )
    return record_change(connection, task_id, name, "delete", actor=actor, reason=reason, now=now, contents=contents)


def count_contents(connection: Connection, task_id: int) -> Contents:
    """What a deletion would remove."""
    rows, others = count_rows(connection, task_id), connection.execute(_COUNT, {"task_id": task_id}).one()
    return Contents(**asdict(rows), **others._asdict())


def _lock(connection: Connection, name: str) -> NamedTask:
    """The task, its row locked; what was read before the lock may have changed, so it is read again."""
    lock_task(connection, find_task_id(connection, name))
    return find_named(connection, name)


_COUNT = text("""
    SELECT
        (SELECT count(*) FROM cycles WHERE task_id = :task_id) AS num_cycles,
        (SELECT count(DISTINCT version) FROM releases WHERE task_id = :task_id AND action = 'release') AS num_versions,
        (SELECT count(*) FROM erasures WHERE task_id = :task_id) AS num_erasures
""")
