"""Work for the time while no cycle is requested: rivals are fitted, one task at a time.

A search for work asks a few tasks only: first those that have changed since they were asked last, then those that were
asked longest ago. So its statements do not grow with the number of tasks.

It has no rows in `cycles`. The work left follows from the error matrix, so a stop, a kill or a restart costs one fit at
most. An open transaction holds a lock in PostgreSQL, which keeps two trainers from filling the same cells. It ends with
its connection, however this process ends. A lock of the session would stay behind in a pooler.
"""

import time
from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime

import structlog
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from contracts.clock import to_micros
from contracts.failure import STORE_OUTAGES, Failure, FailureCode
from store.tasks.catalog import Schema, read_tasks
from store.tasks.current_tasks import CurrentTasks
from trainer.data.windows import complete_until
from trainer.rivals.missing_cells import MissingCell, find_missing_cells
from trainer.scheduling.workers.jobs import FillRivals

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 5.0
# The most tasks that one search asks for missing cells.
_MAX_ASKED = 6
_INTERRUPTIONS = STORE_OUTAGES | {FailureCode.STOPPED, FailureCode.PREEMPTED}
_STAY = text("SET LOCAL idle_in_transaction_session_timeout = 0")
_TRY_LOCK = text("SELECT pg_try_advisory_xact_lock(hashtext('morrow.rivals'), :task_id)")


class IdleWork:
    """The state that outlives a tick: the lock that is held, and the missing cells that were tried in vain."""

    def __init__(self, engine: Engine, max_tries: int) -> None:
        self._engine = engine
        self._max_tries = max_tries
        self._tasks = CurrentTasks()
        # The end of the newest complete window of each task when it was asked last, in the order of asking.
        self._asked: dict[int, int] = {}
        self._tried: dict[int, tuple[Set[MissingCell], int]] = {}
        self._lock: Connection | None = None
        self._next_check = 0.0

    def choose(self, now: datetime) -> FillRivals | None:
        """The next task whose rivals lack cells and can be tried, its lock taken; None if none is found now.

        Call it while no process runs.
        """
        if time.monotonic() < self._next_check:
            return None
        self._next_check = time.monotonic() + _PAUSE_SECONDS
        self._unlock()  # for a process that could not be started
        with self._engine.connect() as connection:
            candidates = self._list_candidates(connection, to_micros(now))
            for one in candidates[:_MAX_ASKED]:
                schema, task_id = one.schema, one.schema.task_id
                self._asked.pop(task_id, None)
                self._asked[task_id] = one.complete
                missing = frozenset(find_missing_cells(connection, schema, to_micros(now)))
                if missing and self._may_try(task_id, missing) and self._try_lock(task_id):
                    log.info("rivals.began", task=schema.task.name, num_gaps=len(missing))
                    return FillRivals(task_id, schema.task.name)
        if any(one.is_fresh for one in candidates[_MAX_ASKED:]):
            self._next_check = 0.0
        return None

    def finish(self, job: FillRivals, failure: Failure | None, now: datetime) -> None:
        """Count a try once the process has ended; `failure` is None after a clean end.

        Cells that stay missing are tried `max_tries` times at most, and once if the process ended cleanly. An
        interruption does not count.
        """
        log.info("rivals.ended", task=job.task, reason=None if failure is None else failure.reason)
        self._unlock()
        self._next_check = 0.0
        if failure is not None and failure.code in _INTERRUPTIONS:
            return
        with self._engine.connect() as connection:
            left = frozenset(
                cell
                for schema in read_tasks(connection, [job.task_id])[0]
                for cell in find_missing_cells(connection, schema, to_micros(now))
            )
        former, num_tries = self._tried.get(job.task_id, (frozenset(), 0))
        tries = self._max_tries if failure is None else 1 + (num_tries if former == left else 0)
        self._tried[job.task_id] = left, tries

    def _list_candidates(self, connection: Connection, now: int) -> list["_Candidate"]:
        """The tasks with rivals, in the order in which to ask them."""
        for task_id in self._tasks.read(connection):
            self._asked.pop(task_id, None)
        found = []
        for schema in self._tasks.schemas.values():
            if schema.lifecycle == "active" and _has_rivals(schema):
                complete = complete_until(schema.task, now)
                found.append(_Candidate(schema, complete, self._asked.get(schema.task_id) != complete))
        places = {task_id: place for place, task_id in enumerate(self._asked)}
        return sorted(found, key=lambda one: (not one.is_fresh, places.get(one.schema.task_id, -1)))

    def _may_try(self, task_id: int, missing: Set[MissingCell]) -> bool:
        tried, num_tries = self._tried.get(task_id, (frozenset(), 0))
        return tried != missing or num_tries < self._max_tries

    def _unlock(self) -> None:
        if self._lock is not None:
            try:
                self._lock.rollback()
            except DBAPIError:
                self._lock.invalidate()  # in the pool it would keep the lock
            self._lock.close()
            self._lock = None

    def _try_lock(self, task_id: int) -> bool:
        lock = self._engine.connect()
        lock.execute(_STAY)
        if lock.execute(_TRY_LOCK, {"task_id": task_id}).scalar_one():
            self._lock = lock
            return True
        lock.close()
        return False


@dataclass(frozen=True)
class _Candidate:
    """A task that may have work, the end of its newest complete window, and whether that is news since it was asked."""

    schema: Schema
    complete: int
    is_fresh: bool


def _has_rivals(schema: Schema) -> bool:
    """Whether a task has rivals besides its own method."""
    return bool(set(schema.task.guard.rivals) - {schema.task.training.method})
