"""Outages of PostgreSQL, as opposed to errors of a statement that is itself at fault.

Retry outages; anything else is a bug. The sentences quote nothing of the error, so any client may see them.
"""

import re

import psycopg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoPlace

from contracts.failure import Failure, FailureCode

BUSY = Failure(FailureCode.STORE_BUSY, "All connections of this process to the database are taken.")
SILENT = Failure(FailureCode.STORE_SILENT, "The database does not answer.")
NOT_MIGRATED = Failure(FailureCode.STORE_NOT_MIGRATED, "The database has not got the tables of this version.")
FULL = Failure(FailureCode.STORE_NO_CONNECTIONS, "The database takes no more connections.")
LATE = Failure(FailureCode.STORE_TIMEOUT, "The database did not answer in time.")
_LOCK_NOT_AVAILABLE = "55P03"
# By SQLSTATE, or by its class, the first two characters.
_OUTAGES = {
    "08": SILENT,
    "25006": Failure(FailureCode.STORE_READ_ONLY, "The database takes no writes."),
    "25": SILENT,
    "40": Failure(FailureCode.STORE_ROLLED_BACK, "The database has undone this for the sake of something else."),
    "42P01": NOT_MIGRATED,
    "53100": Failure(FailureCode.STORE_DISK_FULL, "The database has no room left."),
    "53200": Failure(FailureCode.STORE_OUT_OF_MEMORY, "The database has no memory left."),
    "53300": FULL,
    "53": Failure(FailureCode.STORE_LIMIT, "The database has reached one of its limits."),
    _LOCK_NOT_AVAILABLE: LATE,
    "57014": LATE,
    "57": SILENT,
    "58": Failure(FailureCode.STORE_MACHINE, "The database's machine has failed it."),
}
# A server that refuses a connection gives its reason only as text.
_FULL = re.compile(r"FATAL: .*(?:too many clients|connection slots|too many connections)")


def name_outage(error: Exception) -> Failure | None:
    """The outage behind an error of the database; None if the statement, or anything else, is at fault."""
    if isinstance(error, NoPlace):
        return BUSY
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:  # of a COPY, which SQLAlchemy does not see
        return next((_OUTAGES[key] for key in (error.sqlstate, error.sqlstate[:2]) if key in _OUTAGES), None)
    if not isinstance(error, DBAPIError):
        return None
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return next((_OUTAGES[key] for key in (state, state[:2]) if key in _OUTAGES), None)
    if not isinstance(error, OperationalError | InterfaceError):
        return None
    # There never was a connection, or it is gone.
    return FULL if _FULL.search(str(error.orig)) else SILENT


def is_locked(error: Exception) -> bool:
    """Whether a statement waited too long for a lock of another session; any other row or table may be free."""
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE
