"""The service's access to the database: work runs in threads, limited in number and time; beyond a limit, 503."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from contracts.errors import Unavailable
from store.errors import Locked, StoreOutage
from store.outages import LATE, is_locked, name_outage
from store.refusals import explain_refusal
from store.sessions import limit_waits

T = TypeVar("T")

# SQLSTATE codes of a transaction that lost to a concurrent one, as in a deadlock, or to the deletion of its task. It is
# tried this many times in all, with a pause between. Without one, it may take the same locks again before the waiting
# transaction wakes up.
_UNDONE = ("40001", "40P01", "23503")
_NUM_TRIES = 3
_PAUSE_SECONDS = 0.05
# After a lock was not granted, other transactions wait only briefly for this many seconds: each wait holds a connection
# of the pool, and requests that need no such lock must get one. A brief wait that ends in vain does not prolong this
# time, because writers of this API wait for each other too, and that is no sign of a lock that stays.
_BRIEF_SECONDS = 30.0
_WAIT_BRIEFLY = "SET LOCAL lock_timeout = '200ms'"


class Store:
    """Runs functions of a `Connection` in transactions of their own, off the event loop."""

    def __init__(self, engine: Engine, *, places: int, seconds: float, queue_size: int = 1000) -> None:
        self._engine = engine
        self._queue_size = queue_size
        self._seconds = seconds
        self._limiter = anyio.CapacityLimiter(places)
        self._is_brief_until = 0.0
        # A statement ends when its caller has stopped waiting.
        limit_waits(engine, {"statement_timeout": seconds})

    async def run(self, work: Callable[[Connection], T]) -> T:
        """The result of `work`, after commit. Raises Unavailable if the database does not answer in time.

        Work whose caller has stopped waiting is rolled back, unless its commit has already been sent.
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
        """Do the same in the calling thread, which must not be the event loop's. Raises Unavailable.

        A transaction that the database rolled back for a concurrent one is retried. Requests that store and delete the
        same rows lock them in different orders, and all that a client could do is retry.
        """
        for tries_left in reversed(range(_NUM_TRIES)):
            is_brief = time.monotonic() < self._is_brief_until
            try:
                with self._engine.begin() as connection:
                    if is_brief:
                        connection.exec_driver_sql(_WAIT_BRIEFLY)
                    return work(connection)
            except SQLAlchemyError as error:
                if tries_left and isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in _UNDONE:
                    time.sleep(_PAUSE_SECONDS)
                    continue
                if outage := name_outage(error):
                    if is_locked(error) and not is_brief:
                        self._is_brief_until = time.monotonic() + _BRIEF_SECONDS
                    raise (Locked if is_locked(error) else StoreOutage)(outage) from error
                raise
        raise AssertionError("the last try returns or raises")

    def explain(self, outage: Unavailable) -> str | None:
        """Why the database refuses, with the remedy, for the log of an outage; clients must not see it."""
        cause = outage.__cause__
        refusal = explain_refusal(cause, self._engine.url) if isinstance(cause, DBAPIError) else None
        return None if refusal is None else str(refusal)

    def close(self) -> None:
        self._engine.dispose()
