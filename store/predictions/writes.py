"""Store rows of the log: many in one transaction, each once, and none of a task that is gone."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import psycopg
from sqlalchemy import Connection, Engine, text

from store.predictions.buckets import bucket_of, note_touched
from store.predictions.rows import COLUMNS, HEADER, TRAILER, LogRow, split_rows

_COPY = f"COPY predictions ({', '.join(COLUMNS)}) FROM STDIN (FORMAT BINARY)"
_UNIQUE_VIOLATION = "23505"
# A day's partition was attached while rows of that day were on their way to the default one.
_CHECK_VIOLATION = "23514"
_NUM_TRIES = 5
# The class of SQLSTATE codes of values that PostgreSQL cannot hold.
_DATA_ERROR = "22"


@dataclass(frozen=True)
class Stored:
    """How many rows are in the log now, how many have no task any more, and how many PostgreSQL cannot hold."""

    num_stored: int
    num_without_task: int = 0
    num_refused: int = 0

    def __add__(self, other: "Stored") -> "Stored":
        return Stored(
            self.num_stored + other.num_stored,
            self.num_without_task + other.num_without_task,
            self.num_refused + other.num_refused,
        )


def store_rows(
    engine: Engine,
    rows: bytes,
    num_rows: int,
    task_ids: Collection[int],
    touched: Collection[tuple[int, str]] | None = None,
) -> Stored:
    """Store the rows of a buffer, of which these tasks are. Rows that are stored already count as stored.

    `touched` are the tasks and buckets of the rows. Without them, and if something is wrong with some rows, all are
    read one by one. Raises SQLAlchemyError or psycopg.Error in an outage: nothing is stored then, or everything, so
    repeat it.
    """
    if touched is None:
        touched = _find_touched(split_rows(rows))
    for tries_left in reversed(range(_NUM_TRIES)):
        try:
            with engine.begin() as connection:
                if _lock_tasks(connection, task_ids) != set(task_ids):
                    break
                _copy(connection, [rows])
                note_touched(connection, touched)
                return Stored(num_rows)
        except psycopg.Error as error:
            if error.sqlstate == _CHECK_VIOLATION and tries_left:
                continue
            if not _is_about_rows(error):
                raise
            break
    return _store_each(engine, rows, [*split_rows(rows)])


def _store_each(engine: Engine, rows: bytes, found: Sequence[LogRow]) -> Stored:
    """Store what can be stored of these rows: if PostgreSQL cannot hold some, the others without them."""
    if not found:
        return Stored(0)
    try:
        with engine.begin() as connection:
            alive = _lock_tasks(connection, {row.task_id for row in found})
            known = {*connection.execute(_KNOWN, {"ids": [row.prediction_id for row in found]}).scalars()}
            kept = [row for row in found if row.task_id in alive]
            _copy(connection, [rows[row.begin : row.end] for row in kept if row.prediction_id not in known])
            note_touched(connection, _find_touched(kept))
            return Stored(len(kept), len(found) - len(kept))
    except psycopg.Error as error:
        if not _is_about_rows(error):
            raise
    if len(found) == 1:
        return Stored(0, num_refused=1)
    middle = len(found) // 2
    return _store_each(engine, rows, found[:middle]) + _store_each(engine, rows, found[middle:])


def _find_touched(found: Iterable[LogRow]) -> set[tuple[int, str]]:
    return {(row.task_id, bucket_of(row.prediction_id)) for row in found}


def _is_about_rows(error: psycopg.Error) -> bool:
    state = error.sqlstate or ""
    return state == _UNIQUE_VIOLATION or state.startswith(_DATA_ERROR)


def _lock_tasks(connection: Connection, task_ids: Collection[int]) -> set[int]:
    """Those of these tasks that are not deleted; they stay until the transaction ends, as with a foreign key."""
    return {*connection.execute(_LOCK, {"ids": sorted(task_ids)}).scalars()}


def _copy(connection: Connection, pieces: Sequence[bytes]) -> None:
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    with driver.cursor() as cursor, cursor.copy(_COPY) as copy:
        copy.write(b"".join([HEADER, *pieces, TRAILER]))


_LOCK = text("""
    SELECT id FROM tasks WHERE id = ANY(CAST(:ids AS integer[])) AND lifecycle <> 'deleting'
    ORDER BY id FOR KEY SHARE
""")

_KNOWN = text("SELECT id FROM predictions WHERE id = ANY(CAST(:ids AS uuid[]))")
