"""The forms in which a task's rows are stored: each revision of its features can add one.

A fit reads rows of every form that its task can use. A value for which a row's form has no column is missing, as if
the feature were optional. Two rules decide which rows count:

    a row of an earlier form    counts, whatever it lacks: a feature that is new to the task is missing in all of them
    a row of a later form       counts only if it has every feature that the task requires: a version of an earlier
                                schema must not be asked about rows without one

A feature is the same if its name is and its values are stored alike: as a number, or as a text. Rows of another target
never count. If the task lists its classes, rows of other classes do not count either.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql
from sqlalchemy import Connection, select

from contracts.task import Task, is_numeric
from store.database import schemas
from store.tasks.catalog import Schema

# The class that `store.events.erasures` leaves; no real class is empty.
BLANK_CLASS = ""
# The label of a regression that is a number that PostgreSQL can hold: neither infinite, nor too large or small.
NUMBER = r"^[-+]?([0-9]{1,255}(\.[0-9]*)?|[0-9](\.[0-9]*)?[eE][-+]?([0-9]{1,2}|[12][0-9]{2}|30[0-7]))$"


@dataclass(frozen=True)
class Form:
    """Schemas whose rows hold a task's columns at these places, counted from 1; None if they have no such column."""

    schema_ids: tuple[int, ...]
    numbers: tuple[int | None, ...]
    categories: tuple[int | None, ...]
    is_own: bool


@dataclass(frozen=True)
class Forms:
    """Every form that counts for a task; `classes` are those that its rows may have, None if all count."""

    forms: tuple[Form, ...]
    classes: tuple[str, ...] | None

    @property
    def schema_ids(self) -> list[int]:
        return [schema_id for form in self.forms for schema_id in form.schema_ids]

    @property
    def labels(self) -> list[str]:
        """The classes that rows may have, and the blank of erased rows, which count as revisions."""
        return [*(self.classes or ()), BLANK_CLASS]

    def source(self) -> sql.Composable:
        """The source to select from: `events`, with the task's own numbers and categories, missing ones filled in."""
        if all(form.is_own for form in self.forms):
            return sql.SQL("events")
        return sql.SQL(
            "(SELECT task_id, event_id, revision, at, known_at, superseded_at, received_at, erasure_id, schema_id, "
            "label, {} AS numbers, {} AS categories FROM events) AS events"
        ).format(self._arrange("numbers"), self._arrange("categories"))

    def condition(self) -> sql.Composable:
        """The condition under which rows count."""
        allowed = sql.SQL("schema_id = ANY({})").format(sql.Literal(self.schema_ids))
        if self.classes is None:
            return allowed
        return sql.SQL("{} AND label = ANY({})").format(allowed, sql.Literal(self.labels))

    def _arrange(self, column: str) -> sql.Composable:
        cases = [
            sql.SQL("WHEN schema_id = ANY({}) THEN {}").format(
                sql.Literal(list(form.schema_ids)), _array(column, getattr(form, column))
            )
            for form in self.forms
            if not form.is_own
        ]
        return sql.SQL("CASE {} ELSE {} END").format(sql.SQL(" ").join(cases), sql.Identifier(column))


def find_forms(connection: Connection, task_id: int, task: Task) -> Forms:
    """The forms that count for this revision of a task, including its own if any row can have it."""
    rows = connection.execute(
        select(schemas.c.id, schemas.c.revision, schemas.c.row_schema, schemas.c.spec)
        .where(schemas.c.task_id == task_id)
        .order_by(schemas.c.revision)
    ).all()
    own = [row.revision for row in rows if row.row_schema == task.row_schema]
    newest = max(own, default=rows[-1].revision if rows else 0)
    found: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        is_own = row.row_schema == task.row_schema
        if is_own or _counts(task, row.spec, is_later=row.revision > newest):
            found.setdefault((is_own, *find_places(task, row.spec)), []).append(row.id)
    forms = tuple(Form(tuple(ids), numbers, categories, is_own) for (is_own, numbers, categories), ids in found.items())
    return Forms(forms, task.target.classes)


def has_target(task: Task, spec: dict[str, Any]) -> bool:
    """Whether rows of this spec have the target of a task."""
    return (spec["target"]["name"], spec["target"]["kind"]) == (task.target.name, task.target.kind)


def find_target_schemas(connection: Connection, schema: Schema) -> set[int]:
    """The ids of all revisions of a task that have the target of this one."""
    rows = connection.execute(select(schemas.c.id, schemas.c.spec).where(schemas.c.task_id == schema.task_id))
    return {row.id for row in rows if has_target(schema.task, row.spec)}


def _counts(task: Task, spec: dict[str, Any], *, is_later: bool) -> bool:
    if not has_target(task, spec):
        return False
    required = {(one["name"], is_numeric(one["kind"])) for one in spec["features"] if not one.get("optional", False)}
    return not is_later or {(one.name, is_numeric(one.kind)) for one in task.features if not one.optional} <= required


def read_held(connection: Connection, task_id: int, task: Task) -> dict[str, set[bool]]:
    """The features of every stored revision with the target of a task, each with whether it held numbers or texts."""
    held: dict[str, set[bool]] = {}
    for (spec,) in connection.execute(select(schemas.c.spec).where(schemas.c.task_id == task_id)):
        if has_target(task, spec):
            for one in spec["features"]:
                held.setdefault(one["name"], set()).add(is_numeric(one["kind"]))
    return held


def find_places(task: Task, spec: dict[str, Any]) -> tuple[tuple[int | None, ...], ...]:
    """The places, from 1, of a task's numbers and categories in rows of this spec; None for those they lack."""
    places: list[tuple[int | None, ...]] = []
    for stores_numbers, wanted in ((True, task.numbers), (False, task.categories)):
        held = [one["name"] for one in spec["features"] if is_numeric(one["kind"]) is stores_numbers]
        places.append(tuple(held.index(one.name) + 1 if one.name in held else None for one in wanted))
    return tuple(places)


def _array(column: str, places: Sequence[int | None]) -> sql.Composable:
    """A row's values at these places as an array, with missing ones filled in."""
    missing, kind = ("'NaN'", "float8[]") if column == "numbers" else ("''", "text[]")
    values = [
        sql.SQL(missing) if place is None else sql.SQL("{}[{}]").format(sql.Identifier(column), sql.Literal(place))
        for place in places
    ]
    return sql.SQL("ARRAY[{}]::{}").format(sql.SQL(", ").join(values), sql.SQL(kind))
