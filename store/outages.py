"""What keeps the database from doing something now, told from a statement that is at fault itself.

Who meets an outage tries again later, or says so; who meets anything else has found a mistake. The sentences hold
nothing of the error: they may be answered to anybody.
"""

import re

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as NoPlace

BUSY = "All connections of this process to the database are taken."
SILENT = "The database does not answer."
NOT_MIGRATED = "The database has not got the tables of this version."
FULL = "The database takes no more connections."
LATE = "The database did not answer in time."
# By SQLSTATE, or the class that it begins with.
_SENTENCES = {
    "08": SILENT,
    "25006": "The database takes no writes.",
    "25": SILENT,
    "40": "The database has undone this for the sake of something else.",
    "42P01": NOT_MIGRATED,
    "53100": "The database has no room left.",
    "53200": "The database has no memory left.",
    "53300": FULL,
    "53": "The database has reached one of its limits.",
    "55P03": LATE,
    "57014": LATE,
    "57": SILENT,
    "58": "The database's machine has failed it.",
}
OUTAGES = frozenset({BUSY, *_SENTENCES.values()})
# A server that refuses a connection tells its reason in words only.
_FULL = re.compile(r"FATAL: .*(?:too many clients|connection slots|too many connections)")


def name_outage(error: Exception) -> str | None:
    """A sentence where the database cannot do it now; None where what it was asked, or anything else, is at fault."""
    if isinstance(error, NoPlace):
        return BUSY
    if not isinstance(error, DBAPIError):
        return None
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return next((_SENTENCES[key] for key in (state, state[:2]) if key in _SENTENCES), None)
    if not isinstance(error, OperationalError | InterfaceError):
        return None
    # There was no connection, or there is none any more.
    return FULL if _FULL.search(str(error.orig)) else SILENT
