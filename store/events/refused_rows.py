"""Refused rows that are older than somebody wants to keep them: how many there are, and their deletion in batches.

They hold what producers sent, so they may name people, and a producer that repeats a mistake adds one at each attempt.
"""

from datetime import datetime

from sqlalchemy import Connection, text


def count_refused(connection: Connection, before: datetime, task_id: int | None = None) -> dict[str, int]:
    """Task -> the number of its refused rows that arrived before a moment; tasks without any are left out."""
    rows = connection.execute(_COUNT, {"before": before, "task_id": task_id})
    return {str(name): int(number) for name, number in rows}


def delete_refused_before(connection: Connection, before: datetime, *, size: int, task_id: int | None = None) -> int:
    """Delete some refused rows that arrived before a moment; returns how many."""
    return connection.execute(_DELETE, {"before": before, "task_id": task_id, "size": size}).rowcount


_COUNT = text("""
    SELECT tasks.name, found.num_rows
    FROM tasks, LATERAL (
        SELECT count(*) AS num_rows FROM rejected_events WHERE task_id = tasks.id AND received_at < :before
    ) AS found
    WHERE found.num_rows > 0 AND (CAST(:task_id AS integer) IS NULL OR tasks.id = :task_id)
    ORDER BY tasks.name
""")
# The index leads from task to task, so no row is read that stays.
_DELETE = text("""
    DELETE FROM rejected_events WHERE ctid = ANY(ARRAY(
        SELECT old.ctid
        FROM tasks, LATERAL (
            SELECT ctid FROM rejected_events WHERE task_id = tasks.id AND received_at < :before
            ORDER BY received_at LIMIT :size
        ) AS old
        WHERE CAST(:task_id AS integer) IS NULL OR tasks.id = :task_id
        LIMIT :size
    ))
""")
