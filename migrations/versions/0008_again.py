"""A released cutoff may be trained once more: an attempt names the released one that it replaces.

The unique index allows one release for each released attempt that is replaced, and one for none. So two trainers still
cannot release the same attempt twice. The previous release names no attempt, so the new index means the same to it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("cycles", sa.Column("replaces", sa.BigInteger))
    op.drop_index("cycles_one_released_key", "cycles")
    op.create_index(
        "cycles_one_release_key",
        "cycles",
        ["task_id", "cutoff", sa.text("coalesce(replaces, 0)")],
        unique=True,
        postgresql_where=sa.text("state = 'released'"),
    )
