"""API keys: digests, scopes and rates."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("scopes", ARRAY(sa.Text), nullable=False),
        sa.Column("rate", sa.Double),
        sa.Column("created_at", TIMESTAMP(timezone=True), nullable=False),
        sa.Column("revoked_at", TIMESTAMP(timezone=True)),
    )
    op.create_index(
        "api_keys_name_key", "api_keys", ["name"], unique=True, postgresql_where=sa.text("revoked_at IS NULL")
    )
