"""The newest rows of a task as they are stored, to look for likely mistakes of its spec or of its producers."""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql
from sqlalchemy import Connection

from store.events.row_forms import BLANK_CLASS, find_forms
from store.tasks.catalog import Schema

MAX_ROWS = 2_000


@dataclass(frozen=True)
class Sample:
    """Current rows, the newest first: their labels, and numbers and categories in the order of the task."""

    labels: Sequence[str] = ()
    numbers: Sequence[Sequence[float]] = ()
    categories: Sequence[Sequence[str]] = ()


def read_sample(connection: Connection, schema: Schema) -> Sample:
    """At most `MAX_ROWS` rows of every form that the task can use, without erased ones."""
    forms = find_forms(connection, schema.task_id, schema.task)
    driver = connection.connection.driver_connection
    assert driver is not None
    query = sql.SQL(
        "SELECT label, numbers, categories FROM {} WHERE task_id = {} AND superseded_at IS NULL AND {} AND label <> {} "
        "ORDER BY at DESC LIMIT {}"
    ).format(
        forms.source(),
        sql.Literal(schema.task_id),
        forms.condition(),
        sql.Literal(BLANK_CLASS),
        sql.Literal(MAX_ROWS),
    )
    with driver.cursor() as cursor:
        rows = cursor.execute(query).fetchall()
    labels, numbers, categories = zip(*rows, strict=True) if rows else ((), (), ())
    return Sample(labels, numbers, categories)
