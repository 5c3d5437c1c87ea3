"""Erasure reaches the log: the row of a prediction goes, with everything that was asked and answered."""

from collections.abc import Iterable

from sqlalchemy import Connection, text

from store.predictions.buckets import bucket_of, note_touched
from store.predictions.ids import read_id


def erase_predictions(connection: Connection, task_id: int, ids: Iterable[str]) -> set[str]:
    """Delete the logged predictions of a task that have these ids; returns the ids of those that were there.

    An event that was made from a prediction has its id. Texts that are ids of no prediction are passed over.
    """
    asked = {found: text for text in ids if (found := read_id(text)) is not None}
    if not asked:
        return set()
    gone = connection.execute(_ERASE, {"task_id": task_id, "ids": [*asked]}).scalars().all()
    note_touched(connection, {(task_id, bucket_of(found)) for found in gone})
    return {asked[found] for found in gone}


_ERASE = text("""
    DELETE FROM predictions WHERE task_id = :task_id AND id = ANY(CAST(:ids AS uuid[])) RETURNING id
""")
