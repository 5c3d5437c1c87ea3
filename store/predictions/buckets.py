"""Parts of the log, and which of them have changed since their answers were scored.

An id begins with the time of its answer, so ids that share their first seven digits are of the same 2²⁰ milliseconds,
some seventeen minutes. They are a bucket. An event that was made of an answer has the answer's id, so a label shows the
bucket that it belongs to.

The writer of the log and a trigger on events note the buckets that they touch, in their own transactions. A note that
can be seen comes with everything that it is about. So scoring reads notes, then the buckets, and then deletes those
notes; what came meanwhile has notes of its own.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from store.predictions.ids import first_id

_DIGITS = 7
_SHIFT = 128 - 4 * _DIGITS


@dataclass(frozen=True)
class TouchedBucket:
    """A bucket of a task with changes that are not scored, and the notes of them."""

    bucket: str
    notes: Sequence[int]


def bucket_of(prediction_id: UUID) -> str:
    """The bucket of an id."""
    return prediction_id.hex[:_DIGITS]


def bucket_of_digits(first_digits: bytes) -> str:
    """The bucket of ids that begin with these four bytes."""
    return first_digits.hex()[:_DIGITS]


def bucket_at(moment: datetime) -> str:
    """The bucket of the answers that are given at a moment."""
    return bucket_of(first_id(moment))


def ids_of(bucket: str) -> tuple[UUID, UUID]:
    """The first id of a bucket, and the last one that any id of it can be."""
    first = int(bucket, 16) << _SHIFT
    return UUID(int=first), UUID(int=first + (1 << _SHIFT) - 1)


def note_touched(connection: Connection, touched: Collection[tuple[int, str]]) -> None:
    """Note that answers or labels of these tasks and buckets have changed."""
    pairs = sorted(touched)
    if pairs:
        connection.execute(
            _NOTE, {"task_ids": [task_id for task_id, _ in pairs], "buckets": [bucket for _, bucket in pairs]}
        )


def list_touched_tasks(connection: Connection) -> list[int]:
    """The tasks with changes that are not scored."""
    return list(connection.execute(_LIST_TASKS).scalars())


def list_touched(connection: Connection, task_id: int, most: int) -> list[TouchedBucket]:
    """Buckets of a task with changes that are not scored, the newest first."""
    rows = connection.execute(_LIST, {"task_id": task_id, "most": most})
    return [TouchedBucket(row.bucket, row.notes) for row in rows]


def delete_notes(connection: Connection, touched: TouchedBucket) -> None:
    """The changes are scored."""
    connection.execute(_DELETE, {"ids": touched.notes})


_NOTE = text("""
    INSERT INTO touched_buckets (task_id, bucket)
    SELECT * FROM unnest(CAST(:task_ids AS integer[]), CAST(:buckets AS text[]))
""")

_LIST_TASKS = text("SELECT DISTINCT task_id FROM touched_buckets ORDER BY task_id")

_LIST = text("""
    SELECT bucket, array_agg(id) AS notes FROM touched_buckets WHERE task_id = :task_id
    GROUP BY bucket ORDER BY bucket DESC LIMIT :most
""")

_DELETE = text("DELETE FROM touched_buckets WHERE id = ANY(CAST(:ids AS bigint[]))")
