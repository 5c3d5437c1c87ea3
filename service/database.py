"""The database as the service sees it: work runs in threads, so many at a time, and for so long; else 503."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from contracts.errors import Unavailable
from store.errors import StoreOutage
from store.outages import LATE, name_outage

T = TypeVar("T")

# Codes of SQLSTATE that end one of two transactions which wait for each other; how often one is begun before its sender
# is told, and after how long: at once, it may take again what the other has waited for, before that one has woken up.
_UNDONE = ("40001", "40P01")
_NUM_TRIES = 3
_PAUSE_SECONDS = 0.05


class Store:
    """Runs functions of a `Connection` in transactions of their own, off the event loop."""

    def __init__(self, engine: Engine, *, places: int, seconds: float, queue_size: int = 1000) -> None:
        self._engine = engine
        self._queue_size = queue_size
        self._seconds = seconds
        self._limiter = anyio.CapacityLimiter(places)
        event.listen(engine, "connect", self._limit_statements)

    async def run(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, after commit. Raises Unavailable where the database does not answer in time.

        Work that nobody waits for any more is rolled back, unless its commit is on the way already.
        """
        if self._limiter.statistics().tasks_waiting >= self._queue_size:
            raise Unavailable("Too many requests wait for the database.")
        given_up = threading.Event()

        def work_in_time(connection: Connection) -> T:
            result = work(connection)
            if given_up.is_set():
                raise StoreOutage(LATE)
            return result

        try:
            with anyio.fail_after(self._seconds):
                return await anyio.to_thread.run_sync(
                    self.transact, work_in_time, limiter=self._limiter, abandon_on_cancel=True
                )
        except TimeoutError:
            raise StoreOutage(LATE) from None
        finally:
            given_up.set()

    def transact(self, work: Callable[[Connection], T]) -> T:
        """The same in the calling thread, for a thread that is not the event loop's. Raises Unavailable.

        Work of which the database has undone everything, for the sake of somebody else's, is begun anew: rows that are
        stored while others delete them are not taken in one order, and their sender could do no more than send again.
        """
        for tries_left in reversed(range(_NUM_TRIES)):
            try:
                with self._engine.begin() as connection:
                    return work(connection)
            except SQLAlchemyError as error:
                if tries_left and isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in _UNDONE:
                    time.sleep(_PAUSE_SECONDS)
                    continue
                if outage := name_outage(error):
                    raise StoreOutage(outage) from error
                raise
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        self._engine.dispose()

    def _limit_statements(self, connection: DBAPIConnection, _record: object) -> None:
        """A statement that nobody waits for any more ends by itself; a stricter limit of the role's own stays."""
        cursor = connection.cursor()
        cursor.execute(_LIMIT, (int(self._seconds * 1000),))
        cursor.close()
        connection.commit()


_LIMIT = """
    SELECT set_config('statement_timeout', least(nullif(setting::bigint, 0), %s)::text, false)
    FROM pg_settings WHERE name = 'statement_timeout'
"""
