"""Stored events, one or a page of them, with the names of their forms: the present revision, or what is there of one
without a label."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from math import isfinite, isnan, nan
from typing import Any

from sqlalchemy import Connection, select, text

from contracts.clock import from_micros
from contracts.errors import NotFound
from contracts.task import is_numeric
from store.database import schemas
from store.events.lookups import has_given_id, is_readable
from store.events.sealed.newest_rows import read_page
from store.events.sealed.parquet_rows import StoredRow
from store.events.sealed.returning import find_row

Value = float | int | bool | str | None


@dataclass(frozen=True)
class StoredEvent:
    """The present revision of an event. Values have the kinds of the schema that it came with; None is missing.

    An event without a label has revision 0, and each correction takes one away.
    """

    event_id: str
    revision: int
    at: datetime
    known_at: datetime | None
    received_at: datetime
    label: str | float | None
    features: dict[str, Value]
    import_id: int | None


def find_event(connection: Connection, task_id: int, event_id: str) -> StoredEvent:
    """Raises NotFound, which says so if the event is erased."""
    # PostgreSQL takes no NUL, and ids of tombstones begin with another control character.
    row: Any = None
    if event_id.isprintable():
        key = {"task_id": task_id, "event_id": event_id}
        row = (
            connection.execute(_FIND, key).one_or_none()
            or _find_sealed(connection, task_id, event_id)
            or connection.execute(_FIND_UNLABELLED, key).one_or_none()
        )
    if row is None:
        raise NotFound(f"There is no event with the id {event_id!r}.")
    if row.revision is None:
        raise NotFound("This event is erased: only its id is stored.")
    return _read_row(row)


def list_events(
    connection: Connection, task_id: int, *, first: int, last: int, after: str | None = None, limit: int
) -> list[StoredEvent]:
    """At most `limit` labelled events dated from `first` to `last` (microseconds), in their present revisions.

    The newest comes first, and of one moment the greatest id. They come after the event of the id `after`, if it is
    given. Raises NotFound if it is not stored.
    """
    given = {"task_id": task_id, "first": from_micros(first), "last": from_micros(last), "limit": limit}
    before = None if after is None else (find_event(connection, task_id, after).at, after)
    if before is None:
        rows: list[Any] = [*connection.execute(_LIST, given)]
    else:
        rows = [*connection.execute(_LIST_AFTER, {**given, "before_at": before[0], "before_id": before[1]})]
    sealed = read_page(connection, task_id, first, last, before=before, count=limit)
    if sealed:
        found = select(schemas.c.id, schemas.c.spec).where(schemas.c.id.in_({row.schema_id for row in sealed}))
        specs = {row.id: row.spec for row in connection.execute(found)}
        rows += [_Sealed(**vars(row), spec=specs[row.schema_id]) for row in sealed]
        rows.sort(key=lambda row: (row.at, row.event_id), reverse=True)
    return [*map(_read_row, rows[:limit])]


def _read_row(row: Any) -> StoredEvent:
    is_regression = row.spec["target"]["kind"] == "regression"
    return StoredEvent(
        row.event_id,
        row.revision,
        row.at,
        row.known_at,
        row.received_at,
        read_label(row.label) if is_regression and row.label is not None else row.label,
        name_values([(one["name"], one["kind"]) for one in row.spec["features"]], row.numbers, row.categories),
        row.import_id,
    )


@dataclass(frozen=True)
class _Sealed(StoredRow):
    """A sealed row as the statement returns one of the table."""

    spec: dict[str, Any]
    revision: int = 1


def _find_sealed(connection: Connection, task_id: int, event_id: str) -> _Sealed | None:
    row = find_row(connection, task_id, event_id)
    if row is None:
        return None
    spec = connection.execute(select(schemas.c.spec).where(schemas.c.id == row.schema_id)).scalar_one()
    return _Sealed(**vars(row), spec=spec)


def name_values(
    features: Iterable[tuple[str, str]], numbers: Iterable[float], categories: Iterable[str]
) -> dict[str, Value]:
    """The values of a row by the names of its features, as its sender wrote them; None is missing."""
    number, category = iter(numbers), iter(categories)
    return {
        name: _number(kind, next(number, nan)) if is_numeric(kind) else next(category, None) or None
        for name, kind in features
    }


def read_label(stored: str) -> str | float:
    """The label of a regression as a number; as text if it is no finite number, and was written past the API."""
    try:
        number = float(stored)
    except ValueError:
        return stored
    return number if isfinite(number) else stored


def _number(kind: str, stored: float) -> Any:
    """A number as its sender wrote it; None if it is missing."""
    if isnan(stored):
        return None
    return {"boolean": bool, "integer": int}.get(kind, float)(stored)


_FIND = text(f"""
    SELECT first.event_id, current.revision, current.at, current.known_at, current.received_at, current.label,
           current.numbers, current.categories, schemas.spec, first.import_id
    FROM events AS first
    LEFT JOIN (events AS current JOIN schemas ON schemas.id = current.schema_id)
        ON {has_given_id("current")} AND current.superseded_at IS NULL
    WHERE {has_given_id("first")} AND first.revision = 1
""")  # noqa: S608 our own fragment

_FIND_UNLABELLED = text(f"""
    SELECT kept.event_id, -kept.num_corrections AS revision, kept.at, kept.known_at, kept.received_at, kept.label,
           kept.numbers, kept.categories, schemas.spec, kept.import_id
    FROM incomplete_events AS kept JOIN schemas ON schemas.id = kept.schema_id
    WHERE {has_given_id("kept")} AND kept.label IS NULL
""")  # noqa: S608 our own fragment


def _listing(condition: str) -> str:
    """A statement for a page of events that meet a condition."""
    return f"""
        SELECT current.event_id, current.revision, current.at, current.known_at, current.received_at, current.label,
               current.numbers, current.categories, schemas.spec,
               (SELECT first.import_id FROM events AS first WHERE first.task_id = current.task_id
                AND first.event_id = current.event_id AND first.revision = 1) AS import_id
        FROM (
            SELECT * FROM events WHERE task_id = :task_id AND superseded_at IS NULL AND at BETWEEN :first AND :last
                AND {is_readable("known_at")} AND {is_readable("received_at")} AND {condition}
            ORDER BY at DESC, event_id COLLATE "C" DESC LIMIT :limit
        ) AS current JOIN schemas ON schemas.id = current.schema_id
        ORDER BY current.at DESC, current.event_id COLLATE "C" DESC
    """  # noqa: S608 our own fragment


_LIST = text(_listing("true"))
_LIST_AFTER = text(_listing('(at, event_id COLLATE "C") < (:before_at, :before_id)'))
