"""Logged answers with the labels that came for them: the label of an answer is that of the event with its id.

The present revision of the event counts. One that was retracted or erased has none, so its answer waits for a label.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from store.predictions.buckets import ids_of

_ROWS_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    """A logged answer in JSON, about `at`, and its label if there is one.

    `label_at` is when the first label of its event was known, or received if that was earlier.
    """

    version: str
    at: datetime
    answer: str
    label: str | None
    label_at: datetime | None


def read_labelled(connection: Connection, task_id: int, bucket: str) -> Iterator[LabelledAnswer]:
    """The answers of a bucket, in any order."""
    first, last = ids_of(bucket)
    found = connection.execute(
        _READ, {"task_id": task_id, "first": first, "last": last}, execution_options={"yield_per": _ROWS_AT_ONCE}
    )
    return (LabelledAnswer(*row) for row in found)


# Events are found by their key, one by one, whatever the planner expects (`store.events.lookups`).
_READ = text("""
    SELECT version, predictions.at, CAST(answer AS text), labels.label, labels.label_at
    FROM predictions CROSS JOIN LATERAL (
        SELECT max(label) FILTER (WHERE superseded_at IS NULL AND erasure_id IS NULL) AS label,
               min(least(known_at, received_at)) FILTER (WHERE revision = 1) AS label_at
        FROM events
        WHERE events.task_id = ANY(ARRAY(SELECT CAST(:task_id AS integer)))
          AND event_id = CAST(predictions.id AS text)
          AND event_id BETWEEN CAST(predictions.id AS text) AND CAST(predictions.id AS text)
    ) AS labels
    WHERE predictions.task_id = CAST(:task_id AS integer) AND predictions.id BETWEEN :first AND :last
""")
