"""Answers that were given: the log of predictions."""

from sqlalchemy import UUID, Column, Index, Integer, Table, Text
from sqlalchemy.dialects.postgresql import JSON

from store.database.metadata import metadata, moment_type, moments

# One row for each answer to a row that was asked. Ids sort by the time of the answer, and each day's rows are a
# partition of their own (`store.predictions.partitions`).
predictions = Table(
    "predictions",
    metadata,
    Column("id", UUID, primary_key=True),
    # No foreign key, which would be checked for every row: the writer locks the tasks once for many rows.
    Column("task_id", Integer, nullable=False),
    Column("version", Text, nullable=False),
    Column("at", moment_type, nullable=False),
    # The name of the API key that asked, if one was needed.
    Column("key_name", Text),
    # Each feature by its name, null if it was missing; no object if the task logs none.
    Column("features", JSON(none_as_null=True)),
    # What was answered, except for the id.
    Column("answer", JSON(none_as_null=True), nullable=False),
    moments("at"),
    Index("predictions_task_id_id_idx", "task_id", "id"),
    postgresql_partition_by="RANGE (id)",
)
