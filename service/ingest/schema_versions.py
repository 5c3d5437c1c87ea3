"""Rows in two forms: that of a task's newest schema, and that of the version which still answers by an earlier one.

When a task's features change, the version that answers goes on asking for the old ones until one of the new schema is
released. Until then producers may send events in either form; each is stored under the schema whose form it has, and
`store.row_forms` says how fits read them. From that release on only the new form is taken.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from service.models.follower import Follower
from service.validation.names import only_task
from service.validation.rules import Refusal, RowRules, compile_rules, list_rows
from store.batches import Event, EventBatch
from store.catalog import Schema, find_form, find_task, list_tasks
from store.events import Outcome, append_batch

# What the rules of a task make of the rows of a request.
Read = Callable[[RowRules], EventBatch | Sequence[Event | Refusal]]


@dataclass(frozen=True)
class ValidatedRows:
    """Rows by their places in a request: those that a schema takes, for each schema that takes any, and the others."""

    taken: Sequence[tuple[Schema, Sequence[int], EventBatch]]
    refused: Mapping[int, Refusal]


def find_schemas(follower: Follower, connection: Connection, task: str | None) -> list[Schema]:
    """The schemas whose rows are taken, the newest first. Raises InvalidInput, NotFound."""
    if task is not None:
        newest = find_task(connection, task)
    else:
        known = {schema.task.name: schema for schema in list_tasks(connection)}
        newest = known[only_task(tuple(known))]
    forecaster = follower.forecasters.get(newest.task.name)
    if forecaster is None or forecaster.task.features == newest.task.features:
        return [newest]
    older = find_form(connection, newest, forecaster.task)
    return [newest] if older is None else [newest, older]


def validate(schemas: Sequence[Schema], read: Read) -> ValidatedRows:
    """Each row with the first schema that takes it; a refusal has the faults that the newest finds."""
    rows = read(compile_rules(schemas[0].task))
    if isinstance(rows, EventBatch):
        return ValidatedRows([(schemas[0], range(len(rows)), rows)], {})
    return group_by_schema(_validate_again(schemas, rows, read))


def validate_one(schemas: Sequence[Schema], read: Read) -> tuple[Schema, Event | Refusal]:
    """The one row that there is, with the first schema that takes it, else the newest."""
    ((schema, row),) = _validate_again(schemas, list_rows(read(compile_rules(schemas[0].task))), read)
    return schema, row


def _validate_again(
    schemas: Sequence[Schema], rows: Sequence[Event | Refusal], read: Read
) -> list[tuple[Schema, Event | Refusal]]:
    """What the newest has refused is judged by the others."""
    newest, *others = schemas
    judged: list[tuple[Schema, Event | Refusal]] = [(newest, row) for row in rows]
    for schema in others:
        if any(isinstance(row, Refusal) for _, row in judged):
            again = list_rows(read(compile_rules(schema.task)))
            judged = [
                (schema, other) if isinstance(one[1], Refusal) and isinstance(other, Event) else one
                for one, other in zip(judged, again, strict=True)
            ]
    return judged


def group_by_schema(rows: Sequence[tuple[Schema, Event | Refusal]]) -> ValidatedRows:
    """Rows in their order, as columns of each schema."""
    taken: dict[int, tuple[Schema, list[int], list[Event]]] = {}
    refused: dict[int, Refusal] = {}
    for place, (schema, row) in enumerate(rows):
        if isinstance(row, Refusal):
            refused[place] = row
        else:
            _, places, events = taken.setdefault(schema.schema_id, (schema, [], []))
            places.append(place)
            events.append(row)
    # Schemas in one order, so that two transactions wait for each other but never cross.
    parts = [(schema, places, EventBatch.of(events)) for _, (schema, places, events) in sorted(taken.items())]
    return ValidatedRows(parts, refused)


def append(connection: Connection, judged: ValidatedRows, received_at: datetime) -> list[tuple[str, Outcome] | Refusal]:
    """Store what is taken; in the order of the rows, the id of each and what became of it, or why it is refused."""
    found: dict[int, tuple[str, Outcome] | Refusal] = {**judged.refused}
    for schema, places, batch in judged.taken:
        stored = [*zip(batch.event_ids, append_batch(connection, schema, batch, received_at), strict=True)]
        if len(judged.taken) == 1 and not found:
            return [*stored]
        found.update(zip(places, stored, strict=True))
    return [found[place] for place in range(len(found))]
