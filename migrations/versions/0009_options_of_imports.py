"""How the files of imports were read.

**Options** of an import, such as the column of its moments and their time zone, stand in its row. So the next step of
a task can spell the whole command. Imports of the previous release have none.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    _keep_options_of_imports()


def _keep_options_of_imports() -> None:
    op.add_column("imports", sa.Column("options", JSONB))
