"""The newest attempts of many tasks at once, for lists: one statement serves all of them.

A row with a moment that no process can read, written past the API, counts for nothing here: it must not hide another
task. Whatever reads its own task alone reports it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Select, or_, select, text, true

from contracts.clock import to_micros
from store.cycles import State
from store.database import cycles, tasks

# Attempts of a task that are read to count failures in a row.
MAX_RECENT = 50
_CALENDAR = (text("'0001-01-01T00:00:00Z'"), text("'9999-12-31T23:59:59.999999Z'"))


@dataclass(frozen=True)
class RecentAttempt:
    """An attempt without its verdict. `cutoff` in microseconds; `ended_at` is None before its end."""

    cutoff: int
    state: str
    reason: str | None
    ended_at: datetime | None = None


def find_newest_states(connection: Connection, task_ids: Collection[int]) -> dict[int, tuple[int, State]]:
    """Task id -> cutoff (microseconds) and state of its newest attempt, for those of these tasks that have one."""
    newest = _newest_attempts(1).lateral()
    rows = connection.execute(
        select(tasks.c.id, newest.c.cutoff, newest.c.state).join(newest, true()).where(tasks.c.id.in_(task_ids))
    )
    return {task_id: (to_micros(cutoff), state) for task_id, cutoff, state in rows}


def read_recent(connection: Connection, task_ids: Collection[int]) -> dict[int, tuple[RecentAttempt, ...]]:
    """Task id -> its newest attempts, newest cutoff first."""
    if not task_ids:
        return {}
    recent = _newest_attempts(MAX_RECENT).lateral()
    rows = connection.execute(
        select(tasks.c.id, recent.c.cutoff, recent.c.state, recent.c.reason, recent.c.ended_at)
        .join(recent, true())
        .where(tasks.c.id.in_(task_ids))
        .order_by(recent.c.cutoff.desc(), recent.c.attempt.desc())
    )
    found: dict[int, tuple[RecentAttempt, ...]] = {}
    for task_id, cutoff, *rest in rows:
        found[task_id] = (*found.get(task_id, ()), RecentAttempt(to_micros(cutoff), *rest))
    return found


def _newest_attempts(limit: int) -> Select[tuple[datetime, int, str, str | None, datetime | None]]:
    """The newest attempts of the task of the statement around it."""
    return (
        select(cycles.c.cutoff, cycles.c.attempt, cycles.c.state, cycles.c.reason, cycles.c.ended_at)
        .where(
            cycles.c.task_id == tasks.c.id,
            cycles.c.cutoff.between(*_CALENDAR),
            or_(cycles.c.ended_at.is_(None), cycles.c.ended_at.between(*_CALENDAR)),
        )
        .correlate(tasks)
        .order_by(cycles.c.cutoff.desc(), cycles.c.attempt.desc())
        .limit(limit)
    )
