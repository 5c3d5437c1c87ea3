"""Events without a label: they are kept as inputs, and become events when their label comes.

They are in `incomplete_events`, so no reader of `events` meets a row without a label. A transaction locks rows of
`incomplete_events` before it writes to `events`; one that stores a whole event waits for no such row
(`docs/decisions/0045-unlabelled-events.md`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

import numpy as np
from sqlalchemy import Connection, Row, text

from contracts.clock import from_micros, to_micros
from contracts.errors import Conflict, Fault, InvalidInput, NotFound
from store.events.batches import UNLABELLED, Event, EventBatch
from store.events.lookups import each_of, has_given_id
from store.events.resent_events import find_told
from store.events.row_forms import find_target_schemas
from store.events.sealed.returning import bring_back
from store.events.writes import (
    NUM_ROWS_PER_STATEMENT,
    Correction,
    Outcome,
    Rejection,
    append_batch,
    correct_event,
    record_rejections,
)
from store.labels.logged_events import find_known_at
from store.sql_arrays import float8_array, text_array, timestamp_array
from store.tasks.catalog import Schema

Stored = Outcome | Literal["unlabelled"]


def append_rows(
    connection: Connection, schema: Schema, batch: EventBatch, received_at: datetime, import_id: int | None = None
) -> list[Stored]:
    """`append_batch` of rows of which some may have no label. New ones of these are `unlabelled`.

    If their label waits for them, they are `created`. A row without a label is a duplicate if the stored event holds
    all of its other values.
    """
    places = batch.unlabelled
    if not places:
        return [*append_batch(connection, schema, batch, received_at, import_id)]
    without = {*places}
    found: dict[int, Stored] = {}
    if labelled := [place for place in range(len(batch)) if place not in without]:
        found.update(
            zip(
                labelled,
                append_batch(connection, schema, batch.select(labelled), received_at, import_id),
                strict=True,
            )
        )
    first: dict[str, int] = {}
    for place in places:
        first.setdefault(batch.event_ids[place], place)

    def ask(asked: Sequence[int]) -> None:
        for start in range(0, len(asked), NUM_ROWS_PER_STATEMENT):
            some = asked[start : start + NUM_ROWS_PER_STATEMENT]
            found.update(zip(some, _keep(connection, schema, batch.select(some), received_at, import_id), strict=True))

    # As for whole events: rows are locked in one order.
    ask([first[event_id] for event_id in sorted(first)])
    again = [place for place in places if place not in found]
    for place in again:
        before = first[batch.event_ids[place]]
        if found[before] in ("unlabelled", "created"):
            found[place] = "duplicate" if batch.row(place).is_told_by(batch.row(before)) else "conflict"
    for place in again:
        if place not in found:
            ask([place])
    return [found[place] for place in range(len(batch))]


def _keep(
    connection: Connection, schema: Schema, batch: EventBatch, received_at: datetime, import_id: int | None
) -> list[Stored]:
    """Rows without a label and without repeated ids. If another transaction was faster, all are looked at again."""
    while True:
        savepoint = connection.begin_nested()
        outcomes = _try_to_keep(connection, schema, batch, received_at, import_id)
        if outcomes is not None:
            savepoint.commit()
            return outcomes
        savepoint.rollback()


def _try_to_keep(
    connection: Connection, schema: Schema, batch: EventBatch, received_at: datetime, import_id: int | None
) -> list[Stored] | None:
    places = {event_id: place for place, event_id in enumerate(batch.event_ids)}
    found: dict[int, Stored] = {}
    bring_back(connection, schema.task_id, batch.event_ids)
    waiting = _take_labels(connection, schema, batch.event_ids, received_at)
    if waiting:
        asked = [places[one.event_id] for one in waiting]
        completed = _label(batch.select(asked), waiting)
        outcomes = append_batch(connection, schema, completed, received_at, import_id)
        found = {place: "created" for place, outcome in zip(asked, outcomes, strict=True) if outcome == "created"}
    rest = [place for place in range(len(batch)) if place not in found]
    if rest:
        kept = _insert(connection, schema, batch.select(rest), received_at, import_id)
        # An event that was completed while the insertion waited for its half: only a later statement sees it.
        if kept and connection.execute(_FIND_EVENTS, {"task_id": schema.task_id, "ids": kept}).first() is not None:
            return None
        found |= {places[event_id]: "unlabelled" for event_id in kept}
    rest = [place for place in rest if place not in found]
    if rest:
        compared = _compare(connection, schema, [batch.row(place) for place in rest])
        if compared is None:
            return None
        found |= dict(zip(rest, compared, strict=True))
    return [found[place] for place in range(len(batch))]


def _take_labels(
    connection: Connection, schema: Schema, event_ids: Sequence[str], received_at: datetime
) -> list[Row[Any]]:
    """The labels that wait for these events, locked. Those of another target are refused by now, and deleted."""
    waiting = connection.execute(_WAITING, {"task_id": schema.task_id, "ids": [*event_ids]}).all()
    if all(one.schema_id == schema.schema_id for one in waiting):
        return [*waiting]
    fitting = find_target_schemas(connection, schema)
    if strange := [one for one in waiting if one.schema_id not in fitting]:
        key = {"task_id": schema.task_id, "ids": [one.event_id for one in strange]}
        connection.execute(_DELETE, key)
        reason = "label: was sent before the task had its present target"
        record_rejections(
            connection,
            schema.task_id,
            [Rejection(one.event_id, reason, one.label) for one in strange],
            received_at,
        )
    return [one for one in waiting if one.schema_id in fitting]


def _label(batch: EventBatch, waiting: Sequence[Row[Any]]) -> EventBatch:
    """The rows with these labels, in the same order."""
    known_at = [
        find_known_at(int(at), int(due), None if one.known_at is None else to_micros(one.known_at), one.received_at)
        for at, due, one in zip(batch.at, batch.known_at, waiting, strict=True)
    ]
    return replace(
        batch,
        known_at=np.array(known_at, np.int64),
        says_known_at=np.ones(len(batch), np.bool_),
        labels=[one.label for one in waiting],
    )


def _insert(
    connection: Connection, schema: Schema, batch: EventBatch, received_at: datetime, import_id: int | None
) -> list[str]:
    """The ids of the rows that were new."""
    return list(
        connection.exec_driver_sql(
            _INSERT,
            {
                "task_id": schema.task_id,
                "schema_id": schema.schema_id,
                "received_at": received_at,
                "import_id": import_id,
                "ids": text_array(batch.event_ids),
                "ats": timestamp_array(batch.at),
                "numbers": float8_array(batch.numbers.reshape(-1)),
                "categories": text_array(batch.categories),
                "num_numbers": len(schema.task.numbers),
                "num_categories": len(schema.task.categories),
            },
        ).scalars()
    )


def _compare(connection: Connection, schema: Schema, rows: Sequence[Event]) -> list[Stored] | None:
    """What rows are to those that are stored under their ids; None if one of these is gone, or was a label."""
    key = {"task_id": schema.task_id, "ids": [row.event_id for row in rows]}
    erased = {row.event_id: row.is_erased for row in connection.execute(_FIND_EVENTS, key)}
    kept = set(connection.execute(_FIND_UNLABELLED, key).scalars())
    if any(row.event_id not in erased and row.event_id not in kept for row in rows):
        return None
    told = find_told(connection, schema, rows)
    told_kept = find_told(connection, schema, rows, unlabelled=True)
    return [
        "erased"
        if erased.get(row.event_id)
        else "duplicate"
        if (is_told if row.event_id in erased else is_told_kept)
        else "conflict"
        for row, is_told, is_told_kept in zip(rows, told, told_kept, strict=True)
    ]


def correct_row(
    connection: Connection,
    schema: Schema,
    event: Event,
    received_at: datetime,
    check: Callable[[int], None] = lambda _revision: None,
) -> Correction:
    """`correct_event` of an event that may be stored without a label; with one, the correction completes it.

    A label that comes so counts as one that came apart from its event (`find_known_at`). `check` gets the revision, as
    `find_revision` returns it. Raises as `correct_event`, and InvalidInput if the correction lacks the label that the
    event has.
    """
    key = {"task_id": schema.task_id, "event_id": event.event_id}
    kept = connection.execute(_LOCK, key).one_or_none()
    if kept is None or connection.execute(_HAS_EVENT, key).one_or_none() is not None:
        return _correct_labelled(connection, schema, event, received_at, check)
    check(-kept.num_corrections)
    if event.label == UNLABELLED:
        content = {
            "schema_id": schema.schema_id,
            "at": from_micros(event.at),
            "numbers": list(event.numbers),
            "categories": list(event.categories),
        }
        written = connection.execute(_CORRECT, {**key, **content, "received_at": received_at})
        return "corrected" if written.rowcount else "duplicate"
    said = event.known_at if event.says_known_at else None
    known_at = find_known_at(event.at, event.known_at, said, received_at)
    completed = replace(event, known_at=known_at, says_known_at=True)
    (outcome,) = append_batch(connection, schema, EventBatch.of([completed]), received_at, kept.import_id)
    if outcome != "created":  # stored whole by another transaction, a moment ago
        return _correct_labelled(connection, schema, event, received_at, check)
    return "corrected"


def _correct_labelled(
    connection: Connection,
    schema: Schema,
    event: Event,
    received_at: datetime,
    check: Callable[[int], None],
) -> Correction:
    if event.label == UNLABELLED:
        bring_back(connection, schema.task_id, [event.event_id])
        stored = connection.execute(_HAS_EVENT, {"task_id": schema.task_id, "event_id": event.event_id}).one_or_none()
        if stored is None:
            raise NotFound(f"There is no event with the id {event.event_id!r}.")
        if stored.erasure_id is not None:
            raise Conflict("This event is erased: nothing is stored under its id again.")
        raise InvalidInput([Fault("label", "is required, because the event has one")])
    return correct_event(connection, schema, event, received_at, check)


def find_revision(connection: Connection, task_id: int, event_id: str) -> int:
    """The number of an event's current revision; without a label it is 0, and each correction takes one away."""
    revision: int = connection.execute(_REVISION, {"task_id": task_id, "event_id": event_id}).scalar_one()
    return revision


_WAITING = text(f"""
    SELECT * FROM {
    each_of(
        "ids",
        "event_id, label, known_at, received_at, schema_id",
        "label IS NOT NULL",
        lock="FOR UPDATE",
        table="incomplete_events",
    )
}
""")  # noqa: S608 our own fragment

_DELETE = text("""
    DELETE FROM incomplete_events
    WHERE task_id = :task_id AND event_id = ANY(CAST(:ids AS text[])) AND label IS NOT NULL
""")

# Arrays travel in binary.
_INSERT = """
    WITH input AS (
        SELECT n, event_id, at AT TIME ZONE 'UTC' AS at,
               (%(numbers)b::float8[])[(n-1) * %(num_numbers)s + 1 : n * %(num_numbers)s] AS numbers,
               (%(categories)b::text[])[(n-1) * %(num_categories)s + 1 : n * %(num_categories)s] AS categories
        FROM unnest(%(ids)b::text[], %(ats)b::timestamp[]) WITH ORDINALITY AS given(event_id, at, n)
    )
    INSERT INTO incomplete_events (task_id, event_id, received_at, schema_id, at, numbers, categories, import_id)
    SELECT %(task_id)s, event_id, %(received_at)s, %(schema_id)s, at, numbers, categories, %(import_id)s::bigint
    FROM input
    WHERE NOT EXISTS (
        SELECT FROM events
        WHERE events.task_id = ANY(ARRAY(SELECT %(task_id)s::integer)) AND events.event_id = input.event_id
          AND events.event_id BETWEEN input.event_id AND input.event_id AND events.revision = 1
        OFFSET 0
    )
    ORDER BY event_id COLLATE "C"
    ON CONFLICT DO NOTHING
    RETURNING event_id
"""

_FIND_EVENTS = text(
    f"SELECT * FROM {each_of('ids', 'event_id, erasure_id IS NOT NULL AS is_erased', 'revision = 1')}"  # noqa: S608 our own fragment
)
_FIND_UNLABELLED = text(
    f"SELECT event_id FROM {each_of('ids', 'event_id', 'label IS NULL', table='incomplete_events')}"  # noqa: S608 our own fragment
)
_LOCK = text(f"""
    SELECT num_corrections, import_id FROM incomplete_events
    WHERE {has_given_id("incomplete_events")} AND label IS NULL FOR UPDATE
""")  # noqa: S608 our own fragment
_HAS_EVENT = text(f"SELECT erasure_id FROM events WHERE {has_given_id()} AND revision = 1")  # noqa: S608 our own fragment
_CORRECT = text(f"""
    UPDATE incomplete_events SET at = :at, numbers = CAST(:numbers AS float8[]),
        categories = CAST(:categories AS text[]), schema_id = :schema_id, received_at = :received_at,
        num_corrections = num_corrections + 1
    FROM schemas AS former, schemas AS given
    WHERE {has_given_id("incomplete_events")} AND former.id = incomplete_events.schema_id AND given.id = :schema_id
      AND (at, numbers, categories, former.row_schema)
          IS DISTINCT FROM (CAST(:at AS timestamptz), CAST(:numbers AS float8[]), CAST(:categories AS text[]),
                            given.row_schema)
""")  # noqa: S608 our own fragment
_REVISION = text(f"""
    SELECT revision FROM events WHERE {has_given_id()} AND superseded_at IS NULL
    UNION ALL
    SELECT -num_corrections FROM incomplete_events WHERE {has_given_id("incomplete_events")} AND label IS NULL
    LIMIT 1
""")  # noqa: S608 our own fragment
