"""What the trainer has done while no cycle is asked for: rivals are fitted, one task at a time.

None of it stands in the ledger of cycles. What is left to do is read off the matrix, so a stop, a kill or a restart
costs one fit at most. A session's lock in PostgreSQL keeps several trainers from filling the same cells; it goes with
its connection, however this process ends.
"""

import time
from collections.abc import Set
from datetime import datetime

import structlog
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from contracts.clock import to_micros
from contracts.failure import STORE_OUTAGES, Failure, FailureCode
from store.catalog import list_tasks
from trainer.rivals.missing_cells import MissingCell, find_missing_cells
from trainer.scheduling.jobs import FillRivals

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 5.0
_INTERRUPTIONS = STORE_OUTAGES | {FailureCode.STOPPED, FailureCode.PREEMPTED}
_TRY_LOCK = text("SELECT pg_try_advisory_lock(hashtext('morrow.rivals'), :task_id)")
_UNLOCK = text("SELECT pg_advisory_unlock_all()")


class Idle:
    """What outlives a tick: the lock that is held, and which missing cells have been tried in vain."""

    def __init__(self, engine: Engine, max_tries: int) -> None:
        self._engine = engine
        self._max_tries = max_tries
        self._tried: dict[int, tuple[Set[MissingCell], int]] = {}
        self._lock: Connection | None = None
        self._look_at = 0.0

    def choose(self, now: datetime) -> FillRivals | None:
        """The next task whose rivals lack cells and can be tried, its lock taken; None where there is none.

        To be asked while no process runs.
        """
        if time.monotonic() < self._look_at:
            return None
        self._look_at = time.monotonic() + _PAUSE_SECONDS
        self._release()  # of a process that could not be started
        with self._engine.connect() as connection:
            for schema in list_tasks(connection):
                missing = frozenset(find_missing_cells(connection, schema, to_micros(now)))
                if missing and self._may_try(schema.task_id, missing) and self._take(schema.task_id):
                    log.info("rivals.began", task=schema.task.name, num_gaps=len(missing))
                    return FillRivals(schema.task_id, schema.task.name)
        return None

    def conclude(self, job: FillRivals, failure: Failure | None, now: datetime) -> None:
        """After the end of a process: what it has left is not tried for ever. `failure` is None after a clean end."""
        log.info("rivals.ended", task=job.task, reason=None if failure is None else failure.reason)
        self._release()
        self._look_at = 0.0
        if failure is not None and failure.code in _INTERRUPTIONS:
            return
        with self._engine.connect() as connection:
            left = frozenset(
                cell
                for schema in list_tasks(connection)
                if schema.task_id == job.task_id
                for cell in find_missing_cells(connection, schema, to_micros(now))
            )
        former, num_tries = self._tried.get(job.task_id, (frozenset(), 0))
        tries = self._max_tries if failure is None else 1 + (num_tries if former == left else 0)
        self._tried[job.task_id] = left, tries

    def _may_try(self, task_id: int, missing: Set[MissingCell]) -> bool:
        tried, num_tries = self._tried.get(task_id, (frozenset(), 0))
        return tried != missing or num_tries < self._max_tries

    def _release(self) -> None:
        if self._lock is not None:
            try:
                # Said, not left to the end of the session: that comes a moment after its connection is closed.
                self._lock.execute(_UNLOCK)
            except DBAPIError:
                self._lock.invalidate()  # Back in the pool it would go on holding the lock.
            self._lock.close()
            self._lock = None

    def _take(self, task_id: int) -> bool:
        lock = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        if lock.execute(_TRY_LOCK, {"task_id": task_id}).scalar_one():
            self._lock = lock
            return True
        lock.close()
        return False
