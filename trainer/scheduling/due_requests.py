"""Due cutoffs of all tasks, found and requested at once: the number of statements does not grow with that of tasks.

No task waits for the lock or the rows of another: a task whose row is locked waits for a later tick, and if a lock of
somebody else stops the common transaction, each task gets one of its own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from contracts.clock import format_moment, to_micros
from contracts.cutoffs import newest_cutoff
from contracts.task import Task
from store.cycles.ledger import PastAttempt, list_past_attempts
from store.cycles.requests import lock_free_tasks, request_due, skip_overtaken
from store.events.arrivals import find_last_received, find_newest_before
from store.outages import is_locked
from store.tasks.catalog import Schema
from trainer.scheduling.due_cutoffs import due_cutoff, import_span, lacks_newest

log = structlog.get_logger(__name__)

# The most tasks whose cutoffs one tick requests; the next tick goes on.
_MAX_AT_ONCE = 500


@dataclass
class DueRequests:
    """What is known from one tick to the next: past attempts by task, and the tasks whose rows cannot be judged.

    `max_attempts` and `pause` say how often and how soon a failed cutoff is tried again.
    """

    engine: Engine
    max_attempts: int
    pause: timedelta
    unreadable: set[str] = field(default_factory=set)
    past: dict[int, list[PastAttempt]] = field(default_factory=dict)

    def make(
        self, schemas: Collection[Schema], touched: Collection[int], now: datetime, has_registry: Callable[[], bool]
    ) -> None:
        """Request the due cutoff of each of these tasks, if another trainer has not requested it meanwhile.

        The attempts of `touched` tasks may have changed since the last call.
        """
        with self.engine.connect() as connection:
            found = list_past_attempts(connection, touched) if touched else {}
            known = {task_id: past for task_id, past in self.past.items() if task_id not in touched}
            self.past = known | found
            due = self._find_due(connection, schemas, self.past, now, has_registry)
        tasks = {schema.task_id: schema for schema in schemas if schema.task_id in due}
        some = dict(list(tasks.items())[:_MAX_AT_ONCE])
        if not some:
            return
        try:
            self._request(some, now, has_registry)
        except SQLAlchemyError as error:
            if not is_locked(error):
                raise
            for task_id, schema in some.items():
                self._request_if_free({task_id: schema}, now, has_registry)

    def _request_if_free(self, task: Mapping[int, Schema], now: datetime, has_registry: Callable[[], bool]) -> None:
        try:
            self._request(task, now, has_registry)
        except SQLAlchemyError as error:
            if not is_locked(error):
                raise

    def _request(self, tasks: Mapping[int, Schema], now: datetime, has_registry: Callable[[], bool]) -> None:
        with self.engine.begin() as connection:
            free = [tasks[task_id] for task_id in lock_free_tasks(connection, tasks)]
            past = list_past_attempts(connection, [schema.task_id for schema in free])
            due = self._find_due(connection, free, past, now, has_registry)
            # A request that somebody made for an older cutoff, after its window had ended, stays.
            newest = {
                task_id: (cutoff, tasks[task_id].task.window)
                for task_id, cutoff in due.items()
                if cutoff >= newest_cutoff(tasks[task_id].task, now)
            }
            skip_overtaken(connection, newest, now)
            attempts = request_due(connection, due, now)
        for task_id, attempt in attempts.items():
            log.info(
                "cycle.requested",
                task=tasks[task_id].task.name,
                cutoff=format_moment(due[task_id]),
                attempt=attempt,
                late_seconds=(to_micros(now) - due[task_id]) / 1e6,
            )

    def _find_due(
        self,
        connection: Connection,
        schemas: Collection[Schema],
        past: Mapping[int, Sequence[PastAttempt]],
        now: datetime,
        has_registry: Callable[[], bool],
    ) -> dict[int, int]:
        """Task id -> due cutoff (microseconds) of every task that has one."""
        newest = find_newest_before(
            connection,
            {
                schema.task_id: newest_cutoff(schema.task, now)
                for schema in schemas
                if lacks_newest(schema.task, past.get(schema.task_id, ()), now)
            },
        )
        spans = {
            schema.task_id: span
            for schema in schemas
            if schema.task_id in newest
            and (span := import_span(schema.task, past.get(schema.task_id, ()), now, newest[schema.task_id]))
        }
        received = find_last_received(connection, spans)
        due: dict[int, int] = {}
        for schema in schemas:
            own = past.get(schema.task_id, ())
            if schema.task_id not in newest and not any(one.state == "failed" for one in own):
                continue  # nothing new and nothing to try again, as for most tasks in most ticks
            cutoff = self._judge(
                schema.task,
                own,
                now,
                has_registry=has_registry,
                newest_event=newest.get(schema.task_id),
                last_received=received.get(schema.task_id),
            )
            if cutoff is not None:
                due[schema.task_id] = cutoff
        return due

    def _judge(
        self,
        task: Task,
        past: Sequence[PastAttempt],
        now: datetime,
        *,
        has_registry: Callable[[], bool],
        newest_event: int | None,
        last_received: datetime | None,
    ) -> int | None:
        """The task's due cutoff; None as well if its rows cannot be judged, which is logged once."""
        try:
            cutoff = due_cutoff(
                task,
                past,
                now,
                max_attempts=self.max_attempts,
                pause=self.pause,
                has_registry=has_registry,
                newest_event=newest_event,
                last_received=last_received,
            )
        except (ValueError, OverflowError) as error:  # one task's rows must not stop the others
            if task.name not in self.unreadable:
                log.error("task.unreadable", task=task.name, exc_info=error)
            self.unreadable.add(task.name)
            return None
        self.unreadable.discard(task.name)
        return cutoff
