"""The service's access to the database: work runs in threads, limited in number and time; beyond a limit, 503."""

import threading
import time
from collections.abc import Callable, Collection
from functools import partial
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
# After a lock was not granted, transactions about the same task wait only briefly for these seconds. Each wait holds a
# connection of the pool, and requests that need no such lock must get one. If this many tasks meet locks at once, all
# transactions wait briefly, because somebody may hold a whole table. A brief wait that ends in vain does not prolong
# this time: writers of this API wait for each other too, and that is no sign of a lock that stays.
_BRIEF_SECONDS = 30.0
_MANY_TASKS = 3
_WAIT_BRIEFLY = "SET LOCAL lock_timeout = '200ms'"


class Store:
    """Runs functions of a `Connection` in transactions of their own, off the event loop."""

    def __init__(self, engine: Engine, *, places: int, seconds: float, queue_size: int = 1000) -> None:
        self._engine = engine
        self._queue_size = queue_size
        self._seconds = seconds
        self._limiter = anyio.CapacityLimiter(places)
        # Name of a task -> when its transactions wait as long as others again; "" for those about no single task.
        self._brief_until: dict[str, float] = {}
        # A statement ends when its caller has stopped waiting.
        limit_waits(engine, {"statement_timeout": seconds})

    async def run(self, work: Callable[[Connection], T], about: Collection[str] = (), *, briefly: bool = False) -> T:
        """The result of `work`, after commit. Raises Unavailable if the database does not answer in time.

        `about` names the tasks of `work`. It waits briefly for locks with `briefly`, or if one has just met one.
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
                transact = partial(self.transact, work_in_time, about, briefly=briefly)
                return await anyio.to_thread.run_sync(transact, limiter=self._limiter, abandon_on_cancel=True)
        except TimeoutError:
            raise StoreOutage(LATE) from None
        finally:
            given_up.set()

    def waits_briefly(self, task: str) -> bool:
        """Whether a transaction about this task has just met a lock."""
        return self._brief_until.get(task, 0.0) > time.monotonic()

    def transact(self, work: Callable[[Connection], T], about: Collection[str] = (), *, briefly: bool = False) -> T:
        """Do the same in the calling thread, which must not be the event loop's. Raises Unavailable.

        A transaction that the database rolled back for a concurrent one is retried. Requests that store and delete the
        same rows lock them in different orders, and all that a client could do is retry.
        """
        for tries_left in reversed(range(_NUM_TRIES)):
            is_brief = self._is_brief(about)
            try:
                with self._engine.begin() as connection:
                    if is_brief or briefly:
                        connection.exec_driver_sql(_WAIT_BRIEFLY)
                    return work(connection)
            except SQLAlchemyError as error:
                if tries_left and isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in _UNDONE:
                    time.sleep(_PAUSE_SECONDS)
                    continue
                if outage := name_outage(error):
                    if is_locked(error) and not is_brief and len(about) <= 1:
                        self._brief_until["".join(about)] = time.monotonic() + _BRIEF_SECONDS
                    raise (Locked if is_locked(error) else StoreOutage)(outage) from error
                raise
        raise AssertionError("the last try returns or raises")

    def _is_brief(self, about: Collection[str]) -> bool:
        if not self._brief_until:
            return False
        now = time.monotonic()
        met = {task for task, until in [*self._brief_until.items()] if until > now}
        if not met:
            self._brief_until.clear()
        return len(met) >= _MANY_TASKS or not met.isdisjoint(about or [""])

    def explain(self, outage: Unavailable) -> str | None:
        """Why the database refuses, with the remedy, for the log of an outage; clients must not see it."""
        cause = outage.__cause__
        refusal = explain_refusal(cause, self._engine.url) if isinstance(cause, DBAPIError) else None
        return None if refusal is None else str(refusal)

    def close(self) -> None:
        self._engine.dispose()
