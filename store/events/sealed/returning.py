"""Bringing sealed events back: a statement that is about to touch an event then finds its row in the table."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, text

from contracts.clock import from_micros, to_micros
from store.database import events, taken_rows
from store.events.sealed.manifest import FIND_FILES, SealedFile, find_file, lock_file, mark_stale, read_live
from store.events.sealed.parquet_rows import SealedFiles, StoredRow, micros, read_widths, to_rows

if TYPE_CHECKING:
    import pyarrow as pa


def bring_back(connection: Connection, task_id: int, event_ids: Sequence[str], *, for_good: bool = False) -> int:
    """Store the sealed ones of these events in the table again; returns how many.

    With `for_good` their files are rewritten without them by `store.events.sealed.rewriting`. Files are locked until
    the transaction ends, always in one order. Raises SealedRowsUnreadable.
    """
    wanted = _find_files(connection, task_id, event_ids)
    return sum(
        _take(connection, file, rows, places, for_good=for_good)
        for file, rows, places in _find_rows(connection, wanted, lock=True)
    )


def bring_back_import(connection: Connection, task_id: int, import_id: int, *, most: int) -> int:
    """Do so for good with sealed events of an import, at most this many."""
    num_rows = 0
    for file_id in connection.execute(_OF_IMPORT, {"task_id": task_id, "import_id": import_id}).scalars().all():
        file = lock_file(connection, file_id) if num_rows < most else None
        if file is None:
            continue
        rows = SealedFiles().read(file)
        of_import = rows.column("import_id").to_numpy(zero_copy_only=False) == import_id
        places = np.flatnonzero(of_import & read_live(connection, file))[: most - num_rows]
        num_rows += _take(connection, file, rows, places, for_good=True)
    return num_rows


def find_row(connection: Connection, task_id: int, event_id: str) -> StoredRow | None:
    """The row of a sealed event, which stays where it is."""
    for _, rows, places in _find_rows(connection, _find_files(connection, task_id, [event_id]), lock=False):
        if len(places):
            return to_rows(rows.take(places), read_widths(connection, task_id))[0]
    return None


def _find_files(connection: Connection, task_id: int, event_ids: Sequence[str]) -> dict[int, list[str]]:
    """Id of each file that may hold some of these events -> those."""
    found: dict[int, list[str]] = {}
    for event_id, file_id in connection.execute(FIND_FILES, {"task_id": task_id, "ids": sorted(set(event_ids))}):
        found.setdefault(file_id, []).append(event_id)
    return found


def _find_rows(
    connection: Connection, wanted: dict[int, list[str]], *, lock: bool
) -> Iterator[tuple[SealedFile, "pa.Table", NDArray[np.int64]]]:
    """Each of these files with its rows, and the places of those that are wanted and count."""
    files = SealedFiles()
    for file_id, event_ids in sorted(wanted.items()):
        file = lock_file(connection, file_id) if lock else find_file(connection, file_id)
        if file is None:
            continue
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = files.read(file)
        is_wanted = pc.is_in(rows.column("event_id"), value_set=pa.array(event_ids, pa.string()))
        yield file, rows, np.flatnonzero(is_wanted.to_numpy() & read_live(connection, file))


def _take(
    connection: Connection, file: SealedFile, rows: "pa.Table", places: NDArray[np.int64], *, for_good: bool
) -> int:
    """Store the rows at these places, which count, in the table of events; they count in the file no more."""
    if not len(places):
        return 0
    taken = to_rows(rows.take(places), read_widths(connection, file.task_id))
    connection.execute(taken_rows.insert(), [{"file_id": file.file_id, "place": place} for place in places.tolist()])
    connection.execute(
        events.insert(),
        [
            {
                "task_id": file.task_id,
                "event_id": row.event_id,
                "revision": 1,
                "at": row.at,
                "known_at": row.known_at,
                "received_at": row.received_at,
                "schema_id": row.schema_id,
                "numbers": list(row.numbers),
                "categories": list(row.categories),
                "label": row.label,
                "import_id": row.import_id,
            }
            for row in taken
        ],
    )
    # Triggers have counted them as new.
    connection.execute(_UNCOUNT, {"task_id": file.task_id, "count": len(taken)})
    _tell_windows(connection, file, rows, places)
    imported: dict[int, int] = {}
    for row in taken:
        if row.import_id is not None:
            imported[row.import_id] = imported.get(row.import_id, 0) + 1
    for import_id, count in imported.items():
        connection.execute(_LESS_OF_IMPORT, {"file_id": file.file_id, "import_id": import_id, "count": count})
    connection.execute(_NO_MORE_OF_IMPORT, {"file_id": file.file_id})
    if for_good:
        mark_stale(connection, [file.file_id])
    return len(taken)


def _tell_windows(connection: Connection, file: SealedFile, rows: "pa.Table", places: NDArray[np.int64]) -> None:
    """Bring the windows of the taken rows up to date with what the file still holds of each."""
    at, received_at, live = micros(rows, "at"), micros(rows, "received_at"), read_live(connection, file)
    moments = {"file_id": file.file_id, "moments": [from_micros(moment) for moment in np.unique(at[places]).tolist()]}
    for start, first_at, last_at in connection.execute(_WINDOWS_OF, moments).all():
        left = live & (at >= to_micros(first_at)) & (at <= to_micros(last_at))
        key = {"file_id": file.file_id, "start": start}
        if not left.any():
            connection.execute(_DELETE_WINDOW, key)
            continue
        given = {
            "first_at": from_micros(int(at[left].min())),
            "last_at": from_micros(int(at[left].max())),
            "last_received_at": from_micros(int(received_at[left].max())),
            "num_rows": int(left.sum()),
        }
        connection.execute(_UPDATE_WINDOW, key | given)


_OF_IMPORT = text("""
    SELECT file_id FROM sealed_imports WHERE task_id = :task_id AND import_id = :import_id AND num_rows > 0
    ORDER BY file_id
""")
_UNCOUNT = text("INSERT INTO row_counts (task_id, num_events, num_revisions) VALUES (:task_id, -:count, -:count)")
_LESS_OF_IMPORT = text(
    "UPDATE sealed_imports SET num_rows = num_rows - :count WHERE file_id = :file_id AND import_id = :import_id"
)
_NO_MORE_OF_IMPORT = text("DELETE FROM sealed_imports WHERE file_id = :file_id AND num_rows <= 0")
_WINDOWS_OF = text("""
    SELECT DISTINCT start, first_at, last_at FROM sealed_windows JOIN unnest(CAST(:moments AS timestamptz[])) AS moment
        ON moment BETWEEN first_at AND last_at
    WHERE file_id = :file_id
""")
_DELETE_WINDOW = text("DELETE FROM sealed_windows WHERE file_id = :file_id AND start = :start")
_UPDATE_WINDOW = text("""
    UPDATE sealed_windows
    SET first_at = :first_at, last_at = :last_at, last_received_at = :last_received_at, num_rows = :num_rows
    WHERE file_id = :file_id AND start = :start
""")
