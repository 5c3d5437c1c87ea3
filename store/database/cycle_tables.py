"""Cycles and what is left of them: units, errors, releases, choices of recipes and kept fits."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from store.database.metadata import metadata, moment_type, moments

cycles = Table(
    "cycles",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("task_id", ForeignKey("tasks.id"), nullable=False),
    Column("cutoff", moment_type, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("step", Text),
    Column("lease", Text),
    Column("lease_until", moment_type),
    Column("run_id", Text),
    Column("version", Text),
    Column("num_rows", BigInteger),
    Column("rows_digest", Text),
    Column("read_at", moment_type),
    Column("reason", Text),
    Column("verdict", JSONB(none_as_null=True)),
    Column("requested_at", moment_type, nullable=False),
    Column("started_at", moment_type),
    Column("ended_at", moment_type),
    Column("override_actor", Text),
    Column("override_reason", Text),
    # A `contracts.failure.FailureCode`. A trigger fills it in for rows that the previous release writes.
    Column("failure_code", Text),
    # The released attempt at the same cutoff that this one was requested to replace.
    Column("replaces", BigInteger),
    # Another attempt at the same cutoff is requested when this one ends.
    Column("followed", Boolean, nullable=False, server_default=text("false")),
    moments("cutoff", "requested_at", "started_at", "ended_at", "lease_until", "read_at"),
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
    Column("lease_until", moment_type),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("result", LargeBinary),
    Column("requested_at", moment_type, nullable=False),
    Column("ended_at", moment_type),
    moments("requested_at", "ended_at", "lease_until"),
    CheckConstraint("state in ('requested', 'running', 'done')", name="state"),
    Index("units_cycle_id_digest_key", "cycle_id", "digest", unique=True),
    Index("units_requested_idx", "place", "id", postgresql_where=text("state = 'requested'")),
)

error_cells = Table(
    "error_cells",
    metadata,
    Column("task_id", ForeignKey("tasks.id"), primary_key=True),
    Column("recipe", Text, primary_key=True),
    Column("origin", moment_type, primary_key=True),
    Column("window", moment_type, primary_key=True),
    Column("method", Text, primary_key=True),
    Column("num_rows", BigInteger, nullable=False),
    Column("loss", Double, nullable=False),
    Column("metric", Double, nullable=False),
    Column("num_revisions", BigInteger, nullable=False),
    Column("is_complete", Boolean, nullable=False),
    Column("scores", ARRAY(Double), nullable=False),
    Column("tempered", ARRAY(Double), nullable=False),
    Column("scored_at", moment_type, nullable=False),
    moments("origin", "window", "scored_at"),
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
    Column("valid_until", moment_type, nullable=False),
    Column("calibration", JSONB(none_as_null=True)),
    Column("verdict", JSONB(none_as_null=True)),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", moment_type, nullable=False),
    moments("valid_until", "at"),
    CheckConstraint("version <> ''", name="version"),
    CheckConstraint("action in ('release', 'rollback', 'calibrate', 'close', 'reopen', 'override')", name="action"),
    Index("releases_task_id_version_idx", "task_id", "version", "id"),
    Index("releases_task_id_idx", "task_id", "id"),
    Index("releases_champions_idx", "task_id", "id", postgresql_where=text("action in ('release', 'rollback')")),
)

choices = Table(
    "choices",
    metadata,
    Column("task_id", ForeignKey("tasks.id"), primary_key=True),
    Column("recipe", Text, primary_key=True),
    Column("asked", JSONB, nullable=False),
    Column("training", JSONB, nullable=False),
    Column("cutoff", moment_type, nullable=False),
    Column("error", Double),
    Column("error_before", Double),
    Column("num_trials", Integer, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("run_id", Text),
    Column("chosen_at", moment_type, nullable=False),
    moments("cutoff", "chosen_at"),
)

# The kept fits that trainers share, by the object store that holds them. A lost object's row waits for a trainer that
# still has a copy.
kept_fits = Table(
    "kept_fits",
    metadata,
    Column("store", Text, primary_key=True),
    Column("task_id", ForeignKey("tasks.id"), primary_key=True),
    Column("recipe", Text, primary_key=True),
    Column("origin", moment_type, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("kept_at", moment_type, nullable=False),
    Column("lost_at", moment_type),
    moments("origin", "kept_at", "lost_at"),
    Index("kept_fits_store_digest_idx", "store", "digest"),
    Index("kept_fits_task_id_idx", "task_id", "store"),
)

# Every object that was written and is not deleted yet.
fit_objects = Table(
    "fit_objects",
    metadata,
    Column("store", Text, primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("put_at", moment_type, nullable=False),
    moments("put_at"),
    Index("fit_objects_store_put_at_idx", "store", "put_at"),
)
