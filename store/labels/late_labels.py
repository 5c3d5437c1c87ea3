"""Labels that come apart from their events: joined at once if the other half is there, kept until it comes otherwise.

The other half is an event without a label, or the logged prediction of the same id, of which the event is made. A label
joins once, whatever is sent again and by how many processes: each id has one row in `incomplete_events` or `events`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import numpy as np
from sqlalchemy import Connection, text

from contracts.clock import MICROSECOND
from store.events.batches import EventBatch
from store.events.lookups import each_of
from store.events.row_forms import find_target_schemas
from store.events.sealed.returning import bring_back
from store.events.writes import NUM_ROWS_PER_STATEMENT, append_batch
from store.labels.logged_events import find_logged_events
from store.sql_arrays import bool_array, text_array, timestamp_array
from store.tasks.catalog import Schema

Joined = Literal["joined", "waiting", "duplicate", "conflict", "erased", "unlogged"]


@dataclass(frozen=True, slots=True)
class Label:
    """One checked label. `event_id` is that of its event, or of its prediction; `known_at` in microseconds, if said."""

    event_id: str
    label: str
    known_at: int | None = None


def append_labels(
    connection: Connection, schemas: Sequence[Schema], labels: Sequence[Label], received_at: datetime
) -> list[Joined]:
    """Join labels to their events, by the forms of rows that the task accepts, or let them wait.

    Returns for each `joined`, `waiting`, `duplicate` (the same label), `conflict` (another one, or an event that was
    sent for another target), `erased`, or `unlogged`: the log has the prediction without its features. Of two labels of
    one event the first counts.
    """
    first: dict[str, int] = {}
    for place, one in enumerate(labels):
        first.setdefault(one.event_id, place)
    found: dict[int, Joined] = {}
    order = [first[event_id] for event_id in sorted(first)]
    for start in range(0, len(order), NUM_ROWS_PER_STATEMENT):
        places = order[start : start + NUM_ROWS_PER_STATEMENT]
        asked = [labels[place] for place in places]
        found.update(zip(places, _append(connection, schemas, asked, received_at), strict=True))
    for place, one in enumerate(labels):
        if place not in found:
            before = first[one.event_id]
            if found[before] in ("joined", "waiting"):
                found[place] = "duplicate" if one.label == labels[before].label else "conflict"
            else:
                (found[place],) = _append(connection, schemas, [one], received_at)
    return [found[place] for place in range(len(labels))]


def _append(
    connection: Connection, schemas: Sequence[Schema], labels: Sequence[Label], received_at: datetime
) -> list[Joined]:
    """Labels of different events in the order of their ids. If another transaction was faster, all are tried again."""
    bring_back(connection, schemas[0].task_id, [one.event_id for one in labels])
    while True:
        savepoint = connection.begin_nested()
        found = _try_to_append(connection, schemas, labels, received_at)
        if len(found) == len(labels):
            savepoint.commit()
            return [found[one.event_id] for one in labels]
        savepoint.rollback()


def _try_to_append(
    connection: Connection, schemas: Sequence[Schema], labels: Sequence[Label], received_at: datetime
) -> dict[str, Joined]:
    """What became of each label, as far as that is known."""
    schema = schemas[0]
    found = _join_inputs(connection, schema, labels, received_at)
    rest = [one for one in labels if one.event_id not in found]
    found |= _compare_with_events(connection, schema, rest)
    rest = [one for one in rest if one.event_id not in found]
    found |= _join_logged(connection, schemas, rest, received_at)
    rest = [one for one in rest if one.event_id not in found]
    if rest:
        kept = _keep(connection, schema, rest, received_at)
        # An event that was completed while the insertion waited for its half: only a later statement sees it.
        if kept and connection.execute(_FIND_LABELS, {"task_id": schema.task_id, "ids": kept}).first() is not None:
            return {}
        found |= dict.fromkeys(kept, "waiting")
        found |= _compare_with_waiting(connection, schema, [one for one in rest if one.event_id not in found])
    return found


def _join_inputs(
    connection: Connection, schema: Schema, labels: Sequence[Label], received_at: datetime
) -> dict[str, Joined]:
    """Make events of those that have arrived without a label."""
    key = {"task_id": schema.task_id, "ids": [one.event_id for one in labels]}
    inputs = {row.event_id: row.schema_id for row in connection.execute(_LOCK_INPUTS, key)}
    if not inputs:
        return {}
    fitting = {schema.schema_id}
    if set(inputs.values()) != fitting:
        fitting = find_target_schemas(connection, schema)
    found: dict[str, Joined] = {one: "conflict" for one, schema_id in inputs.items() if schema_id not in fitting}
    joined = [one for one in labels if inputs.get(one.event_id) in fitting]
    if joined:
        given = {**_columns(joined), "task_id": schema.task_id, "received_at": received_at}
        ids = connection.exec_driver_sql(_JOIN, {**given, "delay": schema.task.label_delay // MICROSECOND}).scalars()
        found |= dict.fromkeys(ids, "joined")
    return found


def _join_logged(
    connection: Connection, schemas: Sequence[Schema], labels: Sequence[Label], received_at: datetime
) -> dict[str, Joined]:
    """Make events of logged predictions. Labels that wait for these ids already are compared first."""
    by_id = {one.event_id: one for one in labels}
    logged = find_logged_events(connection, schemas, [*by_id])
    if not logged:
        return {}
    key = {"task_id": schemas[0].task_id, "ids": [one.event_id for one in labels if one.event_id in logged]}
    waiting = {row.event_id: row.label for row in connection.execute(_LOCK_WAITING, key)}
    found: dict[str, Joined] = {}
    for schema in schemas:
        events = []
        for event_id, event in logged.items():
            one = by_id[event_id]
            if event is None:
                found[event_id] = "unlogged"
            elif waiting.get(event_id, one.label) != one.label:
                found[event_id] = "conflict"
            elif event.schema_id == schema.schema_id:
                events.append(event.with_label(one.label, one.known_at, received_at, schema.task.label_delay))
        if events:
            outcomes = append_batch(connection, schema, EventBatch.of(events), received_at)
            for made, outcome in zip(events, outcomes, strict=True):
                found[made.event_id] = "joined" if outcome == "created" else outcome
    return found


def _compare_with_events(connection: Connection, schema: Schema, labels: Sequence[Label]) -> dict[str, Joined]:
    if not labels:
        return {}
    key = {"task_id": schema.task_id, "ids": [one.event_id for one in labels]}
    stored: dict[str, set[str | None]] = {}
    for row in connection.execute(_FIND_LABELS, key):
        stored.setdefault(row.event_id, set()).add(None if row.is_erased else row.label)
    return {
        one.event_id: "erased"
        if None in stored[one.event_id]
        else "duplicate"
        if one.label in stored[one.event_id]
        else "conflict"
        for one in labels
        if one.event_id in stored
    }


def _compare_with_waiting(connection: Connection, schema: Schema, labels: Sequence[Label]) -> dict[str, Joined]:
    if not labels:
        return {}
    key = {"task_id": schema.task_id, "ids": [one.event_id for one in labels]}
    waiting = {row.event_id: row.label for row in connection.execute(_FIND_WAITING, key)}
    return {
        one.event_id: "duplicate" if waiting[one.event_id] == one.label else "conflict"
        for one in labels
        if one.event_id in waiting
    }


def _keep(connection: Connection, schema: Schema, labels: Sequence[Label], received_at: datetime) -> list[str]:
    """The ids of the labels that wait from now on."""
    given = {"task_id": schema.task_id, "schema_id": schema.schema_id, "received_at": received_at}
    return list(connection.exec_driver_sql(_KEEP, {**given, **_columns(labels)}).scalars())


def _columns(labels: Sequence[Label]) -> dict[str, object]:
    return {
        "ids": text_array([one.event_id for one in labels]),
        "labels": text_array([one.label for one in labels]),
        "known_ats": timestamp_array(np.array([one.known_at or 0 for one in labels], np.int64)),
        "says": bool_array(np.array([one.known_at is not None for one in labels], np.bool_)),
    }


_HALVES = "event_id, schema_id, label"
_LOCK_INPUTS = text(
    f"SELECT * FROM {each_of('ids', _HALVES, 'label IS NULL', lock='FOR UPDATE', table='incomplete_events')}"  # noqa: S608 our own fragment
)
_LOCK_WAITING = text(
    f"SELECT * FROM {each_of('ids', _HALVES, 'label IS NOT NULL', lock='FOR UPDATE', table='incomplete_events')}"  # noqa: S608 our own fragment
)
_FIND_WAITING = text(
    f"SELECT * FROM {each_of('ids', 'event_id, label', 'label IS NOT NULL', table='incomplete_events')}"  # noqa: S608 our own fragment
)
_FIND_LABELS = text(f"SELECT * FROM {each_of('ids', 'event_id, label, erasure_id IS NOT NULL AS is_erased', 'true')}")  # noqa: S608 our own fragment

# Arrays travel in binary. A delay in days would depend on the session's time zone.
_GIVEN = """
    SELECT event_id, label, CASE WHEN says_known_at THEN known_at AT TIME ZONE 'UTC' END AS known_at
    FROM unnest(%(ids)b::text[], %(labels)b::text[], %(known_ats)b::timestamp[], %(says)b::bool[])
        AS given(event_id, label, known_at, says_known_at)
"""
_JOIN = f"""
    INSERT INTO events
        (task_id, event_id, revision, at, known_at, received_at, schema_id, numbers, categories, label, import_id)
    SELECT kept.task_id, kept.event_id, 1, kept.at,
           greatest(kept.at, coalesce(
               given.known_at, greatest(kept.at + %(delay)s * interval '1 microsecond', %(received_at)s)
           )),
           %(received_at)s, kept.schema_id, kept.numbers, kept.categories, given.label, kept.import_id
    FROM ({_GIVEN}) AS given CROSS JOIN LATERAL (
        SELECT * FROM incomplete_events
        WHERE task_id = ANY(ARRAY(SELECT %(task_id)s::integer)) AND event_id = given.event_id
          AND event_id BETWEEN given.event_id AND given.event_id AND incomplete_events.label IS NULL
        OFFSET 0
    ) AS kept
    ORDER BY kept.event_id COLLATE "C"
    ON CONFLICT DO NOTHING
    RETURNING event_id
"""  # noqa: S608 our own fragment
_KEEP = f"""
    INSERT INTO incomplete_events (task_id, event_id, received_at, schema_id, label, known_at)
    SELECT %(task_id)s, event_id, %(received_at)s, %(schema_id)s, label, known_at FROM ({_GIVEN}) AS given
    ORDER BY event_id COLLATE "C"
    ON CONFLICT DO NOTHING
    RETURNING event_id
"""  # noqa: S608 our own fragment
