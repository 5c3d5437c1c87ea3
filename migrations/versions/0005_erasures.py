"""Erasures on request, and the erasure of each erased event row."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TIMESTAMP

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "erasures",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("task_id", sa.Integer, sa.ForeignKey("tasks.id"), nullable=False),
        sa.Column("at", TIMESTAMP(timezone=True), nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("num_events", sa.BigInteger, nullable=False),
        sa.Column("num_revisions", sa.BigInteger, nullable=False),
        sa.Column("num_rejected", sa.BigInteger, nullable=False),
    )
    op.create_index("erasures_task_id_idx", "erasures", ["task_id", "id"])
    op.add_column("events", sa.Column("erasure_id", sa.BigInteger))
