"""The newest rows of a task as they are stored, to look for likely mistakes of its spec or of its producers.

Labels are read of more rows than features are: a label that stands for a missing value may be rare.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from psycopg import sql
from sqlalchemy import Connection, select, text

from contracts.clock import to_micros
from store.database import events
from store.events.lookups import is_readable
from store.events.row_forms import BLANK_CLASS, Forms, find_forms
from store.events.sealed.newest_rows import Outermost, read_outermost
from store.events.sealed.parquet_rows import StoredRow
from store.tasks.catalog import Schema

T = TypeVar("T")

MAX_ROWS = 2_000
MAX_LABELS = 10_000
_MAX_NAMED = 3


@dataclass(frozen=True)
class Sample:
    """Current rows, the newest first: their labels, and numbers and categories in the order of the task.

    Only the newest of these rows may have numbers and categories. Of a regression, `odd` has the ids and labels of some
    rows whose label is no number; `labels` is without those. `misfits` are the ids of rows that hold more or fewer
    numbers or categories than the task has: a value that is not there is missing, and one too many is left out.
    """

    labels: Sequence[str] = ()
    numbers: Sequence[Sequence[float]] = ()
    categories: Sequence[Sequence[str]] = ()
    num_odd: int = 0
    odd: Sequence[tuple[str, str]] = ()
    misfits: Sequence[str] = ()


def read_sample(connection: Connection, schema: Schema) -> Sample:
    """At most `MAX_ROWS` rows of every form that the task can use, without erased ones; `MAX_LABELS` labels that are
    numbers."""
    forms = find_forms(connection, schema.task_id, schema.task)
    driver = connection.connection.driver_connection
    assert driver is not None
    query = sql.SQL(
        "SELECT label, "
        "CASE WHEN row_number() OVER (ORDER BY at DESC) <= {most_rows} THEN numbers END, "
        "CASE WHEN row_number() OVER (ORDER BY at DESC) <= {most_rows} THEN categories END, "
        "event_id, at "
        "FROM {source} WHERE task_id = {task_id} AND superseded_at IS NULL AND {condition} AND label <> {blank} "
        "AND {is_readable} ORDER BY at DESC LIMIT {most}"
    ).format(
        source=forms.source(),
        task_id=sql.Literal(schema.task_id),
        condition=forms.condition(),
        blank=sql.Literal(BLANK_CLASS),
        is_readable=sql.SQL(is_readable("at")),
        most_rows=sql.Literal(MAX_ROWS),
        most=sql.Literal(_most(schema)),
    )
    with driver.cursor() as cursor:
        rows = cursor.execute(query).fetchall()
    rows = _add_sealed(connection, schema, forms, rows)
    labels, numbers, categories, ids, _ = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    width, num_texts = len(schema.task.numbers), len(schema.task.categories)
    sample = Sample(
        labels,
        [_fit(row, width, math.nan) for row in numbers[:MAX_ROWS]],
        [_fit(row, num_texts, "") for row in categories[:MAX_ROWS]],
        misfits=[
            event_id
            for event_id, held, texts in zip(ids[:MAX_ROWS], numbers, categories, strict=False)
            if (len(held), len(texts)) != (width, num_texts)
        ],
    )
    odd = [] if schema.task.is_classification else [label for label in labels if not _is_number(label)]
    if not odd:
        return sample
    return replace(
        sample,
        labels=[label for label in labels if _is_number(label)],
        num_odd=len(odd),
        odd=_name_odd(connection, schema.task_id, odd),
    )


def _most(schema: Schema) -> int:
    return MAX_ROWS if schema.task.is_classification else MAX_LABELS


def _add_sealed(
    connection: Connection, schema: Schema, forms: Forms, rows: list[tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """The newest rows, of those of the table and sealed ones in the task's own form."""
    most = _most(schema)
    beyond = to_micros(rows[-1][-1]) if len(rows) == most else None
    form_of = {schema_id: form for form in forms.forms for schema_id in form.schema_ids}

    def counts(row: StoredRow) -> bool:
        return row.schema_id in form_of and (forms.classes is None or row.label in forms.labels)

    sealed = read_outermost(connection, schema.task_id, Outermost(most, newest=True, beyond=beyond), counts)
    if not sealed:
        return rows
    own = [
        (
            row.label,
            [math.nan if place is None else row.numbers[place - 1] for place in form_of[row.schema_id].numbers],
            ["" if place is None else row.categories[place - 1] for place in form_of[row.schema_id].categories],
            row.event_id,
            row.at,
        )
        for row in sealed
    ]
    return sorted([*rows, *own], key=lambda row: row[-1], reverse=True)[:most]


def _fit(row: Sequence[T], width: int, missing: T) -> Sequence[T]:
    """A row of this width, as fits read it."""
    return row if len(row) == width else [*row[:width], *[missing] * (width - len(row))]


def _is_number(label: str) -> bool:
    try:
        return math.isfinite(float(label))
    except ValueError:
        return False


def _name_odd(connection: Connection, task_id: int, odd: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Ids and labels of some of the newest rows that have one of these labels."""
    newest = (
        select(events.c.event_id, events.c.label, events.c.at)
        .where(events.c.task_id == task_id, events.c.superseded_at.is_(None), text(is_readable("at")))
        .order_by(events.c.at.desc())
        .limit(MAX_LABELS)
        .subquery()
    )
    query = select(newest.c.event_id, newest.c.label).where(newest.c.label.in_({*odd})).limit(_MAX_NAMED)
    return [(row.event_id, row.label) for row in connection.execute(query)]
