"""Events made of logged predictions: their id, moment and features are those of the log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import nan
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, text

from contracts.clock import MICROSECOND, to_micros
from contracts.task import Task
from contracts.truth import spell_truth
from store.events.batches import Event
from store.predictions.ids import read_id
from store.tasks.catalog import Schema


@dataclass(frozen=True)
class LoggedEvent:
    """A logged prediction as an event of a schema, without its label."""

    event_id: str
    schema_id: int
    at: int
    numbers: tuple[float, ...]
    categories: tuple[str, ...]

    def with_label(self, label: str, known_at: int | None, received_at: datetime, label_delay: timedelta) -> Event:
        """The event with a label that came apart from it."""
        due = self.at + label_delay // MICROSECOND
        known = find_known_at(self.at, due, known_at, received_at)
        return Event(self.event_id, self.at, known, self.numbers, self.categories, label)


def find_known_at(at: int, due: int, said: int | None, received_at: datetime) -> int:
    """When the label of an event of `at` was known (microseconds), if it came apart from it.

    As its sender says, but not before the event. Otherwise when it was received, but not before `due`, the event's
    moment plus the task's `label_delay`.
    """
    return max(due, to_micros(received_at)) if said is None else max(at, said)


def find_logged_events(
    connection: Connection, schemas: Sequence[Schema], ids: Sequence[str]
) -> dict[str, LoggedEvent | None]:
    """Those ids that name a logged prediction of the task, each with its event.

    It is None if the log has no features of it, or if they fit none of the schemas.
    """
    asked: dict[UUID, str] = {}
    for one in ids:
        if (found := read_id(one)) is not None:
            asked[found] = one
    if not asked:
        return {}
    rows = connection.execute(_FIND, {"task_id": schemas[0].task_id, "ids": [*asked]})
    return {asked[row.id]: _make_event(asked[row.id], to_micros(row.at), row.features, schemas) for row in rows}


def _make_event(
    event_id: str, at: int, features: Mapping[str, Any] | None, schemas: Sequence[Schema]
) -> LoggedEvent | None:
    schema = None if features is None else next((one for one in schemas if _fits(one.task, features)), None)
    if features is None or schema is None:
        return None
    given = {name: features.get(name) for name in (feature.name for feature in schema.task.features)}
    return LoggedEvent(
        event_id,
        schema.schema_id,
        at,
        tuple(nan if (value := given[one.name]) is None else float(value) for one in schema.task.numbers),
        tuple("" if (value := given[one.name]) is None else str(spell_truth(value)) for one in schema.task.categories),
    )


def _fits(task: Task, features: Mapping[str, Any]) -> bool:
    """Whether the features are those of a task: no other name, all required ones, and values of their kinds."""
    texts = {feature.name for feature in task.categories}
    return features.keys() <= {feature.name for feature in task.features} and all(
        feature.optional
        if (value := features.get(feature.name)) is None
        else isinstance(value, str) == (feature.name in texts)
        for feature in task.features
    )


_FIND = text("""
    SELECT id, at, features FROM predictions
    WHERE id = ANY(CAST(:ids AS uuid[])) AND task_id = CAST(:task_id AS integer)
""")
