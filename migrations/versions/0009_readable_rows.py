"""Constraints that keep out what no process of Morrow can read, such as a moment `infinity` written past the API.

One such row stopped the follower of every task. Rows that are there are not checked: some may break them, and count for
nothing.
"""

from alembic import op
from sqlalchemy import exists, select
from sqlalchemy import table as sql_table

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    for table, columns in _MOMENTS.items():
        conditions = [_IN_CALENDAR.format(column) for column in columns]
        _add(table, "moments", " and ".join(conditions))
    for table, name, condition in _OTHERS:
        _add(table, name, condition)


def _add(table: str, name: str, condition: str) -> None:
    has_rows = op.get_bind().execute(select(exists(select(1).select_from(sql_table(table))))).scalar_one()
    how = " NOT VALID" if has_rows else ""
    op.execute(f"ALTER TABLE {table} ADD CONSTRAINT {table}_{name}_check CHECK ({condition}){how}")


_IN_CALENDAR = "\"{0}\" >= '0001-01-01T00:00:00Z' and \"{0}\" < '10000-01-01T00:00:00Z'"
_MOMENTS = {
    "tasks": ("created_at",),
    "schemas": ("created_at",),
    "choices": ("cutoff", "chosen_at"),
    "events": ("at", "known_at", "received_at", "superseded_at"),
    "erasures": ("at",),
    "rejected_events": ("received_at",),
    "imports": ("at", "retracted_at"),
    "cycles": ("cutoff", "requested_at", "started_at", "ended_at", "lease_until", "read_at"),
    "error_cells": ("origin", "window", "scored_at"),
    "releases": ("valid_until", "at"),
    "api_keys": ("created_at", "revoked_at"),
}
_OTHERS = (
    ("tasks", "name", "name <> ''"),
    ("schemas", "spec", "jsonb_typeof(spec) = 'object' and revision > 0"),
    ("events", "texts", "revision > 0 and event_id <> '' and (label <> '' or superseded_at is not null)"),
    (
        "events",
        "numbers",
        "array_ndims(numbers) <= 1 and array_position(numbers, null) is null "
        "and 'infinity' <> all(numbers) and '-infinity' <> all(numbers)",
    ),
    ("events", "categories", "array_ndims(categories) <= 1 and array_position(categories, null) is null"),
    (
        "error_cells",
        "figures",
        "num_rows >= 0 and array_position(scores, null) is null and array_position(tempered, null) is null",
    ),
    ("releases", "version", "version <> ''"),
    ("api_keys", "rate", "rate > 0 and rate < 'infinity'"),
)
