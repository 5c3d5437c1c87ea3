"""API keys: digests, scopes and rates."""

from sqlalchemy import CheckConstraint, Column, Double, Index, Integer, LargeBinary, Table, Text, text
from sqlalchemy.dialects.postgresql import ARRAY

from store.database.metadata import metadata, moment_type, moments

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("scopes", ARRAY(Text), nullable=False),
    Column("rate", Double),
    Column("created_at", moment_type, nullable=False),
    Column("revoked_at", moment_type),
    # The tasks that the key is for, if it is not for all.
    Column("task_ids", ARRAY(Integer)),
    moments("created_at", "revoked_at"),
    CheckConstraint("rate > 0 and rate < 'infinity'", name="rate"),
    Index("api_keys_name_key", "name", unique=True, postgresql_where=text("revoked_at IS NULL")),
)
