"""Events as they arrive, whole or by halves, the imports and erasures that they belong to, and refused rows."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from store.database.metadata import metadata, moment_type, moments

events = Table(
    "events",
    metadata,
    Column("task_id", ForeignKey("tasks.id"), primary_key=True),
    Column("event_id", Text, primary_key=True),
    Column("revision", Integer, primary_key=True),
    Column("at", moment_type, nullable=False),
    Column("known_at", moment_type, nullable=False),
    Column("received_at", moment_type, nullable=False),
    Column("superseded_at", moment_type),
    Column("schema_id", ForeignKey("schemas.id"), nullable=False),
    Column("numbers", ARRAY(Double), nullable=False),
    Column("categories", ARRAY(Text), nullable=False),
    Column("label", Text, nullable=False),
    # No foreign key: its trigger would run for every new row, and rows of erasures are never deleted.
    Column("erasure_id", BigInteger),
    # The import that a first revision came with, if it came with one. No foreign key, for the same reason.
    Column("import_id", BigInteger),
    moments("at", "known_at", "received_at", "superseded_at"),
    CheckConstraint("revision > 0 and event_id <> '' and (label <> '' or superseded_at is not null)", name="texts"),
    # A missing number is NaN and a missing category is empty; an array is read by its places.
    CheckConstraint(
        "array_ndims(numbers) <= 1 and array_position(numbers, null) is null "
        "and 'infinity' <> all(numbers) and '-infinity' <> all(numbers)",
        name="numbers",
    ),
    CheckConstraint("array_ndims(categories) <= 1 and array_position(categories, null) is null", name="categories"),
    Index("events_task_id_at_idx", "task_id", "at"),
    # Ranges of blocks would cost an import less, and be read whole until a vacuum has summarised them.
    Index("events_import_id_idx", "import_id", postgresql_where=text("import_id IS NOT NULL")),
)


def _acts() -> tuple[Column[Any], ...]:
    """The first columns of a ledger of what people did with the events of a task, and when."""
    return (
        Column("id", BigInteger, Identity(), primary_key=True),
        Column("task_id", ForeignKey("tasks.id"), nullable=False),
        Column("at", moment_type, nullable=False),
        Column("actor", Text, nullable=False),
    )


imports = Table(
    "imports",
    metadata,
    *_acts(),
    Column("source", Text, nullable=False),
    Column("digest", Text),
    Column("options", JSONB(none_as_null=True)),
    Column("retracted_at", moment_type),
    Column("retraction_actor", Text),
    Column("retraction_reason", Text),
    Column("num_retracted", BigInteger, nullable=False, server_default=text("0")),
    moments("at", "retracted_at"),
    Index("imports_task_id_idx", "task_id", "id"),
)

erasures = Table(
    "erasures",
    metadata,
    *_acts(),
    Column("reason", Text, nullable=False),
    Column("num_events", BigInteger, nullable=False),
    Column("num_revisions", BigInteger, nullable=False),
    Column("num_rejected", BigInteger, nullable=False),
    Column("num_predictions", BigInteger, nullable=False, server_default=text("0")),
    moments("at"),
    Index("erasures_task_id_idx", "task_id", "id"),
)

rejected_events = Table(
    "rejected_events",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("task_id", ForeignKey("tasks.id"), nullable=False),
    Column("received_at", moment_type, nullable=False),
    Column("event_id", Text),
    Column("reason", Text, nullable=False),
    Column("payload", Text, nullable=False),
    # The import that the row came with, if it came with one.
    Column("import_id", BigInteger),
    moments("received_at"),
    Index("rejected_events_task_id_received_at_idx", "task_id", "received_at"),
)

# Events of which only one half has arrived: the features, or the label. Their ids are those that the events will have.
incomplete_events = Table(
    "incomplete_events",
    metadata,
    Column("task_id", ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True),
    Column("event_id", Text, primary_key=True),
    Column("received_at", moment_type, nullable=False),
    # The revision of the task by which the half was checked. No foreign key: the previous release deletes revisions.
    Column("schema_id", Integer, nullable=False),
    Column("at", moment_type),
    Column("numbers", ARRAY(Double)),
    Column("categories", ARRAY(Text)),
    Column("label", Text),
    # When the label was known, if its sender says so.
    Column("known_at", moment_type),
    Column("import_id", BigInteger),
    Column("num_corrections", Integer, nullable=False, server_default=text("0")),
    moments("received_at", "at", "known_at"),
    CheckConstraint(
        "event_id <> '' and num_corrections >= 0 and case when label is null "
        "then num_nulls(at, numbers, categories) = 0 and known_at is null "
        "else label <> '' and num_nonnulls(at, numbers, categories, import_id) = 0 end",
        name="halves",
    ),
    CheckConstraint(
        "array_ndims(numbers) <= 1 and array_position(numbers, null) is null "
        "and 'infinity' <> all(numbers) and '-infinity' <> all(numbers)",
        name="numbers",
    ),
    CheckConstraint("array_ndims(categories) <= 1 and array_position(categories, null) is null", name="categories"),
    Index("incomplete_events_task_id_received_at_idx", "task_id", "received_at"),
    Index("incomplete_events_import_id_idx", "import_id", postgresql_where=text("import_id IS NOT NULL")),
)

# Changes of the numbers of a task's rows, which triggers add; `store.tasks.row_counts` adds them up. No foreign key,
# which would be checked for every statement that stores events.
row_counts = Table(
    "row_counts",
    metadata,
    Column("task_id", Integer, primary_key=True),
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("num_events", BigInteger, nullable=False, server_default=text("0")),
    Column("num_revisions", BigInteger, nullable=False, server_default=text("0")),
    Column("num_rejected", BigInteger, nullable=False, server_default=text("0")),
    Column("num_unlabelled", BigInteger, nullable=False, server_default=text("0")),
    Column("num_waiting", BigInteger, nullable=False, server_default=text("0")),
)
