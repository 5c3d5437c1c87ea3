"""Calibration in cells, verdicts in releases, and overrides in cycles."""

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Double, Text, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # Cells without scores cannot be used for calibration; the next cycle scores the kept fits again.
    op.execute("DELETE FROM error_cells")
    op.add_column("error_cells", Column("num_revisions", BigInteger, nullable=False))
    op.add_column("error_cells", Column("is_complete", Boolean, nullable=False))
    op.add_column("error_cells", Column("scores", ARRAY(Double), nullable=False))
    op.add_column("error_cells", Column("tempered", ARRAY(Double), nullable=False))
    op.add_column("error_cells", Column("scored_at", TIMESTAMP(timezone=True), nullable=False))
    op.add_column("releases", Column("calibration", JSONB))
    op.add_column("releases", Column("verdict", JSONB))
    op.drop_constraint("releases_action_check", "releases")
    op.create_check_constraint(
        "action", "releases", text("action in ('release', 'rollback', 'calibrate', 'close', 'reopen', 'override')")
    )
    op.create_index("releases_task_id_idx", "releases", ["task_id", "id"])
    op.create_index(
        "releases_champions_idx",
        "releases",
        ["task_id", "id"],
        postgresql_where=text("action in ('release', 'rollback')"),
    )
    op.add_column("cycles", Column("override_actor", Text))
    op.add_column("cycles", Column("override_reason", Text))
