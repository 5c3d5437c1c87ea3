"""Events that are sent again after the task's features have changed: they are compared by name."""

import math
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, select, text

from contracts.clock import to_micros
from store.database import schemas
from store.events.batches import Event
from store.events.lookups import each_of
from store.events.row_forms import find_places, has_target
from store.tasks.catalog import Schema


def find_told(connection: Connection, schema: Schema, sent: Sequence[Event], *, unlabelled: bool = False) -> list[bool]:
    """For each row, whether a stored revision of its event holds all of its values.

    With `unlabelled`, events that are stored without a label are searched instead. `find_places` says which features
    are the same. Rows of another target do not count.
    """
    specs = connection.execute(select(schemas.c.id, schemas.c.spec).where(schemas.c.task_id == schema.task_id))
    places = {row.id: find_places(schema.task, row.spec) for row in specs if has_target(schema.task, row.spec)}
    found: dict[str, list[tuple[Event, bool]]] = {}
    asked = {"task_id": schema.task_id, "event_ids": [row.event_id for row in sent], "schema_ids": [*places]}
    for stored in connection.execute(_UNLABELLED if unlabelled else _REVISIONS, asked):
        numbers, categories = places[stored.schema_id]
        event = Event(
            stored.event_id,
            to_micros(stored.at),
            to_micros(stored.known_at),
            tuple(math.nan if place is None else stored.numbers[place - 1] for place in numbers),
            tuple("" if place is None else stored.categories[place - 1] for place in categories),
            stored.label,
        )
        found.setdefault(stored.event_id, []).append((event, stored.revision > 1))
    return [
        any(
            # The `known_at` of a correction is not compared.
            row.is_told_by(replace(event, known_at=row.known_at) if is_correction else event)
            for event, is_correction in found.get(row.event_id, ())
        )
        for row in sent
    ]


_COLUMNS = "event_id, revision, at, known_at, numbers, categories, label, schema_id"
_REVISIONS = text(f"SELECT * FROM {each_of('event_ids', _COLUMNS, 'schema_id = ANY(:schema_ids)')}")  # noqa: S608 our own fragment
_UNLABELLED = text(f"""
    SELECT found.*, 1 AS revision, at AS known_at, '' AS label
    FROM {
    each_of(
        "event_ids",
        "event_id, at, numbers, categories, schema_id",
        "label IS NULL AND schema_id = ANY(:schema_ids)",
        table="incomplete_events",
    )
}
""")  # noqa: S608 our own fragment
