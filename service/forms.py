"""Rows in two forms: that of a task's newest schema, and that of the version which still answers by an earlier one.

When a task's features change, the version that answers goes on asking for the old ones until one of the new schema is
released. Until then producers may send events in either form; each is stored under the schema whose form it has, and
`contracts.forms` says how fits read them. From that release on only the new form is taken.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlalchemy import Connection

from contracts.batches import Event
from contracts.catalog import Schema, find_form, find_task, list_tasks
from contracts.events import Outcome, append_events
from service.follower import Follower, only_task
from service.rows import Refusal, RowRules, compile_rules

Judged = tuple[Schema, Event | Refusal]


def find_schemas(connection: Connection, follower: Follower, task: str | None) -> list[Schema]:
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


def judge(schemas: Sequence[Schema], read: Callable[[RowRules], Sequence[Event | Refusal]]) -> list[Judged]:
    """Each row with the first schema that takes it; with the newest and its faults where none does."""
    newest, *others = schemas
    judged: list[Judged] = [(newest, row) for row in read(compile_rules(newest.task))]
    for schema in others:
        if any(isinstance(row, Refusal) for _, row in judged):
            again = read(compile_rules(schema.task))
            judged = [
                (schema, other) if isinstance(one[1], Refusal) and isinstance(other, Event) else one
                for one, other in zip(judged, again, strict=True)
            ]
    return judged


def append(connection: Connection, rows: Sequence[tuple[Schema, Event]], received_at: datetime) -> list[Outcome]:
    """Store rows, those of each schema together; what became of each, in their order."""
    if len({schema.schema_id for schema, _ in rows}) == 1:
        return append_events(connection, rows[0][0], [row for _, row in rows], received_at)
    outcomes: dict[int, Outcome] = {}
    by_schema: dict[int, list[int]] = {}
    for place, (schema, _) in enumerate(rows):
        by_schema.setdefault(schema.schema_id, []).append(place)
    for _, places in sorted(by_schema.items()):
        stored = append_events(connection, rows[places[0]][0], [rows[place][1] for place in places], received_at)
        outcomes.update(zip(places, stored, strict=True))
    return [outcomes[place] for place in range(len(rows))]
