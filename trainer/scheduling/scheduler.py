"""The trainer process: every tick it requests due cutoffs and claims one cycle, which a child process carries out.

While no cycle is requested, the child fits rivals; it is stopped as soon as a cycle is requested.

The `cycles` table is the only source of truth. Nothing but the tick itself is scheduled in memory, so a clock change, a
pause or a restart only costs time. While PostgreSQL is away the trainer waits, and logs that once.
"""

import logging
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from uuid import uuid4

import structlog
from apscheduler.schedulers.background import BackgroundScheduler
from sqlalchemy import ColumnElement, Connection, Engine, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from contracts.clock import format_moment, to_micros
from contracts.cutoffs import newest_cutoff
from contracts.errors import Conflict, Fault, InvalidInput, LeaseLost, NotFound
from contracts.failure import PREEMPTED, STOPPED, Failure, FailureCode
from contracts.runtime.http_clients import mlflow_options
from store.cycle_leases import claim_cycle, end_cycle, expire_leases, renew_lease
from store.cycle_requests import request_cycle, skip_overtaken
from store.cycles import list_cycles
from store.database import cycles, make_engine
from store.events.columns import find_last_received, find_newest
from store.outages import is_locked, name_outage
from store.refusals import explain_refusal
from store.tasks.catalog import Schema, list_tasks, lock_task
from trainer.monitoring.live_scoring import LiveScoring
from trainer.scheduling import worker_process
from trainer.scheduling.deletions import Deletions
from trainer.scheduling.due_cutoffs import due_cutoff
from trainer.scheduling.idle_work import IdleWork
from trainer.scheduling.jobs import FillRivals, RunCycle, Sweep
from trainer.scheduling.liveness import retire_heartbeat, write_heartbeat
from trainer.scheduling.registry_health import find_trouble
from trainer.scheduling.worker_process import Child
from trainer.settings import TrainerSettings

log = structlog.get_logger(__name__)

_SWEEP_PAUSE_SECONDS = 30.0
# A process that fits rivals has nothing to clean up.
_RIVAL_GRACE_SECONDS = 2.0
_LATE_TICKS = 10


def run_trainer(settings: TrainerSettings) -> None:
    """Run until SIGTERM or SIGINT; a running cycle then ends as failed, and the next start retries it.

    Raises InvalidInput if the settings name no database or no MLflow, or if MLflow cannot be asked as they say.
    """
    missing = [name for name in ("database_url", "mlflow_url") if getattr(settings, name) is None]
    if missing:
        raise InvalidInput(
            [Fault(f"MORROW_{name.upper()}", "is not set; `morrow up` brings its own") for name in missing]
        )
    assert settings.mlflow_url is not None
    mlflow_options(settings.mlflow_url)  # raises if a proxy is needed that cannot be used
    settings.home.mkdir(parents=True, exist_ok=True)
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    assert settings.database_url is not None
    trainer = Trainer(make_engine(settings.database_url), settings)
    live = LiveScoring(trainer.engine, settings, stop)
    deletions = Deletions(trainer.engine, settings, stop)
    scheduler = BackgroundScheduler(timezone=UTC)
    for job in (trainer.tick, live.tick, deletions.tick):
        scheduler.add_job(
            lambda tick: tick(datetime.now(UTC)),
            "interval",
            args=[job],
            seconds=settings.tick_seconds,
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,
            next_run_time=datetime.now(UTC),
        )
    scheduler.start()
    log.info("trainer.started", home=str(settings.home), device=settings.device)
    while not stop.wait(settings.tick_seconds):
        follow_clock(scheduler, datetime.now(UTC), timedelta(seconds=settings.tick_seconds))
    scheduler.shutdown(wait=True)
    trainer.stop(datetime.now(UTC))
    retire_heartbeat(settings)
    log.info("trainer.stopped")


def follow_clock(scheduler: BackgroundScheduler, now: datetime, tick: timedelta) -> None:
    """Tick now if the clock was set back: APScheduler would wait until the clock reaches the old time again."""
    for job in scheduler.get_jobs():
        if job.next_run_time - now > _LATE_TICKS * tick:
            seconds = round((job.next_run_time - now).total_seconds(), 1)
            log.warning("clock.set_back", seconds=seconds, remedy="synchronise the clock of this machine")
            job.modify(next_run_time=now)


class Trainer:
    """The state that outlives a tick: the child process, and which outage was logged."""

    def __init__(self, engine: Engine, settings: TrainerSettings) -> None:
        self.engine = engine
        self.settings = settings
        self.child: Child | None = None
        self._lease_time = timedelta(seconds=settings.lease_seconds)
        self._idle = IdleWork(engine, settings.max_attempts)
        self._renew_at = 0.0
        self._ticked_at = time.monotonic()
        self._outage: FailureCode | None = None
        self._registry_trouble: str | None = None
        self._unreadable: set[str] = set()
        # As of the last tick: the tasks that are there, and those that are retrained.
        self._task_ids: frozenset[int] = frozenset()
        self._active: frozenset[int] = frozenset()
        # An earlier trainer may have left runs open.
        self._must_sweep = True
        self._sweep_at = 0.0

    def tick(self, now: datetime) -> None:
        """Supervise the child, expire leases, request due cutoffs, and start the claimed cycle."""
        write_heartbeat(self.settings)
        self._log_late_tick()
        if self.child is not None:
            worker_process.kill_if_overdue(self.child)
        try:
            self._run_tick(now)
        except SQLAlchemyError as error:
            if (outage := name_outage(error)) is None:
                raise
            self._log_outage(outage, error)
        else:
            if self._outage is not None:
                log.info("store.reached")
            self._outage = None

    def stop(self, now: datetime) -> None:
        """End the child and its cycle; returns within seconds."""
        if self.child is not None:
            worker_process.stop(self.child, STOPPED)
            try:
                self._finish(self.child, now)
            except SQLAlchemyError:
                log.warning("cycle.not_ended", reason="its lease will run out", remedy="morrow doctor")
        self.engine.dispose()

    def _run_tick(self, now: datetime) -> None:
        if self.child is not None and self.child.is_running:
            self._renew(self.child, now)
        elif self.child is not None:
            self._finish(self.child, now)
            self.child = None
        with self.engine.begin() as connection:
            if expired := expire_leases(connection, now):
                names = {schema.task_id: schema.task.name for schema in list_tasks(connection, with_archived=True)}
                # The next attempt sweeps by itself, so it comes first.
                self._must_sweep, self._sweep_at = True, time.monotonic() + _SWEEP_PAUSE_SECONDS
                for cycle in expired:
                    facts = {"task": names.get(cycle.task_id), "cycle_id": cycle.cycle_id, "step": cycle.step}
                    log.warning("cycle.expired", **facts, remedy="if its trainer lives, raise MORROW_LEASE_SECONDS")
        self._request(now)
        if self.child is not None and self._must_stop(self.child):
            grace = _RIVAL_GRACE_SECONDS if isinstance(self.child.job, FillRivals) else worker_process.GRACE_SECONDS
            worker_process.stop(self.child, PREEMPTED, grace)
            self._finish(self.child, now)
            self.child = None
        if self.child is None:
            self._claim(now)
        if self.child is None:
            self._sweep()
        if self.child is None and (job := self._idle.choose(now)) is not None:
            self.child = worker_process.start(self.settings, job)

    def _renew(self, child: Child, now: datetime) -> None:
        if child.cycle is None or time.monotonic() < self._renew_at:
            return
        try:
            with self.engine.begin() as connection:
                renew_lease(connection, child.cycle, now, self._lease_time)
        except LeaseLost:
            # The child has just ended its cycle and is leaving, or it notices the loss at its next step.
            patience = self.settings.lease_seconds
            reason = f"Its lease was lost, and it did not leave within {patience:g} s."
            worker_process.shorten_deadline(child, patience, Failure(FailureCode.LEASE_LOST, reason))
        self._renew_at = time.monotonic() + self.settings.lease_seconds / 3

    def _finish(self, child: Child, now: datetime) -> None:
        """Reap the child; its cycle fails here if the child could not end it."""
        failure = worker_process.reap(child)
        if isinstance(child.job, FillRivals):
            self._idle.finish(child.job, failure, now)
        elif not isinstance(child.job, RunCycle):
            self._must_sweep = failure is not None
        elif failure is not None:
            self._must_sweep = True
            cycle, facts = child.job.cycle, {"task": child.job.task, "cycle_id": child.job.cycle.cycle_id}
            try:
                with self.engine.begin() as connection:
                    broken = worker_process.find_broken_rule(child, failure)
                    end_cycle(connection, cycle, "failed", failure, now, broken=broken)
            except LeaseLost:
                log.info("cycle.ended_already", **facts)
            # Logged once the store has taken it: during an outage, each tick tries again.
            log.error("child.ended", **facts, reason=failure.reason)

    def _request(self, now: datetime) -> None:
        """Request due cutoffs, each in a transaction of its own: no task waits for the lock or the rows of another."""
        has_registry = cache(self._has_registry)  # one answer for all tasks
        with self.engine.connect() as connection:
            schemas = list_tasks(connection, with_archived=True)
            active = [schema for schema in schemas if schema.lifecycle == "active"]
            self._task_ids = frozenset(schema.task_id for schema in schemas)
            self._active = frozenset(schema.task_id for schema in active)
            due = [schema for schema in active if self._find_due(connection, schema, now, has_registry) is not None]
        for schema in due:
            try:
                with self.engine.begin() as connection:
                    if lock_task(connection, schema.task_id, wait=False):  # otherwise a later tick tries again
                        self._request_due(connection, schema, now, has_registry)
            except (Conflict, NotFound):  # released, paused or deleted since the tasks were listed
                continue
            except SQLAlchemyError as error:
                if not is_locked(error):
                    raise

    def _request_due(
        self, connection: Connection, schema: Schema, now: datetime, has_registry: Callable[[], bool]
    ) -> None:
        """Request the task's due cutoff, if another trainer has not requested it meanwhile. Raises Conflict."""
        cutoff = self._find_due(connection, schema, now, has_registry)
        if cutoff is None:
            return
        _skip_overtaken(connection, schema, cutoff, now)
        cycle = request_cycle(connection, schema.task_id, cutoff, now, recipe=schema.task.recipe)
        log.info(
            "cycle.requested",
            task=schema.task.name,
            cutoff=format_moment(cutoff),
            attempt=cycle.attempt,
            late_seconds=(to_micros(now) - cutoff) / 1e6,
        )

    def _find_due(
        self, connection: Connection, schema: Schema, now: datetime, has_registry: Callable[[], bool]
    ) -> int | None:
        """The task's due cutoff; None as well if its cycles cannot be read, which is logged once."""
        task = schema.task
        try:
            past = list_cycles(connection, schema.task_id, limit=100)
        except Exception as error:  # one task's rows must not stop the others
            if getattr(getattr(error, "orig", None), "sqlstate", None) or name_outage(error) is not None:
                raise
            if task.name not in self._unreadable:
                log.error("task.unreadable", task=task.name, exc_info=error)
            self._unreadable.add(task.name)
            return None
        self._unreadable.discard(task.name)
        return due_cutoff(
            task,
            past,
            now,
            max_attempts=self.settings.max_attempts,
            pause=timedelta(seconds=self.settings.retry_seconds),
            has_registry=has_registry,
            newest_event=partial(find_newest, connection, schema.task_id, before=newest_cutoff(task, now)),
            last_received=partial(find_last_received, connection, schema.task_id),
        )

    def _claim(self, now: datetime) -> None:
        with self.engine.begin() as connection:
            tasks = {schema.task_id: schema.task for schema in list_tasks(connection, with_archived=True)}
            scheduled = [task_id for task_id, task in tasks.items() if task.schedule == "window"]
            cycle = claim_cycle(connection, uuid4().hex, now, self._lease_time, newest_first=scheduled)
        if cycle is not None and cycle.task_id not in tasks:
            log.error("task.unreadable", task_id=cycle.task_id, cycle_id=cycle.cycle_id)  # its lease will run out
        elif cycle is not None:
            task = tasks[cycle.task_id].name
            log.info(
                "cycle.claimed",
                task=task,
                cycle_id=cycle.cycle_id,
                cutoff=format_moment(cycle.cutoff),
                attempt=cycle.attempt,
            )
            self._renew_at = time.monotonic() + self.settings.lease_seconds / 3
            self.child = worker_process.start(self.settings, RunCycle(cycle, task))
            # The process sweeps before it begins, so that no other sweep is needed.
            self._must_sweep = self._must_sweep and not self._has_registry()

    def _must_stop(self, child: Child) -> bool:
        """Whether a process must end: its task is deleted, or it fits rivals of a task that is not retrained now."""
        if child.cycle is not None:
            return child.cycle.task_id not in self._task_ids
        if isinstance(child.job, FillRivals):
            return child.job.task_id not in self._active or self._must_preempt()
        return False

    def _must_preempt(self) -> bool:
        """Whether rivals must be stopped for a cycle or a sweep."""
        return self._has_cycle(cycles.c.state == "requested") or self._may_sweep()

    def _may_sweep(self) -> bool:
        """Whether a sweep of orphaned runs is due and MLflow answers. A running cycle's process has swept."""
        if not self._must_sweep or time.monotonic() < self._sweep_at or self._has_cycle(cycles.c.state == "running"):
            return False
        if not self._has_cycle(cycles.c.state.not_in(("requested", "running"))):
            self._must_sweep = False  # no cycle has ended, so no run is orphaned
            return False
        if not self._has_registry():
            self._sweep_at = time.monotonic() + _SWEEP_PAUSE_SECONDS
            return False
        return True

    def _sweep(self) -> None:
        """Start a sweep if one is due. A requested cycle comes first."""
        if self._may_sweep():
            self._sweep_at = time.monotonic() + _SWEEP_PAUSE_SECONDS
            self.child = worker_process.start(self.settings, Sweep())

    def _has_cycle(self, condition: ColumnElement[bool]) -> bool:
        with self.engine.connect() as connection:
            return connection.execute(select(cycles.c.id).where(condition).limit(1)).first() is not None

    def _has_registry(self) -> bool:
        assert self.settings.mlflow_url is not None
        trouble = find_trouble(self.settings.mlflow_url)
        if trouble not in (None, self._registry_trouble):
            log.warning("registry.unreachable", reason=trouble)
        self._registry_trouble = trouble
        return trouble is None

    def _log_late_tick(self) -> None:
        """Warn if this process was stopped, or the machine slept, for many ticks."""
        pause = time.monotonic() - self._ticked_at
        self._ticked_at += pause
        if pause > _LATE_TICKS * self.settings.tick_seconds:
            log.warning(
                "tick.late", seconds=round(pause, 1), remedy="give the trainer more cores, or set MORROW_THREADS"
            )

    def _log_outage(self, outage: Failure, error: SQLAlchemyError) -> None:
        if self._outage is not outage.code:
            lacks_tables = outage.code is FailureCode.STORE_NOT_MIGRATED
            refusal = explain_refusal(error, self.engine.url) if isinstance(error, DBAPIError) else None
            log.warning(
                "store.not_migrated" if lacks_tables else "store.unreachable",
                reason=outage.reason,
                detail=None if refusal is None else str(refusal),
                remedy="morrow migrate" if lacks_tables else "check MORROW_DATABASE_URL: morrow doctor",
            )
        self._outage = outage.code


def _skip_overtaken(connection: Connection, schema: Schema, cutoff: int, now: datetime) -> None:
    """Skip requests that were for the newest cutoff when they were made, and no longer are.

    A request that somebody made for an older cutoff, after its window had ended, stays.
    """
    if cutoff >= newest_cutoff(schema.task, now):
        skip_overtaken(connection, schema.task_id, cutoff, window=schema.task.window, now=now)
