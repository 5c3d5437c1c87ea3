"""Imports, so that the rows of a mistaken one can be found and retracted.

Rows of the previous release and of single requests belong to no import.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TIMESTAMP

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "imports",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("task_id", sa.Integer, sa.ForeignKey("tasks.id"), nullable=False),
        sa.Column("at", TIMESTAMP(timezone=True), nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("retracted_at", TIMESTAMP(timezone=True)),
        sa.Column("retraction_actor", sa.Text),
        sa.Column("retraction_reason", sa.Text),
        sa.Column("num_retracted", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    )
    op.create_index("imports_task_id_idx", "imports", ["task_id", "id"])
    op.add_column("events", sa.Column("import_id", sa.BigInteger))
    op.create_index("events_import_id_idx", "events", ["import_id"], postgresql_using="brin")
