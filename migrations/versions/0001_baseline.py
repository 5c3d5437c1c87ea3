"""Tasks, schemas, events, rejected events, cycles, the error matrix and releases."""

from alembic import op
from sqlalchemy import BigInteger, Column, Double, ForeignKey, Identity, Integer, Text, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP

revision = "0001"
down_revision = None

_moment = TIMESTAMP(timezone=True)


def upgrade() -> None:
    op.create_table(
        "tasks",
        Column("id", Integer, Identity(), primary_key=True),
        Column("name", Text, nullable=False),
        Column("created_at", _moment, nullable=False),
    )
    op.create_unique_constraint("tasks_name_key", "tasks", ["name"])

    op.create_table(
        "schemas",
        Column("id", Integer, Identity(), primary_key=True),
        Column("task_id", Integer, ForeignKey("tasks.id"), nullable=False),
        Column("revision", Integer, nullable=False),
        Column("spec", JSONB, nullable=False),
        Column("row_schema", Text, nullable=False),
        Column("created_at", _moment, nullable=False),
    )
    op.create_index("schemas_task_id_revision_key", "schemas", ["task_id", "revision"], unique=True)

    op.create_table(
        "events",
        Column("task_id", Integer, ForeignKey("tasks.id"), primary_key=True),
        Column("event_id", Text, primary_key=True),
        Column("revision", Integer, primary_key=True),
        Column("at", _moment, nullable=False),
        Column("known_at", _moment, nullable=False),
        Column("received_at", _moment, nullable=False),
        Column("superseded_at", _moment),
        Column("schema_id", Integer, ForeignKey("schemas.id"), nullable=False),
        Column("numbers", ARRAY(Double), nullable=False),
        Column("categories", ARRAY(Text), nullable=False),
        Column("label", Text, nullable=False),
    )
    op.create_index("events_task_id_at_idx", "events", ["task_id", "at"])

    op.create_table(
        "rejected_events",
        Column("id", BigInteger, Identity(), primary_key=True),
        Column("task_id", Integer, ForeignKey("tasks.id"), nullable=False),
        Column("received_at", _moment, nullable=False),
        Column("event_id", Text),
        Column("reason", Text, nullable=False),
        Column("payload", Text, nullable=False),
    )
    op.create_index("rejected_events_task_id_received_at_idx", "rejected_events", ["task_id", "received_at"])

    op.create_table(
        "cycles",
        Column("id", BigInteger, Identity(), primary_key=True),
        Column("task_id", Integer, ForeignKey("tasks.id"), nullable=False),
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
        Column("verdict", JSONB),
        Column("requested_at", _moment, nullable=False),
        Column("started_at", _moment),
        Column("ended_at", _moment),
    )
    op.create_check_constraint(
        op.f("cycles_state_check"),
        "cycles",
        "state in ('requested', 'running', 'released', 'held', 'skipped', 'failed')",
    )
    op.create_index("cycles_task_id_cutoff_attempt_key", "cycles", ["task_id", "cutoff", "attempt"], unique=True)
    op.create_index(
        "cycles_one_released_key",
        "cycles",
        ["task_id", "cutoff"],
        unique=True,
        postgresql_where=text("state = 'released'"),
    )
    op.create_index(
        "cycles_one_active_key",
        "cycles",
        ["task_id", "cutoff"],
        unique=True,
        postgresql_where=text("state in ('requested', 'running')"),
    )

    op.create_table(
        "error_cells",
        Column("task_id", Integer, ForeignKey("tasks.id"), primary_key=True),
        Column("recipe", Text, primary_key=True),
        Column("origin", _moment, primary_key=True),
        Column("window", _moment, primary_key=True),
        Column("method", Text, primary_key=True),
        Column("num_rows", BigInteger, nullable=False),
        Column("loss", Double, nullable=False),
        Column("metric", Double, nullable=False),
    )

    op.create_table(
        "releases",
        Column("id", BigInteger, Identity(), primary_key=True),
        Column("task_id", Integer, ForeignKey("tasks.id"), nullable=False),
        Column("version", Text, nullable=False),
        Column("action", Text, nullable=False),
        Column("valid_until", _moment, nullable=False),
        Column("actor", Text, nullable=False),
        Column("reason", Text, nullable=False),
        Column("at", _moment, nullable=False),
    )
    op.create_check_constraint(
        op.f("releases_action_check"), "releases", "action in ('release', 'rollback', 'close', 'reopen', 'override')"
    )
    op.create_index("releases_task_id_version_idx", "releases", ["task_id", "version", "id"])
