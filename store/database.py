"""The tables. PostgreSQL is the only dialect; `migrations/` creates the tables described here.

Functions elsewhere take a `Connection`; only the outermost caller begins a transaction.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    }
)
_moment = TIMESTAMP(timezone=True)
# The moments that Python's calendar has. PostgreSQL has others, which no process of ours can read.
FIRST_MOMENT = datetime(1, 1, 1, tzinfo=UTC)
LAST_MOMENT = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


def _moments(*columns: str) -> CheckConstraint:
    """Keep out moments without microseconds: only a client that writes past the API could store them."""
    in_calendar = "\"{0}\" >= '0001-01-01T00:00:00Z' and \"{0}\" < '10000-01-01T00:00:00Z'"
    return CheckConstraint(" and ".join(in_calendar.format(column) for column in columns), name="moments")


tasks = Table(
    "tasks",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created_at", _moment, nullable=False),
    Column("lifecycle", Text, nullable=False, server_default="active"),
    # The name that MLflow still has for it, while a renaming has not got there yet.
    Column("registry_name", Text),
    # Why MLflow refuses that renaming, if it does.
    Column("renaming_trouble", Text),
    _moments("created_at"),
    CheckConstraint("name <> ''", name="name"),
    CheckConstraint("lifecycle in ('active', 'paused', 'archived', 'deleting')", name="lifecycle"),
)

task_changes = Table(
    "task_changes",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    # No foreign key: these rows outlive their task.
    Column("task_id", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("new_name", Text),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", _moment, nullable=False),
    # A `store.tasks.changes.Contents`.
    Column("contents", JSONB(none_as_null=True)),
    CheckConstraint(
        "action in ('pause', 'resume', 'archive', 'unarchive', 'rename', 'delete', 'deleted')", name="action"
    ),
    _moments("at"),
    Index("task_changes_name_idx", "name", "id"),
    Index("task_changes_task_id_idx", "task_id", "id"),
)

# Tasks that a transaction wrote to, noted by triggers (`store.tasks.touched`).
touched_tasks = Table(
    "touched_tasks",
    metadata,
    Column("transaction_id", BigInteger, primary_key=True, autoincrement=False),
    # No foreign key: a note must never wait for the task's row.
    Column("task_id", Integer, primary_key=True, autoincrement=False),
    Column("noted_at", _moment, nullable=False, server_default=text("now()")),
)

# One row: what marks this database's models and runs in MLflow (`store.tasks.installation`).
installation = Table(
    "installation",
    metadata,
    Column("is_ours", Boolean, primary_key=True, server_default=text("true")),
    Column("name", Text, nullable=False, server_default=text("gen_random_uuid()::text")),
    CheckConstraint("is_ours", name="is_ours"),
)

schemas = Table(
    "schemas",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("task_id", ForeignKey("tasks.id"), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("spec", JSONB, nullable=False),
    Column("row_schema", Text, nullable=False),
    Column("created_at", _moment, nullable=False),
    _moments("created_at"),
    CheckConstraint("jsonb_typeof(spec) = 'object' and revision > 0", name="spec"),
    Index("schemas_task_id_revision_key", "task_id", "revision", unique=True),
)

choices = Table(
    "choices",
    metadata,
    Column("task_id", ForeignKey("tasks.id"), primary_key=True),
    Column("recipe", Text, primary_key=True),
    Column("asked", JSONB, nullable=False),
    Column("training", JSONB, nullable=False),
    Column("cutoff", _moment, nullable=False),
    Column("error", Double),
    Column("error_before", Double),
    Column("num_trials", Integer, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("run_id", Text),
    Column("chosen_at", _moment, nullable=False),
    _moments("cutoff", "chosen_at"),
)

events = Table(
    "events",
    metadata,
    Column("task_id", ForeignKey("tasks.id"), primary_key=True),
    Column("event_id", Text, primary_key=True),
    Column("revision", Integer, primary_key=True),
    Column("at", _moment, nullable=False),
    Column("known_at", _moment, nullable=False),
    Column("received_at", _moment, nullable=False),
    Column("superseded_at", _moment),
    Column("schema_id", ForeignKey("schemas.id"), nullable=False),
    Column("numbers", ARRAY(Double), nullable=False),
    Column("categories", ARRAY(Text), nullable=False),
    Column("label", Text, nullable=False),
    # No foreign key: its trigger would run for every new row, and rows of erasures are never deleted.
    Column("erasure_id", BigInteger),
    # The import that a first revision came with, if it came with one. No foreign key, for the same reason.
    Column("import_id", BigInteger),
    _moments("at", "known_at", "received_at", "superseded_at"),
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
        Column("at", _moment, nullable=False),
        Column("actor", Text, nullable=False),
    )


imports = Table(
    "imports",
    metadata,
    *_acts(),
    Column("source", Text, nullable=False),
    Column("digest", Text),
    Column("retracted_at", _moment),
    Column("retraction_actor", Text),
    Column("retraction_reason", Text),
    Column("num_retracted", BigInteger, nullable=False, server_default=text("0")),
    _moments("at", "retracted_at"),
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
    _moments("at"),
    Index("erasures_task_id_idx", "task_id", "id"),
)

rejected_events = Table(
    "rejected_events",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("task_id", ForeignKey("tasks.id"), nullable=False),
    Column("received_at", _moment, nullable=False),
    Column("event_id", Text),
    Column("reason", Text, nullable=False),
    Column("payload", Text, nullable=False),
    # The import that the row came with, if it came with one.
    Column("import_id", BigInteger),
    _moments("received_at"),
    Index("rejected_events_task_id_received_at_idx", "task_id", "received_at"),
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
)

cycles = Table(
    "cycles",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("task_id", ForeignKey("tasks.id"), nullable=False),
    Column("cutoff", _moment, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("step", Text),
    Column("lease", Text),
    Column("lease_until", _moment),
    Column("run_id", Text),
    Column("version", Text),
    Column("num_rows", BigInteger),
    Column("rows_digest", Text),
    Column("read_at", _moment),
    Column("reason", Text),
    Column("verdict", JSONB(none_as_null=True)),
    Column("requested_at", _moment, nullable=False),
    Column("started_at", _moment),
    Column("ended_at", _moment),
    Column("override_actor", Text),
    Column("override_reason", Text),
    # A `contracts.failure.FailureCode`. A trigger fills it in for rows that the previous release writes.
    Column("failure_code", Text),
    # The released attempt at the same cutoff that this one was requested to replace.
    Column("replaces", BigInteger),
    # Another attempt at the same cutoff is requested when this one ends.
    Column("followed", Boolean, nullable=False, server_default=text("false")),
    _moments("cutoff", "requested_at", "started_at", "ended_at", "lease_until", "read_at"),
    CheckConstraint("state in ('requested', 'running', 'released', 'held', 'skipped', 'failed')", name="state"),
    Index("cycles_task_id_cutoff_attempt_key", "task_id", "cutoff", "attempt", unique=True),
    Index(
        "cycles_one_release_key",
        "task_id",
        "cutoff",
        text("coalesce(replaces, 0)"),
        unique=True,
        postgresql_where=text("state = 'released'"),
    ),
    Index("cycles_failed_idx", "task_id", "cutoff", postgresql_where=text("state = 'failed'")),
    Index("cycles_task_id_started_at_idx", "task_id", "started_at"),
    Index(
        "cycles_one_active_key",
        "task_id",
        "cutoff",
        unique=True,
        postgresql_where=text("state in ('requested', 'running')"),
    ),
)

# The parts of a cycle's fits (`store.units`). The previous release deletes a cycle without them, so they go with it.
units = Table(
    "units",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("task_id", ForeignKey("tasks.id", ondelete="CASCADE"), nullable=False),
    Column("cycle_id", ForeignKey("cycles.id", ondelete="CASCADE"), nullable=False),
    Column("place", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("spec", JSONB, nullable=False),
    Column("state", Text, nullable=False),
    Column("lease", Text),
    Column("lease_until", _moment),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("result", LargeBinary),
    Column("requested_at", _moment, nullable=False),
    Column("ended_at", _moment),
    _moments("requested_at", "ended_at", "lease_until"),
    CheckConstraint("state in ('requested', 'running', 'done')", name="state"),
    Index("units_cycle_id_digest_key", "cycle_id", "digest", unique=True),
    Index("units_requested_idx", "place", "id", postgresql_where=text("state = 'requested'")),
)

error_cells = Table(
    "error_cells",
    metadata,
    Column("task_id", ForeignKey("tasks.id"), primary_key=True),
    Column("recipe", Text, primary_key=True),
    Column("origin", _moment, primary_key=True),
    Column("window", _moment, primary_key=True),
    Column("method", Text, primary_key=True),
    Column("num_rows", BigInteger, nullable=False),
    Column("loss", Double, nullable=False),
    Column("metric", Double, nullable=False),
    Column("num_revisions", BigInteger, nullable=False),
    Column("is_complete", Boolean, nullable=False),
    Column("scores", ARRAY(Double), nullable=False),
    Column("tempered", ARRAY(Double), nullable=False),
    Column("scored_at", _moment, nullable=False),
    _moments("origin", "window", "scored_at"),
    CheckConstraint(
        "num_rows >= 0 and array_position(scores, null) is null and array_position(tempered, null) is null",
        name="figures",
    ),
    Index("error_cells_window_idx", "task_id", "recipe", "window"),
)

releases = Table(
    "releases",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("task_id", ForeignKey("tasks.id"), nullable=False),
    Column("version", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("valid_until", _moment, nullable=False),
    Column("calibration", JSONB(none_as_null=True)),
    Column("verdict", JSONB(none_as_null=True)),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", _moment, nullable=False),
    _moments("valid_until", "at"),
    CheckConstraint("version <> ''", name="version"),
    CheckConstraint("action in ('release', 'rollback', 'calibrate', 'close', 'reopen', 'override')", name="action"),
    Index("releases_task_id_version_idx", "task_id", "version", "id"),
    Index("releases_task_id_idx", "task_id", "id"),
    Index("releases_champions_idx", "task_id", "id", postgresql_where=text("action in ('release', 'rollback')")),
)

# The kept fits that trainers share, by the object store that holds them. A lost object's row waits for a trainer that
# still has a copy.
kept_fits = Table(
    "kept_fits",
    metadata,
    Column("store", Text, primary_key=True),
    Column("task_id", ForeignKey("tasks.id"), primary_key=True),
    Column("recipe", Text, primary_key=True),
    Column("origin", _moment, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("kept_at", _moment, nullable=False),
    Column("lost_at", _moment),
    _moments("origin", "kept_at", "lost_at"),
    Index("kept_fits_store_digest_idx", "store", "digest"),
    Index("kept_fits_task_id_idx", "task_id", "store"),
)

# Every object that was written and is not deleted yet.
fit_objects = Table(
    "fit_objects",
    metadata,
    Column("store", Text, primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("put_at", _moment, nullable=False),
    _moments("put_at"),
    Index("fit_objects_store_put_at_idx", "store", "put_at"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("scopes", ARRAY(Text), nullable=False),
    Column("rate", Double),
    Column("created_at", _moment, nullable=False),
    Column("revoked_at", _moment),
    # The tasks that the key is for, if it is not for all.
    Column("task_ids", ARRAY(Integer)),
    _moments("created_at", "revoked_at"),
    CheckConstraint("rate > 0 and rate < 'infinity'", name="rate"),
    Index("api_keys_name_key", "name", unique=True, postgresql_where=text("revoked_at IS NULL")),
)


def is_readable(moment: Column[datetime]) -> ColumnElement[bool]:
    """Whether a moment has microseconds."""
    return moment.between(FIRST_MOMENT, LAST_MOMENT)
