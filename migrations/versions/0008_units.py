"""Units of cycles, and the imports of refused rows.

**Units** are the parts of a cycle's fits that several processes carry out side by side.

The previous release records none and claims none. It may delete a task that has some: they go with it.

**Refused rows** know the import that they came with. So rows of an import that was retracted, or repeated with the file
put right, no longer count as rows to send again. Rows of the previous release belong to none.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    _add_units()
    _note_imports_of_refused_rows()


def _add_units() -> None:
    moments = ("requested_at", "ended_at", "lease_until")
    in_calendar = "\"{0}\" >= '0001-01-01T00:00:00Z' and \"{0}\" < '10000-01-01T00:00:00Z'"
    op.create_table(
        "units",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("task_id", sa.Integer, sa.ForeignKey("tasks.id", ondelete="CASCADE"), nullable=False),
        sa.Column("cycle_id", sa.BigInteger, sa.ForeignKey("cycles.id", ondelete="CASCADE"), nullable=False),
        sa.Column("place", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("spec", JSONB, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("lease", sa.Text),
        sa.Column("lease_until", TIMESTAMP(timezone=True)),
        sa.Column("attempts", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("result", sa.LargeBinary),
        sa.Column("requested_at", TIMESTAMP(timezone=True), nullable=False),
        sa.Column("ended_at", TIMESTAMP(timezone=True)),
        sa.CheckConstraint("state in ('requested', 'running', 'done')", name=op.f("units_state_check")),
        sa.CheckConstraint(
            " and ".join(in_calendar.format(moment) for moment in moments), name=op.f("units_moments_check")
        ),
    )
    op.create_index("units_cycle_id_digest_key", "units", ["cycle_id", "digest"], unique=True)
    op.create_index("units_requested_idx", "units", ["place", "id"], postgresql_where=sa.text("state = 'requested'"))


def _note_imports_of_refused_rows() -> None:
    op.add_column("rejected_events", sa.Column("import_id", sa.BigInteger))
