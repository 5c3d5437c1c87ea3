"""The partitions of the log: one for each day of Coordinated Universal Time, made ahead and dropped whole.

An id begins with the time of its answer, so a day is a range of ids. Rows of a day without a partition go to the
default one, and move when the day's partition is made. To drop a day is a matter of milliseconds, and leaves nothing
for a vacuum.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from sqlalchemy import Connection, text

from store.predictions.ids import first_id, moment_of

_DAY = timedelta(days=1)
# A partition is not worth the wait for a reader that holds the table, such as a backup: a later attempt makes it.
_WAIT_BRIEFLY = text("SET LOCAL lock_timeout = '1s'")
# One process at a time changes partitions. Rows may be read and written meanwhile.
_LOCK = text("LOCK TABLE predictions IN SHARE UPDATE EXCLUSIVE MODE")


@dataclass(frozen=True)
class Partition:
    """A day's rows; `name` is that of its table."""

    name: str
    day: date

    @property
    def begin(self) -> datetime:
        return datetime(self.day.year, self.day.month, self.day.day, tzinfo=UTC)

    @property
    def end(self) -> datetime:
        return self.begin + _DAY


def partition_of(day: date) -> Partition:
    """The partition that a day has, or would have."""
    return Partition(f"predictions_{day:%Y%m%d}", day)


def list_partitions(connection: Connection) -> Sequence[Partition]:
    """The partitions of days, oldest first."""
    days = (datetime.strptime(name[-8:], "%Y%m%d").date() for name in connection.execute(_LIST).scalars())  # noqa: DTZ007 a day in UTC
    return sorted(map(partition_of, days), key=lambda one: one.day)


def find_missing(connection: Connection, now: datetime, days_ahead: int) -> Sequence[Partition]:
    """The partitions that today, the days ahead, and the rows of the default partition lack."""
    needed = {now.date() + _DAY * ahead for ahead in range(days_ahead + 1)}
    after: UUID | None = first_id(datetime(1970, 1, 1, tzinfo=UTC))
    while after is not None:  # from day to day: a partition without rows of other days costs one look
        after = connection.execute(_NEXT_IN_DEFAULT, {"after": after}).scalar_one_or_none()
        if after is not None:
            needed.add(moment_of(after).date())
            after = first_id(partition_of(moment_of(after).date()).end)
    known = {one.day for one in list_partitions(connection)}
    return [partition_of(day) for day in sorted(needed - known)]


def make_partition(connection: Connection, partition: Partition) -> int:
    """Make a day's partition, unless there is one; returns how many rows it took from the default partition.

    Writers of such rows wait until the transaction ends. A reader that has already planned its query misses them, so
    they are scored again (`store.predictions.buckets`).
    """
    connection.execute(_WAIT_BRIEFLY)
    connection.execute(_LOCK)
    if partition in list_partitions(connection):
        return 0
    name, begin, end = partition.name, first_id(partition.begin), first_id(partition.end)
    connection.execute(text(f"CREATE TABLE {name} (LIKE predictions INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"))
    connection.execute(text("LOCK TABLE predictions_default IN ACCESS EXCLUSIVE MODE"))
    num_moved = connection.execute(
        text(f"""
            WITH moved AS (
                DELETE FROM predictions_default WHERE id >= :begin AND id < :end RETURNING *
            ), noted AS (
                INSERT INTO touched_buckets (task_id, bucket)
                SELECT DISTINCT task_id, left(CAST(moved.id AS text), 7) FROM moved JOIN tasks ON tasks.id = task_id
            )
            INSERT INTO {name} SELECT * FROM moved
        """),  # noqa: S608 our own name
        {"begin": begin, "end": end},
    ).rowcount
    connection.execute(
        text(f"ALTER TABLE predictions ATTACH PARTITION {name} FOR VALUES FROM ('{begin}') TO ('{end}')")
    )
    return num_moved


def drop_partition(connection: Connection, partition: Partition) -> None:
    """Drop a day with all of its rows, unless another process has."""
    connection.execute(_WAIT_BRIEFLY)
    connection.execute(text(f"DROP TABLE IF EXISTS {partition.name}"))


def delete_before(connection: Connection, task_id: int, moment: datetime, size: int) -> int:
    """Delete the oldest of a task's rows that are older than a moment, up to `size`; returns how many."""
    return connection.execute(_DELETE_BEFORE, {"task_id": task_id, "moment": first_id(moment), "size": size}).rowcount


_LIST = text(r"""
    SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'predictions'::regclass AND relname ~ '^predictions_\d{8}$'
""")

_NEXT_IN_DEFAULT = text("SELECT id FROM predictions_default WHERE id >= :after ORDER BY id LIMIT 1")

_DELETE_BEFORE = text("""
    DELETE FROM predictions
    WHERE task_id = :task_id AND id < :moment AND id <= coalesce(
        (SELECT id FROM predictions WHERE task_id = :task_id AND id < :moment ORDER BY id OFFSET :size - 1 LIMIT 1),
        'ffffffff-ffff-ffff-ffff-ffffffffffff'
    )
""")
