"""Halves of events that no request completed: void ones go, labels of answers join, and overdue labels are reported.

A half is void if its event is stored whole: the two were on their way at the same time. A label of an answer waits if
it is faster than the log. An overdue label becomes a refused row, so its sender finds it there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, text

from contracts.clock import to_micros
from store.events.lookups import OF_TASK
from store.events.writes import Rejection, record_rejections
from store.labels.late_labels import Label, append_labels
from store.tasks.catalog import Schema

# Both halves of a void one, and a label and the log of its answer, come within seconds of each other.
_RECENT = timedelta(hours=1)
BATCH_SIZE = 5_000
_SAYS_OTHERWISE = "label: differs from that of the event, which came at the same time"


@dataclass(frozen=True)
class Swept:
    """How many halves were void, joined the log, or had waited too long."""

    num_void: int = 0
    num_joined: int = 0
    num_overdue: int = 0


def list_tasks_with_halves(connection: Connection) -> list[int]:
    """The tasks that have events of which a half is missing."""
    return list(connection.execute(_LIST_TASKS).scalars())


def sweep_halves(connection: Connection, schema: Schema, now: datetime, longest_wait: timedelta) -> Swept:
    """Settle what can be settled of a task's halves; of many, some are left for the next time."""
    key = {"task_id": schema.task_id, "size": BATCH_SIZE}
    void = connection.execute(_DELETE_VOID, {**key, "since": now - _RECENT}).all()
    others = [Rejection(row.event_id, _SAYS_OTHERWISE, row.label) for row in void if row.label and not row.is_same]
    record_rejections(connection, schema.task_id, others, now)
    waiting = [
        Label(row.event_id, row.label, None if row.known_at is None else to_micros(row.known_at))
        for row in connection.execute(_FIND_ANSWERS, {**key, "since": now - longest_wait})
    ]
    outcomes = append_labels(connection, [schema], waiting, now)
    return Swept(len(void), outcomes.count("joined"), _report_overdue(connection, schema, now, longest_wait))


def _report_overdue(connection: Connection, schema: Schema, now: datetime, longest_wait: timedelta) -> int:
    overdue = connection.execute(
        _DELETE_OVERDUE, {"task_id": schema.task_id, "size": BATCH_SIZE, "before": now - longest_wait}
    ).all()
    reason = f"label: no event or answer of this id came within {longest_wait / timedelta(days=1):g} days"
    record_rejections(connection, schema.task_id, _refuse(reason, [(one.event_id, one.label) for one in overdue]), now)
    return len(overdue)


def _refuse(reason: str, labels: Sequence[tuple[str, str]]) -> list[Rejection]:
    return [Rejection(event_id, reason, label) for event_id, label in labels]


_LIST_TASKS = text("""
    SELECT task_id FROM row_counts GROUP BY task_id HAVING sum(num_unlabelled) > 0 OR sum(num_waiting) > 0
    ORDER BY task_id
""")

_DELETE_VOID = text(f"""
    WITH void AS MATERIALIZED (
        SELECT half.ctid, stored.is_same
        FROM incomplete_events AS half CROSS JOIN LATERAL (
            SELECT bool_or(events.label = half.label) AS is_same FROM events
            WHERE events.task_id = {OF_TASK} AND events.event_id = half.event_id
              AND events.event_id BETWEEN half.event_id AND half.event_id
            HAVING count(*) > 0
        ) AS stored
        WHERE half.task_id = {OF_TASK} AND half.received_at >= :since
        LIMIT :size FOR UPDATE OF half SKIP LOCKED
    )
    DELETE FROM incomplete_events USING void
    WHERE incomplete_events.ctid = void.ctid
    RETURNING incomplete_events.event_id, incomplete_events.label, void.is_same
""")  # noqa: S608 our own fragment

# Ids of answers are UUIDs of version 7.
_FIND_ANSWERS = text(f"""
    SELECT half.event_id, half.label, half.known_at FROM incomplete_events AS half
    WHERE half.task_id = {OF_TASK} AND half.label IS NOT NULL AND half.received_at >= :since
      AND half.event_id ~ '^[0-9a-f]{{8}}-[0-9a-f]{{4}}-7[0-9a-f]{{3}}-[89ab][0-9a-f]{{3}}-[0-9a-f]{{12}}$'
      AND EXISTS (
        SELECT FROM predictions
        WHERE predictions.id = CASE
            WHEN half.event_id ~ '^[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$' THEN CAST(half.event_id AS uuid)
        END AND predictions.task_id = half.task_id AND predictions.features IS NOT NULL
      )
    ORDER BY half.event_id COLLATE "C" LIMIT :size
""")  # noqa: S608 our own fragment

_DELETE_OVERDUE = text(f"""
    DELETE FROM incomplete_events WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM incomplete_events
        WHERE task_id = {OF_TASK} AND received_at < :before AND label IS NOT NULL
        LIMIT :size FOR UPDATE SKIP LOCKED
    ))
    RETURNING event_id, label
""")  # noqa: S608 our own fragment
