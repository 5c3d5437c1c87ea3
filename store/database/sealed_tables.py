"""Sealed events: rows that have left the table `events` for Parquet files in an object store."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from store.database.metadata import metadata, moment_type, moments


def _task() -> ForeignKey:
    """A release that knows no sealed events may delete a task that has some: they go with it."""
    return ForeignKey("tasks.id", ondelete="CASCADE")


sealed_files = Table(
    "sealed_files",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("task_id", _task(), nullable=False),
    # Which of the task's files it is: what entries of `sealed_ids` name.
    Column("number", Integer, nullable=False),
    Column("store", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("first_at", moment_type, nullable=False),
    Column("last_at", moment_type, nullable=False),
    Column("last_known_at", moment_type, nullable=False),
    Column("num_rows", Integer, nullable=False),
    # Rows at places before this one have left the table of events.
    Column("num_moved", Integer, nullable=False, server_default=text("0")),
    Column("schema_ids", ARRAY(Integer), nullable=False),
    # All labels of its rows; null if they are many.
    Column("labels", ARRAY(Text)),
    # Whether rows that were erased or retracted must still go from it.
    Column("is_stale", Boolean, nullable=False, server_default=text("false")),
    # Why it could not be read when it was last looked at.
    Column("trouble", Text),
    Column("sealed_at", moment_type, nullable=False),
    UniqueConstraint("task_id", "number"),
    moments("first_at", "last_at", "last_known_at", "sealed_at"),
)

# Rows of a file, by their place, that are in the table of events again, or have stayed there.
taken_rows = Table(
    "taken_rows",
    metadata,
    Column("file_id", ForeignKey("sealed_files.id", ondelete="CASCADE"), primary_key=True),
    Column("place", Integer, primary_key=True),
)

# What the rows of a file that have left the table of events were in each window.
sealed_windows = Table(
    "sealed_windows",
    metadata,
    Column("file_id", ForeignKey("sealed_files.id", ondelete="CASCADE"), primary_key=True),
    Column("start", moment_type, primary_key=True),
    Column("task_id", _task(), nullable=False),
    Column("first_at", moment_type, nullable=False),
    Column("last_at", moment_type, nullable=False),
    Column("last_received_at", moment_type, nullable=False),
    Column("num_rows", Integer, nullable=False),
    Index("sealed_windows_task_id_first_at_idx", "task_id", "first_at"),
    Index("sealed_windows_task_id_last_at_idx", "task_id", "last_at"),
)

# The rows of each import among them.
sealed_imports = Table(
    "sealed_imports",
    metadata,
    Column("file_id", ForeignKey("sealed_files.id", ondelete="CASCADE"), primary_key=True),
    Column("import_id", BigInteger, primary_key=True),
    Column("task_id", _task(), nullable=False),
    Column("num_rows", Integer, nullable=False),
    Index("sealed_imports_task_id_import_id_idx", "task_id", "import_id"),
)

# The ids of sealed events: an entry is 40 bits of a hash and the number of a file, a bucket another 16 bits.
sealed_ids = Table(
    "sealed_ids",
    metadata,
    Column("task_id", _task(), primary_key=True),
    Column("bucket", Integer, primary_key=True),
    Column("entries", ARRAY(BigInteger), nullable=False),
)

# Every file that was written or was about to be. One that `sealed_files` does not name is deleted.
sealed_objects = Table(
    "sealed_objects",
    metadata,
    Column("path", Text, primary_key=True),
    Column("store", Text, nullable=False),
    Column("put_at", moment_type, nullable=False),
    moments("put_at"),
)
