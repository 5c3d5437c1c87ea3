"""Ends of validity, which nobody writes down: each is noted once, and a trigger reports it to the hooks."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text
from sqlalchemy.dialects.postgresql import insert

from store.database import expiries

EXPIRING, EXPIRED = "morrow.version.expiring", "morrow.version.expired"


@dataclass(frozen=True)
class Bound:
    """The newest row of `releases` that set the end of validity of a task's version, and what was noted of it."""

    release_id: int
    task_id: int
    valid_until: datetime
    set_at: datetime
    noted: frozenset[str]


@dataclass(frozen=True)
class Expiry:
    """What a bound has brought, and when."""

    release_id: int
    type: str
    at: datetime


def list_bounds(connection: Connection) -> Sequence[Bound]:
    """The bounds of the versions that answer, of all tasks, except for those whose end has been noted."""
    return [
        Bound(row.id, row.task_id, row.valid_until, row.at, frozenset(row.noted))
        for row in connection.execute(_LIST, {"expired": EXPIRED})
    ]


def note_expiries(connection: Connection, found: Sequence[Expiry]) -> int:
    """Note these, each once; returns how many are new."""
    if not found:
        return 0
    rows = [{"release_id": one.release_id, "type": one.type, "at": one.at} for one in found]
    added = insert(expiries).values(rows).on_conflict_do_nothing().returning(expiries.c.release_id)
    return len(connection.execute(added).all())


_LIST = text("""
    SELECT bound.id, tasks.id AS task_id, bound.valid_until, bound.at,
        ARRAY(SELECT type FROM expiries WHERE release_id = bound.id) AS noted
    FROM tasks
    CROSS JOIN LATERAL (
        SELECT version FROM releases
        WHERE task_id = tasks.id AND action IN ('release', 'rollback') ORDER BY id DESC LIMIT 1
    ) AS champion
    CROSS JOIN LATERAL (
        SELECT id, valid_until, at FROM releases
        WHERE task_id = tasks.id AND version = champion.version
            AND action IN ('release', 'close', 'reopen', 'override')
        ORDER BY id DESC LIMIT 1
    ) AS bound
    WHERE tasks.lifecycle IN ('active', 'paused')
        AND NOT EXISTS (SELECT FROM expiries WHERE release_id = bound.id AND type = :expired)
    ORDER BY tasks.id
""")
