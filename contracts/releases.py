"""The append-only record of what was released when, by whom and why, and until when each version is valid."""

from datetime import datetime
from typing import Literal

from sqlalchemy import Connection, select

from contracts.clock import from_micros, to_micros
from contracts.database import releases

ALIAS = "champion"

Action = Literal["release", "rollback", "close", "reopen", "override"]


def record_release(
    connection: Connection,
    task_id: int,
    version: str,
    *,
    action: Action,
    valid_until: int,
    actor: str,
    reason: str,
    now: datetime,
) -> None:
    """Append one row; `valid_until` in microseconds since the epoch."""
    connection.execute(
        releases.insert(),
        {
            "task_id": task_id,
            "version": version,
            "action": action,
            "valid_until": from_micros(valid_until),
            "actor": actor,
            "reason": reason,
            "at": now,
        },
    )


def read_valid_until(connection: Connection, task_id: int, version: str) -> int | None:
    """What the newest row says of a version, in microseconds; None where it has no row."""
    found = connection.execute(
        select(releases.c.valid_until)
        .where(releases.c.task_id == task_id, releases.c.version == version)
        .order_by(releases.c.id.desc())
        .limit(1)
    ).scalar_one_or_none()
    return None if found is None else to_micros(found)
