"""The outbox: which events are due, who sends them, and what became of them.

An event is claimed by moving the moment at which it is due: a process that dies before it has noted the answer leaves
an event that is due again. So each event is sent at least once, and always with the same id. The events of one task go
to one hook in the order of their rows: a later one waits until the earlier one is delivered or given up.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from sqlalchemy import Connection, select, text, update
from sqlalchemy.dialects.postgresql import insert

from contracts.hooks.events import TEST_TYPE
from store.database import deliveries, hooks, tasks


@dataclass(frozen=True)
class Delivery:
    """An event that this process sends; `attempt` counts the attempts, `data` is JSON as it was written.

    `at` is when it happened, `added_at` when it came into the outbox.
    """

    delivery_id: int
    hook_id: int
    hook: str
    url: str
    secret: bytes = field(repr=False)
    event_id: UUID
    event_type: str
    data: str
    at: datetime
    added_at: datetime
    attempt: int


@dataclass(frozen=True)
class SentEvent:
    """What became of an event so far; `due_at` is the next attempt, None if it may begin at once or has ended."""

    event_id: UUID
    event_type: str
    task: str | None
    at: datetime
    state: str
    num_attempts: int
    due_at: datetime | None
    answer: str | None
    ended_at: datetime | None


def claim_due(
    connection: Connection, now: datetime, lease: timedelta, except_hooks: Collection[int] = ()
) -> Sequence[Delivery]:
    """Claim one event of each hook that has one due, until `now + lease`; hooks in `except_hooks` are passed over."""
    known = {"now": now, "until": now + lease, "busy": list(except_hooks)}
    return [
        Delivery(
            row.id,
            row.hook_id,
            row.name,
            row.url,
            bytes(row.secret),
            row.event_id,
            row.type,
            row.data,
            row.at,
            row.added_at,
            row.num_attempts,
        )
        for row in connection.execute(_CLAIM, known)
    ]


def note_delivered(connection: Connection, delivery: Delivery, answer: str, now: datetime) -> None:
    """The receiver has taken the event. Nothing happens if the hook was removed meanwhile."""
    waiting = (deliveries.c.id == delivery.delivery_id, deliveries.c.state == "waiting")
    ended = update(deliveries).where(*waiting).values(state="delivered", due_at=None, answer=answer, ended_at=now)
    if connection.execute(ended).rowcount:
        taken = update(hooks).where(hooks.c.id == delivery.hook_id)
        connection.execute(taken.values(num_delivered=hooks.c.num_delivered + 1))


def note_failed(
    connection: Connection, delivery: Delivery, answer: str, now: datetime, *, due_at: datetime | None
) -> None:
    """The attempt failed, and the next one is due then; None gives the event up.

    Nothing is noted if the claim has run out and another process has claimed the event since.
    """
    own = (
        deliveries.c.id == delivery.delivery_id,
        deliveries.c.state == "waiting",
        deliveries.c.num_attempts == delivery.attempt,
    )
    state = "dead" if due_at is None else "waiting"
    values = {"state": state, "due_at": due_at, "answer": answer, "ended_at": now if due_at is None else None}
    if connection.execute(update(deliveries).where(*own).values(values)).rowcount:
        failed = update(hooks).where(hooks.c.id == delivery.hook_id)
        connection.execute(failed.values(num_failed=hooks.c.num_failed + 1))


def add_test(connection: Connection, hook_id: int, now: datetime) -> UUID:
    """Put an event into the outbox that is about nothing; returns its id."""
    event_id = uuid4()
    row = {"hook_id": hook_id, "event_id": event_id, "type": TEST_TYPE, "data": {}, "at": now, "added_at": now}
    connection.execute(insert(deliveries).values(row))
    return event_id


def retry_dead(connection: Connection, hook_id: int, now: datetime) -> int:
    """Let all events that a hook has given up be due at once, as if they were new; returns how many."""
    dead = (deliveries.c.hook_id == hook_id, deliveries.c.state == "dead", deliveries.c.task_id.is_not(None))
    again = {"state": "waiting", "added_at": now, "num_attempts": 0, "due_at": None, "ended_at": None}
    return connection.execute(update(deliveries).where(*dead).values(again)).rowcount


def list_events(connection: Connection, hook_id: int, limit: int) -> Sequence[SentEvent]:
    """The newest events of a hook, newest first."""
    columns = deliveries.c
    found = (
        select(
            columns.event_id,
            columns.type,
            tasks.c.name,
            columns.at,
            columns.state,
            columns.num_attempts,
            columns.due_at,
            columns.answer,
            columns.ended_at,
        )
        .join_from(deliveries, tasks, columns.task_id == tasks.c.id, isouter=True)
        .where(columns.hook_id == hook_id)
        .order_by(columns.id.desc())
        .limit(limit)
    )
    return [SentEvent(*row) for row in connection.execute(found)]


def delete_ended_before(connection: Connection, delivered: datetime, given_up: datetime, size: int) -> int:
    """Delete some events that were delivered or given up before these moments; returns how many."""
    known = {"delivered": delivered, "given_up": given_up, "size": size}
    return connection.execute(_DELETE_ENDED, known).rowcount


# Of each hook and task the oldest waiting event, found by steps through the index: however many events wait behind it,
# none of them is read. An event of no task is a test, which somebody waits for.
_CLAIM = text("""
    WITH RECURSIVE heads AS (
        SELECT hooks.id AS hook_id, head.* FROM hooks CROSS JOIN LATERAL (
            SELECT task_id, id, due_at FROM deliveries
            WHERE hook_id = hooks.id AND state = 'waiting' AND task_id IS NOT NULL ORDER BY task_id, id LIMIT 1
        ) AS head
        WHERE hooks.id <> ALL(CAST(:busy AS int[]))
        UNION ALL
        SELECT heads.hook_id, head.* FROM heads CROSS JOIN LATERAL (
            SELECT task_id, id, due_at FROM deliveries
            WHERE hook_id = heads.hook_id AND state = 'waiting' AND task_id > heads.task_id ORDER BY task_id, id LIMIT 1
        ) AS head
    ), tests AS (
        SELECT hook_id, task_id, id, due_at FROM deliveries
        WHERE hook_id <> ALL(CAST(:busy AS int[])) AND state = 'waiting' AND task_id IS NULL
    ), chosen AS MATERIALIZED (
        SELECT id FROM deliveries WHERE id = ANY(ARRAY(
            SELECT DISTINCT ON (hook_id) id FROM (TABLE heads UNION ALL TABLE tests) AS next
            WHERE due_at IS NULL OR due_at <= :now ORDER BY hook_id, task_id IS NOT NULL, id
        )) AND state = 'waiting' AND (due_at IS NULL OR due_at <= :now)
        FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE deliveries SET due_at = :until, num_attempts = num_attempts + 1
    FROM chosen, hooks
    WHERE deliveries.id = chosen.id AND hooks.id = deliveries.hook_id
    RETURNING deliveries.id, hook_id, hooks.name, hooks.url, hooks.secret, event_id, type,
        CAST(data AS text) AS data, at, added_at, num_attempts
""")

_DELETE_ENDED = text("""
    DELETE FROM deliveries WHERE id = ANY(ARRAY(
        SELECT id FROM deliveries
        WHERE (state = 'delivered' AND ended_at < :delivered) OR (state = 'dead' AND ended_at < :given_up)
        ORDER BY ended_at LIMIT :size FOR UPDATE SKIP LOCKED
    ))
""")
