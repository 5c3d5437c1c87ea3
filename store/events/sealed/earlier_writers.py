"""Writers that began before the ids of a sealed file were named, and so may store one of its events again."""

import time

from sqlalchemy import Engine, text

from contracts.failure import Failure, FailureCode
from store.errors import StoreOutage

_PAUSE_SECONDS = 0.05


def await_earlier_writers(engine: Engine, seconds: float) -> None:
    """Wait until every transaction that may have missed the ids of a file, and could store one of them, has ended."""
    deadline = time.monotonic() + seconds
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        open_now = set(connection.execute(_WRITERS).scalars())
        while open_now:
            if time.monotonic() > deadline:
                reason = (
                    f"A transaction has held a lock on the table of events for more than {seconds:g} s: find it in "
                    "pg_stat_activity, and seal again."
                )
                raise StoreOutage(Failure(FailureCode.STORE_BUSY, reason))
            time.sleep(_PAUSE_SECONDS)
            open_now &= set(connection.execute(_WRITERS).scalars())


_WRITERS = text("""
    SELECT DISTINCT virtualtransaction FROM pg_locks
    WHERE locktype = 'relation' AND (
            (relation = CAST('events' AS regclass) AND mode <> 'AccessShareLock')
            OR relation = CAST('sealed_ids' AS regclass)
        ) AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pid <> pg_backend_pid()
""")
