"""Tasks that are paused, archived, renamed or deleted, and the history of that."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("tasks", sa.Column("lifecycle", sa.Text, nullable=False, server_default="active"))
    op.add_column("tasks", sa.Column("registry_name", sa.Text))
    op.create_check_constraint(
        op.f("tasks_lifecycle_check"), "tasks", "lifecycle in ('active', 'paused', 'archived', 'deleting')"
    )
    op.create_table(
        "task_changes",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("task_id", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("new_name", sa.Text),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("at", TIMESTAMP(timezone=True), nullable=False),
        sa.Column("contents", JSONB),
        sa.CheckConstraint(
            "action in ('pause', 'resume', 'archive', 'unarchive', 'rename', 'delete', 'deleted')",
            name=op.f("task_changes_action_check"),
        ),
        sa.CheckConstraint(
            "\"at\" >= '0001-01-01T00:00:00Z' and \"at\" < '10000-01-01T00:00:00Z'",
            name=op.f("task_changes_moments_check"),
        ),
    )
    op.create_index("task_changes_name_idx", "task_changes", ["name", "id"])
    op.create_index("task_changes_task_id_idx", "task_changes", ["task_id", "id"])
