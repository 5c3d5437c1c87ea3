"""Which windows hold rows as of a cutoff, found without reading the rows.

Each step asks the index of task and moment for the newest matching row before the window found last. So the cost
follows the number of windows, not of events.
"""

from datetime import datetime

from psycopg import sql
from sqlalchemy import Connection

from contracts.clock import from_micros, to_micros
from contracts.task import Task
from store.database import FIRST_MOMENT
from store.events.reading.sealed_columns import Span, count_rows
from store.events.reading.sealed_columns import find_newest_moments as find_newest_sealed_moments
from store.events.row_forms import find_forms
from store.events.tombstones import window_grid


def find_windows(connection: Connection, task_id: int, task: Task, cutoff: int, *, most: int) -> list[int]:
    """The starts of the newest windows with rows that are current as of `cutoff`, newest first, at most `most`.

    Moments in microseconds. The rows are those of `store.events.reading.columns.read_events`.
    """
    query = _WALK.format(most=sql.Literal(most), newest=_newest(connection, task_id, task, cutoff), **_grid(task))
    found = [to_micros(start) for (start,) in _fetch(connection, query)]
    sealed = count_rows(connection, task_id, task, find_forms(connection, task_id, task), Span(cutoff))
    return sorted({*found, *sealed}, reverse=True)[:most] if sealed else found


def find_newest_moments(connection: Connection, task_id: int, task: Task, cutoff: int, *, most: int) -> list[int]:
    """The moments of the newest rows that are current as of `cutoff`, newest first, at most `most` (microseconds)."""
    query = sql.SQL("SELECT at FROM events WHERE {} ORDER BY at DESC LIMIT {}").format(
        _known(connection, task_id, task, cutoff), sql.Literal(most)
    )
    found = [to_micros(at) for (at,) in _fetch(connection, query)]
    forms = find_forms(connection, task_id, task)
    after = found[-1] if len(found) == most else None
    sealed = find_newest_sealed_moments(connection, task_id, forms, Span(cutoff), most=most, after=after)
    return sorted([*found, *sealed], reverse=True)[:most] if sealed else found


def _newest(connection: Connection, task_id: int, task: Task, cutoff: int) -> sql.Composed:
    return sql.SQL("SELECT at FROM events WHERE {} AND at < below ORDER BY at DESC LIMIT 1").format(
        _known(connection, task_id, task, cutoff)
    )


def _known(connection: Connection, task_id: int, task: Task, cutoff: int) -> sql.Composed:
    return sql.SQL(
        "task_id = {task_id} AND at >= {first} AND at < {cutoff} AND known_at <= {cutoff} "
        "AND (superseded_at IS NULL OR superseded_at > {cutoff}) AND {counts}"
    ).format(
        task_id=sql.Literal(task_id),
        first=sql.Literal(FIRST_MOMENT),
        cutoff=sql.Literal(from_micros(cutoff)),
        counts=find_forms(connection, task_id, task).condition(),
    )


def _grid(task: Task) -> dict[str, sql.Literal]:
    return {name: sql.Literal(value) for name, value in window_grid(task).items()}


def _fetch(connection: Connection, query: sql.Composed) -> list[tuple[datetime]]:
    driver = connection.connection.driver_connection
    assert driver is not None
    with driver.cursor() as cursor:
        return list(cursor.execute(query))


_WALK = sql.SQL("""
    WITH RECURSIVE walk(below, number) AS (
        SELECT 'infinity'::timestamptz, 0
        UNION ALL
        SELECT date_bin({window}, found.at, {origin}), number + 1
        FROM walk, LATERAL ({newest}) AS found
        WHERE number < {most}
    )
    SELECT below FROM walk WHERE number > 0 ORDER BY number
""")
