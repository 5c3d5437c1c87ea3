"""The newest rows of a task as they are stored, to look for likely mistakes of its spec or of its producers.

Labels are read of more rows than features are: a label that stands for a missing value may be rare.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql
from sqlalchemy import Connection

from store.events.row_forms import BLANK_CLASS, find_forms
from store.tasks.catalog import Schema

MAX_ROWS = 2_000
MAX_LABELS = 10_000


@dataclass(frozen=True)
class Sample:
    """Current rows, the newest first: their labels, and numbers and categories in the order of the task.

    Only the newest of these rows may have numbers and categories.
    """

    labels: Sequence[str] = ()
    numbers: Sequence[Sequence[float]] = ()
    categories: Sequence[Sequence[str]] = ()


def read_sample(connection: Connection, schema: Schema) -> Sample:
    """At most `MAX_ROWS` rows of every form that the task can use, without erased ones; `MAX_LABELS` labels that are
    numbers."""
    forms = find_forms(connection, schema.task_id, schema.task)
    driver = connection.connection.driver_connection
    assert driver is not None
    query = sql.SQL(
        "SELECT label, "
        "CASE WHEN row_number() OVER (ORDER BY at DESC) <= {most_rows} THEN numbers END, "
        "CASE WHEN row_number() OVER (ORDER BY at DESC) <= {most_rows} THEN categories END "
        "FROM {source} WHERE task_id = {task_id} AND superseded_at IS NULL AND {condition} AND label <> {blank} "
        "ORDER BY at DESC LIMIT {most}"
    ).format(
        source=forms.source(),
        task_id=sql.Literal(schema.task_id),
        condition=forms.condition(),
        blank=sql.Literal(BLANK_CLASS),
        most_rows=sql.Literal(MAX_ROWS),
        most=sql.Literal(MAX_ROWS if schema.task.is_classification else MAX_LABELS),
    )
    with driver.cursor() as cursor:
        rows = cursor.execute(query).fetchall()
    labels, numbers, categories = zip(*rows, strict=True) if rows else ((), (), ())
    return Sample(labels, numbers[:MAX_ROWS], categories[:MAX_ROWS])
