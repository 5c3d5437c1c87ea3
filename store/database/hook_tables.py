"""Hooks, the events that wait for their receivers or have left, and the ends of validity that were reported."""

from sqlalchemy import (
    UUID,
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from store.database.metadata import metadata, moment_type, moments

hooks = Table(
    "hooks",
    metadata,
    Column("id", Integer, Identity(), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("url", Text, nullable=False),
    # Not a digest: every event is signed with it.
    Column("secret", LargeBinary, nullable=False),
    # The tasks and the types of events that the hook is for, if it is not for all.
    Column("task_ids", ARRAY(Integer)),
    Column("types", ARRAY(Text)),
    Column("actor", Text, nullable=False),
    Column("created_at", moment_type, nullable=False),
    # Requests since then: events that were taken, and attempts that failed.
    Column("num_delivered", BigInteger, nullable=False, server_default=text("0")),
    Column("num_failed", BigInteger, nullable=False, server_default=text("0")),
    moments("created_at"),
    CheckConstraint("name <> ''", name="name"),
)

# The outbox: one row for each hook that an event goes to. Triggers add them in the transaction of what they report.
deliveries = Table(
    "deliveries",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("hook_id", ForeignKey("hooks.id", ondelete="CASCADE"), nullable=False),
    # The previous release deletes a task without them, so they go with it. A test is about no task.
    Column("task_id", ForeignKey("tasks.id", ondelete="CASCADE")),
    Column("event_id", UUID, nullable=False),
    Column("type", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    # When it happened, and when it came into the outbox.
    Column("at", moment_type, nullable=False),
    Column("added_at", moment_type, nullable=False, server_default=text("now()")),
    Column("state", Text, nullable=False, server_default=text("'waiting'")),
    Column("num_attempts", Integer, nullable=False, server_default=text("0")),
    # Before it, nobody tries. It lies ahead while an attempt is under way, and after one that failed.
    Column("due_at", moment_type),
    # What the receiver answered last, or why it did not.
    Column("answer", Text),
    Column("ended_at", moment_type),
    moments("at", "added_at", "due_at", "ended_at"),
    CheckConstraint("state in ('waiting', 'delivered', 'dead')", name="state"),
    UniqueConstraint("hook_id", "event_id"),
    Index("deliveries_waiting_idx", "hook_id", "task_id", "id", postgresql_where=text("state = 'waiting'")),
    Index("deliveries_dead_idx", "hook_id", "task_id", "id", postgresql_where=text("state = 'dead'")),
    Index("deliveries_ended_at_idx", "ended_at"),
    Index("deliveries_task_id_idx", "task_id"),
)

# What time alone brings, once for each row of `releases` that set the end of a version's validity.
expiries = Table(
    "expiries",
    metadata,
    Column("release_id", ForeignKey("releases.id", ondelete="CASCADE"), primary_key=True),
    Column("type", Text, primary_key=True),
    Column("at", moment_type, nullable=False),
    moments("at"),
    CheckConstraint("type in ('morrow.version.expiring', 'morrow.version.expired')", name="type"),
)
