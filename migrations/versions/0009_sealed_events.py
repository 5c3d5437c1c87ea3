"""Sealed events.

**Sealed events** are rows that have left the table of events for Parquet files in an object store. The tables say which
files there are, what they hold of each window and import, which ids they hold, and which of their rows count no more.

The previous release knows no sealed events: it would not find them, and would store one a second time. So nothing is
sealed until somebody asks for it, which must wait until the previous release has gone. It may delete a task that has
some: they go with it.
"""

from datetime import datetime

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, TIMESTAMP

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    _add_sealed_events()


def _add_sealed_events() -> None:
    def task_id(*, is_key: bool = False) -> sa.Column[int]:
        of_task = sa.ForeignKey("tasks.id", ondelete="CASCADE")
        return sa.Column("task_id", sa.Integer, of_task, nullable=False, primary_key=is_key)

    def file_id() -> sa.Column[int]:
        return sa.Column(
            "file_id", sa.BigInteger, sa.ForeignKey("sealed_files.id", ondelete="CASCADE"), primary_key=True
        )

    def moment(name: str, *, is_key: bool = False) -> sa.Column[datetime]:
        return sa.Column(name, TIMESTAMP(timezone=True), nullable=False, primary_key=is_key)

    def in_calendar(table: str, *columns: str) -> sa.CheckConstraint:
        within = "\"{0}\" >= '0001-01-01T00:00:00Z' and \"{0}\" < '10000-01-01T00:00:00Z'"
        return sa.CheckConstraint(
            " and ".join(within.format(column) for column in columns), name=op.f(f"{table}_moments_check")
        )

    op.create_table(
        "sealed_files",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        task_id(),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("store", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        moment("first_at"),
        moment("last_at"),
        moment("last_known_at"),
        sa.Column("num_rows", sa.Integer, nullable=False),
        sa.Column("num_moved", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("schema_ids", ARRAY(sa.Integer), nullable=False),
        sa.Column("labels", ARRAY(sa.Text)),
        sa.Column("is_stale", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("trouble", sa.Text),
        moment("sealed_at"),
        sa.UniqueConstraint("task_id", "number", name=op.f("sealed_files_task_id_number_key")),
        in_calendar("sealed_files", "first_at", "last_at", "last_known_at", "sealed_at"),
    )
    op.create_table("taken_rows", file_id(), sa.Column("place", sa.Integer, primary_key=True))
    op.create_table(
        "sealed_windows",
        file_id(),
        moment("start", is_key=True),
        task_id(),
        moment("first_at"),
        moment("last_at"),
        moment("last_received_at"),
        sa.Column("num_rows", sa.Integer, nullable=False),
    )
    op.create_index("sealed_windows_task_id_first_at_idx", "sealed_windows", ["task_id", "first_at"])
    op.create_index("sealed_windows_task_id_last_at_idx", "sealed_windows", ["task_id", "last_at"])
    op.create_table(
        "sealed_imports",
        file_id(),
        sa.Column("import_id", sa.BigInteger, primary_key=True),
        task_id(),
        sa.Column("num_rows", sa.Integer, nullable=False),
    )
    op.create_index("sealed_imports_task_id_import_id_idx", "sealed_imports", ["task_id", "import_id"])
    op.create_table(
        "sealed_ids",
        task_id(is_key=True),
        sa.Column("bucket", sa.Integer, primary_key=True),
        sa.Column("entries", ARRAY(sa.BigInteger), nullable=False),
    )
    op.create_table(
        "sealed_objects",
        sa.Column("path", sa.Text, primary_key=True),
        sa.Column("store", sa.Text, nullable=False),
        moment("put_at"),
        in_calendar("sealed_objects", "put_at"),
    )
    op.execute(_HASH_ID)
    op.execute(_MAY_BE_SEALED)


# 56 bits of an id. PostgreSQL's own hashes may differ between versions.
_HASH_ID = """
CREATE FUNCTION hash_event_id(event_id text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CAST(CAST('x' || encode(substr(sha256(convert_to(event_id, 'UTF8')), 1, 7), 'hex') AS bit(56)) AS bigint)
$$
"""
_MAY_BE_SEALED = """
CREATE FUNCTION may_be_sealed(task integer, event_id text) RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT EXISTS (
        SELECT FROM hash_event_id(event_id) AS hash, sealed_ids, unnest(entries) AS entry
        WHERE task_id = task AND bucket = CAST(hash >> 40 AS integer) AND entry >> 23 = hash & 1099511627775
    )
$$
"""
