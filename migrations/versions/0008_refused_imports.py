"""Refused rows know the import that they came with.

So rows of an import that was retracted, or repeated with the file put right, are no longer counted as rows to send
again. Rows of the previous release belong to none.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    _note_imports_of_refused_rows()


def _note_imports_of_refused_rows() -> None:
    op.add_column("rejected_events", sa.Column("import_id", sa.BigInteger))
