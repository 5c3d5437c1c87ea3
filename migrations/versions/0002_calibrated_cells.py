"""Cells that carry calibration and say when they were scored; releases that say what they rest on."""

from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Double, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TIMESTAMP

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # Cells without scores cannot calibrate anything; the next cycle scores the kept fits again.
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
