"""What all tables share: the names of their constraints, and moments that Python can read."""

from datetime import UTC, datetime

from sqlalchemy import CheckConstraint, Column, ColumnElement, MetaData
from sqlalchemy.dialects.postgresql import TIMESTAMP

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    }
)
moment_type = TIMESTAMP(timezone=True)
# The moments that Python's calendar has. PostgreSQL has others, which no process of ours can read.
FIRST_MOMENT = datetime(1, 1, 1, tzinfo=UTC)
LAST_MOMENT = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


def moments(*columns: str) -> CheckConstraint:
    """Keep out moments without microseconds: only a client that writes past the API could store them."""
    in_calendar = "\"{0}\" >= '0001-01-01T00:00:00Z' and \"{0}\" < '10000-01-01T00:00:00Z'"
    return CheckConstraint(" and ".join(in_calendar.format(column) for column in columns), name="moments")


def is_readable(moment: Column[datetime]) -> ColumnElement[bool]:
    """Whether a moment has microseconds."""
    return moment.between(FIRST_MOMENT, LAST_MOMENT)
