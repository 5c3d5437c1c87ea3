"""The sealed rows of imports: how many there are, and when they happened."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from store.database import sealed_imports
from store.events.sealed.manifest import find_file, list_files, read_live
from store.events.sealed.parquet_rows import SealedFiles, micros


def count_sealed_imports(connection: Connection, task_id: int, import_ids: Sequence[int]) -> dict[int, int]:
    """The number of sealed rows of each of these imports that has any."""
    rows = connection.execute(
        select(sealed_imports.c.import_id, func.sum(sealed_imports.c.num_rows))
        .where(sealed_imports.c.task_id == task_id, sealed_imports.c.import_id.in_(import_ids))
        .group_by(sealed_imports.c.import_id)
    )
    return {import_id: int(count) for import_id, count in rows}


def read_sealed_import(
    connection: Connection, task_id: int, import_id: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """`at`, `known_at` and `received_at` of the rows of an import, for each file that has any (microseconds)."""
    of_import = select(sealed_imports.c.file_id).where(
        sealed_imports.c.task_id == task_id, sealed_imports.c.import_id == import_id
    )
    found = []
    for file_id in connection.execute(of_import).scalars().all():
        file = find_file(connection, file_id)
        if file is not None:
            table = SealedFiles().read(file, ["at", "known_at", "received_at", "import_id"])
            rows = (table.column("import_id").to_numpy(zero_copy_only=False) == import_id) & read_live(connection, file)
            at, known_at, received_at = (micros(table, name)[rows] for name in ("at", "known_at", "received_at"))
            found.append((at, known_at, received_at))
    return found


def find_newest_sealed_import(connection: Connection, task_id: int, first: int, end: int) -> int | None:
    """The newest import with sealed rows of `[first, end)` (microseconds)."""
    newest: list[int] = []
    for file in list_files(connection, task_id, first=first, end=end):
        table = SealedFiles().read(file, ["at", "import_id"])
        at, import_ids = micros(table, "at"), table.column("import_id").to_numpy(zero_copy_only=False)
        rows = (at >= first) & (at < end) & read_live(connection, file) & ~np.isnan(import_ids.astype(np.float64))
        newest += [int(import_ids[rows].max())] if rows.any() else []
    return max(newest, default=None)
