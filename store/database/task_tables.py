"""Tasks, the revisions of their specs, and what people did with them."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from store.database.metadata import metadata, moment_type, moments

tasks = Table(
    "tasks",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created_at", moment_type, nullable=False),
    Column("lifecycle", Text, nullable=False, server_default="active"),
    # The name that MLflow still has for it, while a renaming has not got there yet.
    Column("registry_name", Text),
    # Why MLflow refuses that renaming, if it does.
    Column("renaming_trouble", Text),
    moments("created_at"),
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
    Column("at", moment_type, nullable=False),
    # A `store.tasks.changes.Contents`.
    Column("contents", JSONB(none_as_null=True)),
    CheckConstraint(
        "action in ('pause', 'resume', 'archive', 'unarchive', 'rename', 'delete', 'deleted')", name="action"
    ),
    moments("at"),
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
    Column("noted_at", moment_type, nullable=False, server_default=text("now()")),
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
    Column("created_at", moment_type, nullable=False),
    moments("created_at"),
    CheckConstraint("jsonb_typeof(spec) = 'object' and revision > 0", name="spec"),
    Index("schemas_task_id_revision_key", "task_id", "revision", unique=True),
)
