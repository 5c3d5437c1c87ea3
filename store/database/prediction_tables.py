"""Answers that were given: the log of predictions, and how right they were."""

from sqlalchemy import UUID, BigInteger, Column, ForeignKey, Identity, Index, Integer, Table, Text
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

# Parts of the log whose answers or labels have changed since they were scored (`store.predictions.buckets`).
touched_buckets = Table(
    "touched_buckets",
    metadata,
    Column("task_id", ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True),
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("bucket", Text, nullable=False),
)

# Sums over the answers of a part of the log, of one version and age; -1 is the age of moments of the fit's rows.
answer_sums = Table(
    "answer_sums",
    metadata,
    Column("task_id", ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True),
    Column("bucket", Text, primary_key=True),
    Column("version", Text, primary_key=True),
    Column("age", Integer, primary_key=True),
    Column("sums", JSON, nullable=False),
    Index("answer_sums_task_id_version_age_idx", "task_id", "version", "age"),
)

# The figures of these sums over the whole log, and the newest part of it that they are of.
answer_quality = Table(
    "answer_quality",
    metadata,
    Column("task_id", ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True),
    Column("version", Text, primary_key=True),
    Column("age", Integer, primary_key=True),
    Column("newest", Text, nullable=False),
    Column("scored_at", moment_type, nullable=False),
    Column("quality", JSON, nullable=False),
    moments("scored_at"),
)
