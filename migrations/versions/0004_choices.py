"""Recipes chosen by the trainer."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "choices",
        sa.Column("task_id", sa.Integer, sa.ForeignKey("tasks.id"), primary_key=True),
        sa.Column("recipe", sa.Text, primary_key=True),
        sa.Column("asked", JSONB, nullable=False),
        sa.Column("training", JSONB, nullable=False),
        sa.Column("cutoff", TIMESTAMP(timezone=True), nullable=False),
        sa.Column("error", sa.Double),
        sa.Column("error_before", sa.Double),
        sa.Column("num_trials", sa.Integer, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("run_id", sa.Text),
        sa.Column("chosen_at", TIMESTAMP(timezone=True), nullable=False),
    )
