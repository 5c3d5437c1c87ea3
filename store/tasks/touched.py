"""Which tasks have changed since a reading: triggers note each task whose ledgers a transaction writes to; not events.

The note is a row of its own, keyed by transaction and task. So writers never wait for each other's notes, and no change
is lost however late its transaction ends: a reading repeats the transactions that were still running at the one before.
Numbers from a sequence would not do, because a transaction with a lower number may end later.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection, text

# A reader whose last reading is older reads everything. Notes are kept for twice as long.
KEPT_SECONDS = 1800


@dataclass(frozen=True)
class Bookmark:
    """How far a reader has read: all transactions before `transaction`, and of the later ones those in `seen`.

    `seen` holds pairs of transaction and task. `server` is when that server started: another one may count differently.
    """

    server: datetime
    transaction: int
    seen: frozenset[tuple[int, int]] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Touched:
    """The next bookmark, the time of the database, and the tasks that were written to; None if any may have been."""

    bookmark: Bookmark
    now: datetime
    task_ids: Collection[int] | None


def read_touched(connection: Connection, since: Bookmark | None) -> Touched:
    """The tasks that were written to since a bookmark. It comes before whatever is read of them."""
    row = connection.execute(
        _READ, {"since": 0 if since is None else since.transaction, "is_first": since is None}
    ).one()
    written = frozenset(zip(row.transactions, row.task_ids, strict=True))
    kept = frozenset((transaction, task_id) for transaction, task_id in written if transaction >= row.oldest)
    bookmark = Bookmark(row.server, row.oldest, kept)
    if since is None or since.server != row.server or since.transaction > row.oldest:
        return Touched(bookmark, row.now, None)
    return Touched(bookmark, row.now, {task_id for _, task_id in written - since.seen})


def delete_notes(connection: Connection) -> None:
    """Delete notes that every reader has read."""
    connection.execute(_DELETE, {"seconds": 2 * KEPT_SECONDS})


# A transaction that has not begun to write has no number yet, and will get a higher one.
_READ = text("""
    SELECT pg_postmaster_start_time() AS server, now() AS now, snapshot.oldest,
        coalesce(written.transactions, '{}') AS transactions, coalesce(written.task_ids, '{}') AS task_ids
    FROM (SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint) AS oldest) AS snapshot
    CROSS JOIN LATERAL (
        SELECT array_agg(transaction_id) AS transactions, array_agg(task_id) AS task_ids
        FROM touched_tasks WHERE NOT :is_first AND transaction_id >= :since
    ) AS written
""")

_DELETE = text("DELETE FROM touched_tasks WHERE noted_at < now() - make_interval(secs => :seconds)")
