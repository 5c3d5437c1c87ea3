"""Erasure on request: the content of an event goes from all of its revisions; the rows stay, and count.

The rows stay as tombstones. Their numbers, categories and labels are blank, and their moments are the starts of the
windows that held them. They were never current, so no training set as of any moment holds them. The id stays too, so a
client that resends the event cannot store it again. Ingest needs no second table for that, and loses no race.

One more revision is added, as by a correction. Cells of the matrix know how many revisions their window held
(`store.events.reading.counts.read_fingerprints`). So cells that include an erased row are scored again, also those of
rivals.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import Connection, delete, insert, select, text, update

from store.database import erasures, rejected_events
from store.events.lookups import each_of
from store.events.sealed.returning import bring_back
from store.events.tombstones import BLANK_CONTENT, window_grid
from store.predictions.erasures import erase_predictions
from store.tasks.catalog import Schema

Erased = Literal["erased", "erased_before", "unknown"]


@dataclass(frozen=True)
class Erasure:
    """One request: who asked, why, and how much was erased.

    `num_rejected` counts refused rows with these ids, and `num_predictions` logged answers.
    """

    erasure_id: int
    at: datetime
    actor: str
    reason: str
    num_events: int
    num_revisions: int
    num_rejected: int
    num_predictions: int = 0


def erase_events(
    connection: Connection, schema: Schema, event_ids: Sequence[str], *, actor: str, reason: str, now: datetime
) -> tuple[Erasure, list[Erased]]:
    """Erase these events, with refused rows and logged answers of their ids; returns the outcome of each, in order.

    Corrections of them wait, and find them erased. An event that is neither stored nor a logged answer is unknown, and
    may be stored later. One of which only a half is stored is erased as well. Files of sealed ones are marked:
    `store.events.sealed.rewriting` must rewrite them after the commit.
    """
    bring_back(connection, schema.task_id, event_ids, for_good=True)
    key: dict[str, object] = {"task_id": schema.task_id, "ids": sorted(set(event_ids))}
    _complete_halves(connection, schema, key)
    there = {row.event_id: row.is_erased for row in connection.execute(_LOCK, key)}
    doomed = [event_id for event_id, is_erased in there.items() if not is_erased]
    key["ids"] = doomed
    erasure_id = connection.execute(
        insert(erasures)
        .values(
            task_id=schema.task_id,
            at=now,
            actor=actor,
            reason=reason,
            num_events=len(doomed),
            num_revisions=0,
            num_rejected=0,
        )
        .returning(erasures.c.id)
    ).scalar_one()
    # First one more revision, a copy of the current one, which is blanked with the others: then none is current.
    connection.execute(_ADD, key)
    num_blank = connection.execute(_BLANK, {**key, "erasure_id": erasure_id, **window_grid(schema.task)}).rowcount
    num_rejected = connection.execute(
        delete(rejected_events).where(
            rejected_events.c.task_id == schema.task_id, rejected_events.c.event_id.in_(set(event_ids))
        )
    ).rowcount
    answers = erase_predictions(connection, schema.task_id, event_ids)
    row = connection.execute(
        update(erasures)
        .where(erasures.c.id == erasure_id)
        .values(num_revisions=num_blank - len(doomed), num_rejected=num_rejected, num_predictions=len(answers))
        .returning(*_COLUMNS)
    ).one()
    return Erasure(*row), ["erased" if event_id in answers else _outcome(there.get(event_id)) for event_id in event_ids]


def _complete_halves(connection: Connection, schema: Schema, key: dict[str, object]) -> None:
    """Make events of those of which a half is stored: their blank rows will bar their ids. Nobody else sees these."""
    halves = connection.execute(_LOCK_HALVES, key).scalars().all()
    if halves:
        shape = {"num_numbers": len(schema.task.numbers), "num_categories": len(schema.task.categories)}
        given = {"task_id": schema.task_id, "ids": [*halves]}
        connection.execute(_COMPLETE, {**given, **shape, "schema_id": schema.schema_id})
        connection.execute(_DELETE_HALVES, given)


def find_trained(connection: Connection, task_id: int, event_ids: Sequence[str]) -> list[str]:
    """Released versions whose rows held one of these events, oldest cutoff first; call this before erasing them."""
    bring_back(connection, task_id, event_ids, for_good=True)
    return list(connection.execute(_TRAINED, {"task_id": task_id, "ids": sorted(set(event_ids))}).scalars())


def list_erasures(connection: Connection, task_id: int, limit: int = 1000) -> list[Erasure]:
    """A task's erasures, newest first."""
    rows = connection.execute(
        select(*_COLUMNS).where(erasures.c.task_id == task_id).order_by(erasures.c.id.desc()).limit(limit)
    )
    return [Erasure(*row) for row in rows]


def _outcome(is_erased: bool | None) -> Erased:
    return "unknown" if is_erased is None else "erased_before" if is_erased else "erased"


_COLUMNS = (
    erasures.c.id,
    erasures.c.at,
    erasures.c.actor,
    erasures.c.reason,
    erasures.c.num_events,
    erasures.c.num_revisions,
    erasures.c.num_rejected,
    erasures.c.num_predictions,
)

# Like a correction, an erasure locks first revisions, which never move, all of them in one order.
_LOCK = text(f"""
    SELECT event_id, is_erased
    FROM {each_of("ids", "event_id, erasure_id IS NOT NULL AS is_erased", "revision = 1", lock="FOR UPDATE")}
""")  # noqa: S608 our own fragment

# Halves are locked before events, as wherever both are.
_LOCK_HALVES = text(
    f"SELECT event_id FROM {each_of('ids', 'event_id', 'true', lock='FOR UPDATE', table='incomplete_events')}"  # noqa: S608 our own fragment
)

# The label is the blank of a regression, which every task's rows may hold for the moment.
_COMPLETE = text(f"""
    INSERT INTO events
        (task_id, event_id, revision, at, known_at, received_at, schema_id, numbers, categories, label)
    SELECT task_id, event_id, 1, coalesce(at, received_at), coalesce(at, received_at), received_at,
           CASE WHEN at IS NULL THEN :schema_id ELSE schema_id END,
           coalesce(numbers, array_fill('NaN'::float8, ARRAY[CAST(:num_numbers AS integer)])),
           coalesce(categories, array_fill(''::text, ARRAY[CAST(:num_categories AS integer)])), 'NaN'
    FROM {each_of("ids", "*", "true", table="incomplete_events")}
    ON CONFLICT DO NOTHING
""")  # noqa: S608 our own fragment

_DELETE_HALVES = text("""
    DELETE FROM incomplete_events WHERE task_id = :task_id AND event_id = ANY(CAST(:ids AS text[]))
""")

_ADD = text(f"""
    INSERT INTO events
        (task_id, event_id, revision, at, known_at, received_at, schema_id, numbers, categories, label)
    SELECT task_id, event_id, revision + 1, at, known_at, received_at, schema_id, numbers, categories, label
    FROM {each_of("ids", "*", "superseded_at IS NULL")}
""")  # noqa: S608 our own fragment

# Nobody moves these rows: the first revision is locked.
_BLANK = text(f"""
    UPDATE events
    SET {BLANK_CONTENT}, erasure_id = :erasure_id
    FROM schemas
    WHERE events.ctid = ANY(ARRAY(SELECT found.place FROM {each_of("ids", "ctid AS place", "true")}))
      AND schemas.id = events.schema_id
""")  # noqa: S608 our own fragment

_TRAINED = text(f"""
    WITH revisions AS MATERIALIZED (
        SELECT found.*
        FROM {each_of("ids", "at, known_at, superseded_at, received_at", "erasure_id IS NULL")}
    )
    SELECT cycles.version FROM cycles
    WHERE cycles.task_id = :task_id AND cycles.state = 'released' AND EXISTS (
        SELECT FROM revisions
        WHERE revisions.at < cycles.cutoff AND revisions.known_at <= cycles.cutoff
          AND coalesce(revisions.superseded_at, 'infinity') > cycles.cutoff
          AND revisions.received_at <= cycles.read_at
    )
    ORDER BY cycles.cutoff
""")  # noqa: S608 our own fragment
