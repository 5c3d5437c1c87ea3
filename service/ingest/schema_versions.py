"""Rows in two forms: the form of a task's newest schema, and the form of an earlier schema whose version still answers.

After a task's features change, the version that answers needs the old ones until a version of the new schema is
released. Until then producers may send events in either form. Each event is stored under the schema of its form, and
`store.events.row_forms` says how fits read them. After that release, only the new form is accepted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from service.models.follower import Follower
from service.validation.names import only_task
from service.validation.rules import Refusal, RowRules, compile_rules, list_rows
from store.events.batches import Event, EventBatch
from store.labels.unlabelled import Stored, append_rows
from store.tasks.catalog import Schema, find_form, find_live_task, list_names

# Validates the rows of a request by the rules of a task.
Read = Callable[[RowRules], EventBatch | Sequence[Event | Refusal]]


@dataclass(frozen=True)
class ValidatedRows:
    """Rows by their index in a request: the accepted rows of each schema that accepts any, and the refused rows."""

    accepted: Sequence[tuple[Schema, Sequence[int], EventBatch]]
    refused: Mapping[int, Refusal]


def find_schemas(follower: Follower, connection: Connection, task: str | None) -> list[Schema]:
    """The schemas whose rows are accepted, the newest first. Raises InvalidInput, NotFound, TaskArchived."""
    if task is None:
        task = only_task(tuple(one.name for one in list_names(connection)))
    newest = find_live_task(connection, task)
    forecaster = follower.forecasters.get(newest.task.name)
    if forecaster is None or forecaster.task.features == newest.task.features:
        return [newest]
    older = find_form(connection, newest, forecaster.task)
    return [newest] if older is None else [newest, older]


def validate(schemas: Sequence[Schema], read: Read) -> ValidatedRows:
    """Each row with the first schema that accepts it; a refusal has the faults that the newest schema finds."""
    rows = read(compile_rules(schemas[0].task))
    if isinstance(rows, EventBatch):
        return ValidatedRows([(schemas[0], range(len(rows)), rows)], {})
    return group_by_schema(_validate_again(schemas, rows, read))


def validate_one(schemas: Sequence[Schema], read: Read) -> tuple[Schema, Event | Refusal]:
    """The only row, with the first schema that accepts it, otherwise the newest."""
    ((schema, row),) = _validate_again(schemas, list_rows(read(compile_rules(schemas[0].task))), read)
    return schema, row


def _validate_again(
    schemas: Sequence[Schema], rows: Sequence[Event | Refusal], read: Read
) -> list[tuple[Schema, Event | Refusal]]:
    """Validate rows that the newest schema refused by the other schemas."""
    newest, *others = schemas
    validated: list[tuple[Schema, Event | Refusal]] = [(newest, row) for row in rows]
    for schema in others:
        if any(isinstance(row, Refusal) for _, row in validated):
            again = list_rows(read(compile_rules(schema.task)))
            validated = [
                (schema, other) if isinstance(one[1], Refusal) and isinstance(other, Event) else one
                for one, other in zip(validated, again, strict=True)
            ]
    return validated


def group_by_schema(rows: Sequence[tuple[Schema, Event | Refusal]]) -> ValidatedRows:
    """The rows of each schema in their order, as columns."""
    accepted: dict[int, tuple[Schema, list[int], list[Event]]] = {}
    refused: dict[int, Refusal] = {}
    for place, (schema, row) in enumerate(rows):
        if isinstance(row, Refusal):
            refused[place] = row
        else:
            _, places, events = accepted.setdefault(schema.schema_id, (schema, [], []))
            places.append(place)
            events.append(row)
    # Schemas in one order, so that two transactions can wait for each other but not deadlock.
    parts = [(schema, places, EventBatch.of(events)) for _, (schema, places, events) in sorted(accepted.items())]
    return ValidatedRows(parts, refused)


def append(
    connection: Connection, rows: ValidatedRows, received_at: datetime, import_id: int | None = None
) -> list[tuple[str, Stored] | Refusal]:
    """Store the accepted rows; return, in the order of the rows, each one's id and outcome, or its refusal."""
    found: dict[int, tuple[str, Stored] | Refusal] = {**rows.refused}
    for schema, places, batch in rows.accepted:
        outcomes = append_rows(connection, schema, batch, received_at, import_id)
        stored = [*zip(batch.event_ids, outcomes, strict=True)]
        if len(rows.accepted) == 1 and not found:
            return [*stored]
        found.update(zip(places, stored, strict=True))
    return [found[place] for place in range(len(found))]
