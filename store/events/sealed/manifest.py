"""Which files of sealed events a task has, what they hold, and which of their rows count.

A row counts if its place in the file is before `num_moved`, as it is in the table of events until then, and if it was
not taken back. Both change in the transaction that moves the row, so every snapshot holds each row exactly once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, func, insert, select, text, update

from contracts.clock import from_micros, to_micros
from store.database import sealed_files, sealed_objects, sealed_windows, taken_rows
from store.errors import SealedRowsUnreadable

# The lowest bits of an entry of `sealed_ids` are the number of a file.
MAX_FILES = 2**23


@dataclass(frozen=True)
class SealedFile:
    """One file; moments in microseconds. `labels` are all that occur in it, None if they are many."""

    file_id: int
    task_id: int
    number: int
    store: str
    path: str
    digest: str
    first_at: int
    last_at: int
    last_known_at: int
    num_rows: int
    num_moved: int
    schema_ids: frozenset[int]
    labels: frozenset[str] | None
    is_stale: bool

    @property
    def address(self) -> str:
        """Where the file is, for people."""
        return f"{self.store.partition('?')[0]}/{self.path}"


@dataclass(frozen=True)
class SealedWindow:
    """What a file holds of one window; moments in microseconds."""

    file_id: int
    first_at: int
    last_at: int
    num_rows: int


@dataclass(frozen=True)
class SealedTotals:
    """The files of a task and the rows in them; `troubles` say which cannot be read, and why."""

    num_files: int
    num_rows: int
    until: int | None
    troubles: Sequence[str] = ()


def list_files(
    connection: Connection, task_id: int, *, first: int | None = None, end: int | None = None
) -> list[SealedFile]:
    """The files of a task, the oldest first; only those that may hold rows of `[first, end)` (microseconds)."""
    query = select(*_COLUMNS).where(sealed_files.c.task_id == task_id)
    if first is not None:
        query = query.where(sealed_files.c.last_at >= from_micros(first))
    if end is not None:
        query = query.where(sealed_files.c.first_at < from_micros(end))
    return [_file(row) for row in connection.execute(query.order_by(sealed_files.c.first_at, sealed_files.c.number))]


def find_file(connection: Connection, file_id: int) -> SealedFile | None:
    """A file by its id; None if it is gone."""
    row = connection.execute(select(*_COLUMNS).where(sealed_files.c.id == file_id)).one_or_none()
    return None if row is None else _file(row)


def lock_file(connection: Connection, file_id: int) -> SealedFile | None:
    """A file as it is now, until this transaction ends; None if it is gone."""
    query = select(*_COLUMNS).where(sealed_files.c.id == file_id).with_for_update()
    row = connection.execute(query).one_or_none()
    return None if row is None else _file(row)


def read_live(connection: Connection, file: SealedFile) -> NDArray[np.bool_]:
    """Which rows of a file count, by their place `(num_rows,)`."""
    live = np.arange(file.num_rows) < file.num_moved
    taken = connection.execute(select(taken_rows.c.place).where(taken_rows.c.file_id == file.file_id)).scalars().all()
    live[np.array(taken, np.int64)] = False
    return live


def list_windows(connection: Connection, task_id: int) -> list[SealedWindow]:
    """What the files of a task hold of each window, the oldest window first."""
    return [
        SealedWindow(file_id, to_micros(first_at), to_micros(last_at), num_rows)
        for file_id, first_at, last_at, num_rows in connection.execute(
            select(
                sealed_windows.c.file_id, sealed_windows.c.first_at, sealed_windows.c.last_at, sealed_windows.c.num_rows
            )
            .where(sealed_windows.c.task_id == task_id)
            .order_by(sealed_windows.c.first_at)
        )
    ]


def read_totals(connection: Connection, task_id: int) -> SealedTotals:
    """How much of a task is sealed."""
    num_files, until, troubles = connection.execute(
        select(
            func.count(),
            func.max(sealed_files.c.last_at),
            func.array_remove(func.array_agg(sealed_files.c.trouble), None),
        ).where(sealed_files.c.task_id == task_id)
    ).one()
    num_rows = connection.execute(
        select(func.coalesce(func.sum(sealed_windows.c.num_rows), 0)).where(sealed_windows.c.task_id == task_id)
    ).scalar_one()
    return SealedTotals(num_files, int(num_rows), None if until is None else to_micros(until), troubles or ())


def add_file(connection: Connection, values: dict[str, Any], now: datetime) -> SealedFile:
    """Name a file whose rows are all still in the table of events."""
    row = connection.execute(insert(sealed_files).values(**values, sealed_at=now).returning(*_COLUMNS)).one()
    return _file(row)


def find_next_file(connection: Connection, after: int) -> SealedFile | None:
    """The first file of any task with an id after this one."""
    query = select(*_COLUMNS).where(sealed_files.c.id > after).order_by(sealed_files.c.id).limit(1)
    row = connection.execute(query).one_or_none()
    return None if row is None else _file(row)


def note_trouble(connection: Connection, file: SealedFile, trouble: str | None) -> bool:
    """Record why a file cannot be read, or that it can; returns whether that is a new trouble.

    Nothing is recorded of a file that was rewritten meanwhile.
    """
    is_it = (sealed_files.c.id == file.file_id, sealed_files.c.path == file.path)
    changed = sealed_files.c.trouble.is_distinct_from(trouble)
    count = connection.execute(update(sealed_files).where(*is_it, changed).values(trouble=trouble)).rowcount
    return bool(count) and trouble is not None


def note_address(connection: Connection, file: SealedFile, store: str) -> None:
    """Record that a file is in another store now, under the same path."""
    is_it = (sealed_files.c.id == file.file_id, sealed_files.c.path == file.path)
    connection.execute(update(sealed_files).where(*is_it).values(store=store, trouble=None))
    connection.execute(update(sealed_objects).where(sealed_objects.c.path == file.path).values(store=store))


def mark_stale(connection: Connection, file_ids: Sequence[int]) -> None:
    """Let rows that were taken from these files go for good."""
    connection.execute(update(sealed_files).where(sealed_files.c.id.in_(file_ids)).values(is_stale=True))


def find_newest_sealed(connection: Connection, task_id: int, before: int | None) -> int | None:
    """When the newest sealed event before a moment happened, by windows that end before it; None if none did."""
    query = select(func.max(sealed_windows.c.last_at)).where(sealed_windows.c.task_id == task_id)
    if before is not None:
        query = query.where(sealed_windows.c.last_at < from_micros(before))
    newest = connection.execute(query).scalar_one()
    return None if newest is None else to_micros(newest)


def find_oldest_sealed(connection: Connection, task_id: int, since: int | None, until: int) -> int | None:
    """When the oldest sealed event of the windows that begin in `[since, until)` happened; None if there is none."""
    query = select(func.min(sealed_windows.c.first_at)).where(
        sealed_windows.c.task_id == task_id, sealed_windows.c.first_at < from_micros(until)
    )
    if since is not None:
        query = query.where(sealed_windows.c.first_at >= from_micros(since))
    oldest = connection.execute(query).scalar_one()
    return None if oldest is None else to_micros(oldest)


def unreadable(file: SealedFile, reason: str) -> SealedRowsUnreadable:
    """The error of a file that cannot be read."""
    return SealedRowsUnreadable(
        f"Sealed events cannot be read from {file.address}: {reason.rstrip('.')}. Put the file back from a backup of "
        "the object store; see docs/how-to/retention.md."
    )


def _file(row: Row[Any]) -> SealedFile:
    return SealedFile(
        row.id,
        row.task_id,
        row.number,
        row.store,
        row.path,
        row.digest,
        to_micros(row.first_at),
        to_micros(row.last_at),
        to_micros(row.last_known_at),
        row.num_rows,
        row.num_moved,
        frozenset(row.schema_ids),
        None if row.labels is None else frozenset(row.labels),
        row.is_stale,
    )


_COLUMNS = tuple(column for column in sealed_files.c if column.name not in ("trouble", "sealed_at"))

# Add what has just left the table of events, or bring the rows of a window up to date: none removes it.
ADD_IDS = text("""
    INSERT INTO sealed_ids (task_id, bucket, entries)
    SELECT :task_id, CAST(hash >> 40 AS integer), array_agg((hash & 1099511627775) << 23 | :number)
    FROM unnest(CAST(:ids AS text[])) AS given(id), hash_event_id(given.id) AS hash
    GROUP BY 2 ORDER BY 2
    ON CONFLICT (task_id, bucket) DO UPDATE SET entries = sealed_ids.entries || excluded.entries
""")
REMOVE_IDS = text("""
    WITH gone AS (
        SELECT CAST(hash >> 40 AS integer) AS bucket, array_agg((hash & 1099511627775) << 23 | :number) AS entries
        FROM unnest(CAST(:ids AS text[])) AS given(id), hash_event_id(given.id) AS hash
        GROUP BY 1
    ), locked AS (
        SELECT sealed_ids.bucket FROM sealed_ids JOIN gone USING (bucket)
        WHERE sealed_ids.task_id = :task_id ORDER BY sealed_ids.bucket FOR UPDATE OF sealed_ids
    )
    UPDATE sealed_ids SET entries = ARRAY(SELECT unnest(sealed_ids.entries) EXCEPT ALL SELECT unnest(gone.entries))
    FROM gone JOIN locked USING (bucket)
    WHERE sealed_ids.task_id = :task_id AND sealed_ids.bucket = gone.bucket
""")
FIND_FILES = text("""
    SELECT given.id, sealed_files.id AS file_id
    FROM unnest(CAST(:ids AS text[])) AS given(id), hash_event_id(given.id) AS hash
    JOIN sealed_ids ON sealed_ids.task_id = :task_id AND sealed_ids.bucket = CAST(hash >> 40 AS integer)
    CROSS JOIN unnest(sealed_ids.entries) AS entry
    JOIN sealed_files ON sealed_files.task_id = :task_id AND sealed_files.number = entry & 8388607
    WHERE entry >> 23 = hash & 1099511627775
    ORDER BY sealed_files.id
""")
