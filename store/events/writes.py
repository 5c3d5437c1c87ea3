"""Writing events: append labelled rows once, correct them, and keep refused ones.

Rows arrive with their content checked (`service.validation.rules`), as columns if there are many
(`store.events.batches`). They are read back as arrays (`store.events.reading.columns`). The table is append-only: a
correction closes a revision and adds one, so a past training set can be rebuilt.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import Connection, text

from contracts.clock import from_micros
from contracts.errors import Conflict, NotFound
from store.database import rejected_events
from store.events.batches import Event, EventBatch
from store.events.lookups import each_of, has_given_id
from store.events.resent_events import find_told
from store.events.sealed.returning import bring_back
from store.sql_arrays import bool_array, float8_array, text_array, timestamp_array
from store.tasks.catalog import Schema

Outcome = Literal["created", "duplicate", "conflict", "erased"]
Correction = Literal["corrected", "duplicate"]

NUM_ROWS_PER_STATEMENT = 1000


@dataclass(frozen=True)
class Rejection:
    """One refused row: the reason, and what was sent, so that its sender can correct and resend it."""

    event_id: str | None
    reason: str
    payload: str


def append_events(
    connection: Connection, schema: Schema, rows: Sequence[Event], received_at: datetime
) -> list[Outcome]:
    """`append_batch` of rows."""
    return append_batch(connection, schema, EventBatch.of(rows), received_at) if rows else []


def append_batch(
    connection: Connection, schema: Schema, batch: EventBatch, received_at: datetime, import_id: int | None = None
) -> list[Outcome]:
    """Store new rows, perhaps of an import.

    Returns for each `created`, `duplicate` (same content), `conflict`, or `erased` (before).

    Of two rows in a batch with the same new `event_id` the first counts. A row is a duplicate if any revision of its
    event holds the same values. Values that the row does not give cannot differ: a `known_at` that is left to the task,
    and a feature that its schema lacks. A value under a name that the stored row lacks does differ. So no value is
    lost, or mistaken for another after a feature was renamed. The `known_at` of a correction is not compared.
    """
    first: dict[str, int] = {}
    for place, event_id in enumerate(batch.event_ids):
        first.setdefault(event_id, place)
    if len(first) == len(batch) <= NUM_ROWS_PER_STATEMENT:
        return _append(connection, schema, batch, received_at, import_id)
    found: dict[int, Outcome] = {}

    def ask(places: Sequence[int]) -> None:
        for start in range(0, len(places), NUM_ROWS_PER_STATEMENT):
            asked = places[start : start + NUM_ROWS_PER_STATEMENT]
            outcomes = _append(connection, schema, batch.select(asked), received_at, import_id)
            found.update(zip(asked, outcomes, strict=True))

    # Every transaction locks its rows in the same order, so two batches wait for each other but never deadlock.
    ask([first[event_id] for event_id in sorted(first)])
    again = [place for place in range(len(batch)) if place not in found]
    for place in again:
        before = first[batch.event_ids[place]]
        if found[before] == "created":
            found[place] = "duplicate" if batch.row(place).is_told_by(batch.row(before)) else "conflict"
    # Only the store knows the content of an event that was stored before this batch.
    ask([place for place in again if place not in found])
    return [found[place] for place in range(len(batch))]


def _append(
    connection: Connection,
    schema: Schema,
    batch: EventBatch,
    received_at: datetime,
    import_id: int | None,
    *,
    are_back: bool = False,
) -> list[Outcome]:
    """One statement for rows without repeated new ids. A row that a concurrent insert won is read again.

    A row whose event may be sealed is not stored before that was looked up: then `are_back`.
    """
    not_created = connection.exec_driver_sql(
        _APPEND,
        {
            "task_id": schema.task_id,
            "schema_id": schema.schema_id,
            "received_at": received_at,
            "import_id": import_id,
            "ids": text_array(batch.event_ids),
            "ats": timestamp_array(batch.at),
            "known_ats": timestamp_array(batch.known_at),
            "says_known_ats": bool_array(batch.says_known_at),
            "labels": text_array(batch.labels),
            "numbers": float8_array(batch.numbers.reshape(-1)),
            "categories": text_array(batch.categories),
            "are_back": are_back,
            "num_numbers": len(schema.task.numbers),
            "num_categories": len(schema.task.categories),
        },
    ).all()
    outcomes: list[Outcome] = ["created"] * len(batch)
    lost: list[int] = []
    of_another_form: list[int] = []
    for position, same, is_erased, has_another_form in not_created:
        place = position - 1
        if is_erased is None:
            lost.append(place)
        elif is_erased:
            outcomes[place] = "erased"
        elif has_another_form and not same:
            of_another_form.append(place)
        else:
            outcomes[place] = "duplicate" if same else "conflict"
    if of_another_form:
        rows = [batch.row(place) for place in of_another_form]
        for place, is_told in zip(of_another_form, find_told(connection, schema, rows), strict=True):
            outcomes[place] = "duplicate" if is_told else "conflict"
    if lost:
        left = batch.select(lost)
        bring_back(connection, schema.task_id, left.event_ids)
        again = _append(connection, schema, left, received_at, import_id, are_back=True)
        for place, outcome in zip(lost, again, strict=True):
            outcomes[place] = outcome
    return outcomes


# Arrays travel in binary, and only the few rows that were not created come back. `store.events.lookups` says why a
# stored row is looked up in this way.
_APPEND = """
    WITH input AS (
        SELECT n, event_id, at AT TIME ZONE 'UTC' AS at, known_at AT TIME ZONE 'UTC' AS known_at, says_known_at, label,
               (%(numbers)b::float8[])[(n-1) * %(num_numbers)s + 1 : n * %(num_numbers)s] AS numbers,
               (%(categories)b::text[])[(n-1) * %(num_categories)s + 1 : n * %(num_categories)s] AS categories
        FROM unnest(%(ids)b::text[], %(ats)b::timestamp[], %(known_ats)b::timestamp[], %(says_known_ats)b::bool[],
                    %(labels)b::text[])
             WITH ORDINALITY AS given(event_id, at, known_at, says_known_at, label, n)
    ), created AS (
        INSERT INTO events
            (task_id, event_id, revision, at, known_at, received_at, schema_id, numbers, categories, label, import_id)
        SELECT %(task_id)s, event_id, 1, at, known_at, %(received_at)s, %(schema_id)s, numbers, categories, label,
               %(import_id)s::bigint
        FROM input
        WHERE %(are_back)s OR (SELECT NOT EXISTS (SELECT FROM sealed_files WHERE task_id = %(task_id)s))
            OR NOT may_be_sealed(%(task_id)s, event_id)
        ORDER BY event_id COLLATE "C"
        ON CONFLICT DO NOTHING
        RETURNING event_id
    ), others AS MATERIALIZED (
        SELECT * FROM input WHERE NOT EXISTS (SELECT FROM created WHERE created.event_id = input.event_id)
    )
    SELECT others.n, stored.same, stored.is_erased, stored.has_another_form
    FROM others
    LEFT JOIN LATERAL (
        SELECT
            bool_or(
                schemas.row_schema = own.row_schema
                AND (events.at, events.numbers, events.categories, events.label)
                    IS NOT DISTINCT FROM (others.at, others.numbers, others.categories, others.label)
                AND (events.revision > 1 OR NOT others.says_known_at OR events.known_at = others.known_at)
            ) AS same,
            bool_or(events.erasure_id IS NOT NULL) AS is_erased,
            bool_or(schemas.row_schema <> own.row_schema) AS has_another_form
        FROM events
        JOIN schemas ON schemas.id = events.schema_id
        JOIN schemas AS own ON own.id = %(schema_id)s
        WHERE events.task_id = ANY(ARRAY(SELECT %(task_id)s::integer)) AND events.event_id = others.event_id
          AND events.event_id BETWEEN others.event_id AND others.event_id
    ) AS stored ON true
"""


def correct_event(
    connection: Connection,
    schema: Schema,
    event: Event,
    received_at: datetime,
    check: Callable[[int], None] = lambda _revision: None,
) -> Correction:
    """Add a revision with this content and close the former one, unless that has the same content.

    The correction is known when it is received, whatever `event.known_at` says, but never before the former revision.
    So from the moment at which an event is known, exactly one revision of it is visible. `check` gets the number of the
    revision that would be closed, and raises if it must stay; the caller's transaction then undoes the rest. Raises
    NotFound, and Conflict if the event is erased.
    """
    key = {"task_id": schema.task_id, "event_id": event.event_id}
    # Every correction locks the first revision's row, which never moves, so the next one sees its result.
    first = connection.execute(_LOCK, key).one_or_none()
    if first is None and bring_back(connection, schema.task_id, [event.event_id]):
        first = connection.execute(_LOCK, key).one_or_none()
    if first is None:
        raise NotFound(f"There is no event with the id {event.event_id!r}.")
    if first.erasure_id is not None:
        raise Conflict("This event is erased: nothing is stored under its id again.")
    content = {
        "schema_id": schema.schema_id,
        "at": from_micros(event.at),
        "numbers": list(event.numbers),
        "categories": list(event.categories),
        "label": event.label,
    }
    written = connection.execute(_CORRECT, {**key, **content, "received_at": received_at}).one_or_none()
    if written is None:
        return "duplicate"
    check(written.revision - 1)
    return "corrected"


_LOCK = text(
    f"SELECT erasure_id FROM events WHERE {has_given_id()} AND revision = 1 FOR UPDATE"  # noqa: S608 our own fragment
)

_CORRECT = text(f"""
    WITH given AS (
        SELECT CAST(:at AS timestamptz) AS at, CAST(:numbers AS float8[]) AS numbers,
               CAST(:categories AS text[]) AS categories, CAST(:label AS text) AS label, schemas.row_schema
        FROM schemas WHERE schemas.id = :schema_id
    ), former AS (
        UPDATE events
        SET superseded_at = greatest(CAST(:received_at AS timestamptz), events.received_at, events.known_at)
        FROM schemas, given
        WHERE {has_given_id()} AND events.superseded_at IS NULL
          AND schemas.id = events.schema_id
          AND (events.at, events.numbers, events.categories, events.label, schemas.row_schema)
              IS DISTINCT FROM (given.at, given.numbers, given.categories, given.label, given.row_schema)
        RETURNING events.revision, events.superseded_at
    )
    INSERT INTO events
        (task_id, event_id, revision, at, known_at, received_at, schema_id, numbers, categories, label)
    SELECT :task_id, :event_id, former.revision + 1, given.at, former.superseded_at, :received_at, :schema_id,
           given.numbers, given.categories, given.label
    FROM given, former
    RETURNING revision
""")  # noqa: S608 our own fragment


def record_rejections(
    connection: Connection,
    task_id: int,
    rejections: Sequence[Rejection],
    received_at: datetime,
    import_id: int | None = None,
) -> None:
    """Keep refused rows, except those of erased events; characters that PostgreSQL cannot hold are escaped.

    They came with `import_id`, if it is given.
    """
    event_ids = [None if one.event_id is None else _storable(one.event_id) for one in rejections]
    erased = _find_erased(connection, task_id, [event_id for event_id in event_ids if event_id is not None])
    kept = [
        {
            "task_id": task_id,
            "received_at": received_at,
            "event_id": event_id,
            "reason": _storable(rejection.reason),
            "payload": _storable(rejection.payload),
            "import_id": import_id,
        }
        for event_id, rejection in zip(event_ids, rejections, strict=True)
        if event_id not in erased
    ]
    if kept:
        connection.execute(rejected_events.insert(), kept)


def _find_erased(connection: Connection, task_id: int, event_ids: Sequence[str]) -> set[str]:
    """The erased ones among these; a concurrent erasure waits for this transaction and finds the rows it keeps."""
    if not event_ids:
        return set()
    rows = connection.execute(_LOOK, {"task_id": task_id, "event_ids": sorted(set(event_ids))})
    return {row.event_id for row in rows if row.erasure_id is not None}


# In the order in which erasures lock, so the two wait for each other but never deadlock.
_LOOK = text(
    f"SELECT * FROM {each_of('event_ids', 'event_id, erasure_id', 'revision = 1', lock='FOR KEY SHARE')}"  # noqa: S608 our own fragment
)


def _storable(words: str) -> str:
    """The text without NUL and lone surrogates."""
    return words.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
