"""Files without what was erased or retracted, and no files that nothing names.

A file is announced in a transaction of its own before it is written, so one that was written in vain is found and
deleted. The former file goes after the transaction that names the new one.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import uuid4

import structlog
from sqlalchemy import Connection, Engine, delete, insert, select, text, update

from store.database import sealed_files, sealed_objects, taken_rows
from store.errors import ObjectStoreAway, SealedRowsUnreadable
from store.events.sealed.manifest import REMOVE_IDS, SealedFile, lock_file, read_live
from store.events.sealed.parquet_rows import SealedFiles, pack

T = TypeVar("T")
# Runs a function of a `Connection` in a transaction of its own, and returns its result.
Transact = Callable[[Callable[[Connection], Any]], Any]

log = structlog.get_logger(__name__)

# Rows of a row group. Files are read as a whole, so it bounds only what a writer holds.
ROWS_PER_GROUP = 20_000
# A writer that was stopped for longer than this between its file and the row that names it finds the file gone.
GRACE = timedelta(hours=1)
FOLDER = "sealed"


def transact(engine: Engine, work: Callable[[Connection], T]) -> T:
    """The result of `work`, after commit."""
    with engine.begin() as connection:
        return work(connection)


def announce(connection: Connection, store: str, now: datetime) -> str:
    """The path of a file that is about to be written."""
    path = f"{FOLDER}/{uuid4().hex}.parquet"
    connection.execute(insert(sealed_objects).values(path=path, store=store, put_at=now))
    return path


def list_stale(connection: Connection, task_id: int | None = None) -> list[int]:
    """The files, of one task or of all, that hold rows which were erased or retracted."""
    query = select(sealed_files.c.id).where(sealed_files.c.is_stale)
    if task_id is not None:
        query = query.where(sealed_files.c.task_id == task_id)
    return list(connection.execute(query.order_by(sealed_files.c.id)).scalars())


def rewrite_stale(run: Transact, file_ids: Sequence[int], now: datetime) -> int:
    """Rewrite these files without the rows that were taken from them; returns how many were.

    A file that cannot be read or written stays marked: the trainer tries again.
    """
    return sum(_rewrite(run, file_id, now) for file_id in file_ids)


def _rewrite(run: Transact, file_id: int, now: datetime) -> bool:
    files, former = SealedFiles(), list[SealedFile]()

    def begin(connection: Connection) -> str | None:
        file = lock_file(connection, file_id)
        return None if file is None or not file.is_stale else announce(connection, file.store, now)

    path = run(begin)
    if path is None:
        return False

    def rewrite(connection: Connection) -> None:
        former.clear()  # of an attempt that was rolled back
        file = lock_file(connection, file_id)
        if file is None or not file.is_stale:
            return
        rows = files.read(file)
        live = read_live(connection, file)
        kept, gone = rows.filter(live), rows.filter(~live)
        connection.execute(delete(taken_rows).where(taken_rows.c.file_id == file_id))
        ids = gone.column("event_id").to_pylist()
        connection.execute(REMOVE_IDS, {"task_id": file.task_id, "number": file.number, "ids": ids})
        former.append(file)
        if not kept.num_rows:
            connection.execute(delete(sealed_files).where(sealed_files.c.id == file_id))
            return
        content = pack(kept.slice(start, ROWS_PER_GROUP) for start in range(0, kept.num_rows, ROWS_PER_GROUP))
        connection.execute(
            update(sealed_files)
            .where(sealed_files.c.id == file_id)
            .values(
                path=path,
                digest=files.write(file.store, str(path), content),
                num_rows=kept.num_rows,
                num_moved=kept.num_rows,
                is_stale=False,
                trouble=None,
            )
        )

    try:
        run(rewrite)
    except (SealedRowsUnreadable, ObjectStoreAway) as error:
        log.warning("sealed_file.unreadable", file_id=file_id, reason=str(error), remedy="it is tried again")
        return False
    for file in former:
        _delete(run, files, file.store, [file.path])
    return bool(former)


def sweep(run: Transact, now: datetime) -> int:
    """Delete the files that nothing names any more, such as those of deleted tasks; returns how many."""
    found = run(lambda connection: connection.execute(_UNNAMED, {"before": now - GRACE}).all())
    files, by_store = SealedFiles(), dict[str, list[str]]()
    for store, path in found:
        by_store.setdefault(store, []).append(path)
    return sum(_delete(run, files, store, paths) for store, paths in by_store.items())


def _delete(run: Transact, files: SealedFiles, store: str, paths: Sequence[str]) -> int:
    """Delete files that are named no more. While the store is away, a later sweep does."""
    try:
        files.store(store).delete_at(paths)
    except (ObjectStoreAway, SealedRowsUnreadable):
        return 0
    run(lambda connection: connection.execute(delete(sealed_objects).where(sealed_objects.c.path.in_(paths))))
    return len(paths)


# A file that was named before is old, and goes at once.
_UNNAMED = text("""
    SELECT store, path FROM sealed_objects
    WHERE put_at < :before AND NOT EXISTS (SELECT FROM sealed_files WHERE sealed_files.path = sealed_objects.path)
    ORDER BY put_at LIMIT 1000
""")
