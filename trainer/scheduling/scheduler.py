"""The trainer process: every tick it requests due cutoffs and claims cycles, which training processes carry out.

While no cycle is requested, a process fits rivals; it is stopped as soon as a cycle is requested.

The `cycles` table is the only source of truth. Nothing but the tick itself is scheduled in memory, so a clock change, a
pause or a restart only costs time. While PostgreSQL is away the trainer waits, and logs that once. The number of a
tick's statements does not depend on that of tasks.
"""

import logging
import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from uuid import uuid4

import structlog
from apscheduler.schedulers.background import BackgroundScheduler
from sqlalchemy import ColumnElement, Engine, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from contracts.clock import format_moment
from contracts.errors import Fault, InvalidInput, LeaseLost
from contracts.failure import DELETED, PREEMPTED, STOPPED, Failure, FailureCode
from contracts.runtime.http_clients import mlflow_options
from store.cycles.leases import claim_cycle, end_cycle, expire_leases, renew_lease
from store.database import cycles
from store.engine import make_engine
from store.objects import Objects
from store.outages import name_outage
from store.refusals import explain_refusal
from store.tasks.catalog import Schema
from store.tasks.current_tasks import CurrentTasks
from store.tasks.touched import KEPT_SECONDS, delete_notes
from trainer.hooks.deliveries import HookDeliveries
from trainer.hooks.upkeep import HookUpkeep
from trainer.monitoring.answer_scoring import AnswerScoring
from trainer.monitoring.live_scoring import LiveScoring
from trainer.scheduling.deletions import Deletions
from trainer.scheduling.due_requests import DueRequests
from trainer.scheduling.helping import Helping
from trainer.scheduling.idle_work import IdleWork
from trainer.scheduling.incomplete_events import IncompleteEvents
from trainer.scheduling.liveness import retire_heartbeat, write_heartbeat
from trainer.scheduling.prediction_days import PredictionDays
from trainer.scheduling.refused_rows import RefusedRows
from trainer.scheduling.registry_health import find_trouble
from trainer.scheduling.sealing import Sealing
from trainer.scheduling.workers import running_job
from trainer.scheduling.workers.jobs import FillRivals, HelpCycle, RunCycle, Sweep
from trainer.scheduling.workers.pool import Workers
from trainer.scheduling.workers.running_job import RunningJob
from trainer.scheduling.workers.worker_process import GRACE_SECONDS
from trainer.settings import TrainerSettings
from trainer.sharing.objects import open_objects
from trainer.sharing.upkeep import Upkeep

log = structlog.get_logger(__name__)

_SWEEP_PAUSE_SECONDS = 30.0
# A process that fits rivals or helps has nothing to clean up.
_BRIEF_GRACE_SECONDS = 2.0
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
    scheduler = BackgroundScheduler(timezone=UTC)
    objects = open_objects(settings)
    engine = make_engine(settings.database_url)
    trainer = Trainer(engine, settings, wake=lambda: tick_now(scheduler), objects=objects)
    live = LiveScoring(trainer.engine, settings, stop, objects)
    answers = AnswerScoring(trainer.engine, stop)
    deletions = Deletions(trainer.engine, settings, stop)
    refused = RefusedRows(trainer.engine, settings, stop)
    incomplete = IncompleteEvents(trainer.engine, settings, stop)
    upkeep = Upkeep(trainer.engine, settings, stop, objects)
    sealing = Sealing(trainer.engine, settings, stop)
    rows = (refused.tick, incomplete.tick, PredictionDays(trainer.engine, stop).tick, sealing.tick)
    hooks = (HookDeliveries(trainer.engine, settings, stop).tick, HookUpkeep(trainer.engine, stop).tick)
    ticks = (trainer.tick, live.tick, answers.tick, deletions.tick, *rows, upkeep.tick, *hooks)
    scheduler.add_executor("threadpool", max_workers=len(ticks))
    for job in ticks:
        scheduler.add_job(
            lambda tick: tick(datetime.now(UTC)),
            "interval",
            id=job.__qualname__,
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


def tick_now(scheduler: BackgroundScheduler) -> None:
    """Let the trainer tick at once, because a job has ended. While the scheduler ends, nothing happens."""
    if (job := scheduler.get_job(Trainer.tick.__qualname__)) is not None and scheduler.running:
        job.modify(next_run_time=datetime.now(UTC))


class Trainer:
    """The state that outlives a tick: the running jobs, and which outage was logged.

    `wake` is called, in a thread, whenever a job has ended.
    """

    def __init__(
        self,
        engine: Engine,
        settings: TrainerSettings,
        wake: Callable[[], None] = lambda: None,
        objects: Objects | None = None,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.running_jobs: list[RunningJob] = []
        self._workers = Workers(settings, wake)
        self._tasks = CurrentTasks()
        self._requests = DueRequests(engine, settings.max_attempts, timedelta(seconds=settings.retry_seconds))
        self._lease_time = timedelta(seconds=settings.lease_seconds)
        self._idle = IdleWork(engine, settings.max_attempts)
        self._helping = Helping(engine, settings, objects)
        self._ticked_at = time.monotonic()
        self._outage: FailureCode | None = None
        self._registry_trouble: str | None = None
        # Tasks whose past attempts must be read again.
        self._touched: set[int] = set()
        # An earlier trainer may have left runs open.
        self._must_sweep = True
        self._sweep_at = 0.0
        self._forget_at = 0.0

    @property
    def running_job(self) -> RunningJob | None:
        """The job that has run longest; None if there is none."""
        return self.running_jobs[0] if self.running_jobs else None

    def tick(self, now: datetime) -> None:
        """Supervise the jobs, expire leases, request due cutoffs, and start claimed cycles."""
        write_heartbeat(self.settings)
        self._log_late_tick()
        for running in self.running_jobs:
            running_job.kill_if_overdue(running)
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
        """End the jobs and their cycles; returns within seconds."""
        for running in self.running_jobs:
            running_job.ask_to_stop(running, STOPPED)
        for running in self.running_jobs:
            running_job.stop(running, STOPPED)
            try:
                self._finish(running, now)
            except SQLAlchemyError:
                log.warning("cycle.not_ended", reason="its lease will run out", remedy="morrow doctor")
        self._workers.close()
        self.engine.dispose()

    def _run_tick(self, now: datetime) -> None:
        for running in list(self.running_jobs):
            if running.is_running:
                self._renew(running, now)
            else:
                self._finish(running, now)
        with self.engine.begin() as connection:
            if expired := expire_leases(connection, now):
                # The next attempt sweeps by itself, so it comes first.
                self._must_sweep, self._sweep_at = True, time.monotonic() + _SWEEP_PAUSE_SECONDS
                for cycle in expired:
                    schema = self._tasks.schemas.get(cycle.task_id)
                    name = None if schema is None else schema.task.name
                    facts = {"task": name, "cycle_id": cycle.cycle_id, "step": cycle.step}
                    log.warning("cycle.expired", **facts, remedy="if its trainer lives, raise MORROW_LEASE_SECONDS")
        self._request(now)
        for running in list(self.running_jobs):
            if self._must_stop(running):
                grace = _BRIEF_GRACE_SECONDS if isinstance(running.job, FillRivals) else GRACE_SECONDS
                is_gone = not isinstance(running.job, FillRivals)  # `_must_stop` stops others for no other reason
                running_job.stop(running, DELETED if is_gone else PREEMPTED, grace)
                self._finish(running, now)
        self._claim(now)
        self._help(now)
        if time.monotonic() > self._forget_at:
            with self.engine.begin() as connection:
                delete_notes(connection)
            self._forget_at = time.monotonic() + KEPT_SECONDS
        if self.running_job is None:
            self._sweep()
        if self.running_job is None and (job := self._idle.choose(now)) is not None:
            self.running_jobs.append(self._workers.start(job))
        self._workers.retire()

    def _renew(self, running: RunningJob, now: datetime) -> None:
        if time.monotonic() < running.renew_at:
            return
        if isinstance(running.job, HelpCycle):
            self._helping.renew(running.job, now)
            running.renew_at = time.monotonic() + self.settings.lease_seconds / 3
        if running.cycle is None:
            return
        try:
            with self.engine.begin() as connection:
                renew_lease(connection, running.cycle, now, self._lease_time)
        except LeaseLost:
            # The process has just ended its cycle and is leaving, or it notices the loss at its next step.
            patience = self.settings.lease_seconds
            reason = f"Its lease was lost, and it did not leave within {patience:g} s."
            running_job.shorten_deadline(running, patience, Failure(FailureCode.LEASE_LOST, reason))
        running.renew_at = time.monotonic() + self.settings.lease_seconds / 3

    def _finish(self, running: RunningJob, now: datetime) -> None:
        """Reap the job; its cycle fails here if its process could not end it."""
        failure = running_job.reap(running)
        if isinstance(running.job, FillRivals):
            self._idle.finish(running.job, failure, now)
        elif isinstance(running.job, HelpCycle):
            self._helping.finish(running.job, failure)
        elif not isinstance(running.job, RunCycle):
            self._must_sweep = failure is not None
        elif failure is not None:
            self._must_sweep = True
            cycle, facts = running.job.cycle, {"task": running.job.task, "cycle_id": running.job.cycle.cycle_id}
            try:
                with self.engine.begin() as connection:
                    broken = running_job.find_broken_rule(running, failure)
                    end_cycle(connection, cycle, "failed", failure, now, broken=broken)
            except LeaseLost:
                log.info("cycle.ended_already", **facts)
            # Logged once the store has taken it: during an outage, each tick tries again.
            (log.info if failure is DELETED else log.error)("child.ended", **facts, reason=failure.reason)
        self.running_jobs.remove(running)
        self._workers.take_back(running.worker)

    def _request(self, now: datetime) -> None:
        """Read the tasks, and request their due cutoffs."""
        with self.engine.connect() as connection:
            self._touched |= set(self._tasks.read(connection))
        active = [schema for schema in self._tasks.schemas.values() if schema.lifecycle == "active"]
        self._requests.make(active, self._touched, now, cache(self._has_registry))  # MLflow is asked once for all tasks
        self._touched = set()

    def _claim(self, now: datetime) -> None:
        """Start requested cycles, one of a task at a time, while fewer run than may; helpers make room for them."""
        while sum(not isinstance(job.job, HelpCycle) for job in self.running_jobs) < self.settings.training_workers:
            scheduled = [task_id for task_id, one in self._tasks.schemas.items() if one.task.schedule == "window"]
            busy = [running.cycle.task_id for running in self.running_jobs if running.cycle is not None]
            with self.engine.begin() as connection:
                cycle = claim_cycle(
                    connection, uuid4().hex, now, self._lease_time, newest_first=scheduled, except_tasks=busy
                )
            if cycle is None:
                return
            schema = self._find_schema(cycle.task_id)
            if schema is None:
                log.error("task.unreadable", task_id=cycle.task_id, cycle_id=cycle.cycle_id)  # its lease will run out
                return
            facts = {"task": schema.task.name, "cycle_id": cycle.cycle_id, "cutoff": format_moment(cycle.cutoff)}
            log.info("cycle.claimed", **facts, attempt=cycle.attempt)
            # The process sweeps before it begins, so that no other sweep is needed.
            self._make_room(now)
            sweeps_all = self._must_sweep and self._has_registry()
            self._must_sweep = self._must_sweep and not sweeps_all
            running = self._workers.start(RunCycle(cycle, schema.task.name, sweeps_all))
            running.renew_at = time.monotonic() + self.settings.lease_seconds / 3
            self.running_jobs.append(running)

    def _make_room(self, now: datetime) -> None:
        """Stop a helper if all places are taken."""
        helpers = [running for running in self.running_jobs if isinstance(running.job, HelpCycle)]
        if helpers and len(self.running_jobs) >= self.settings.training_workers:
            running_job.stop(helpers[-1], PREEMPTED, _BRIEF_GRACE_SECONDS)
            self._finish(helpers[-1], now)

    def _help(self, now: datetime) -> None:
        """Let processes that have no cycle carry out units of others."""
        while len(self.running_jobs) < self.settings.training_workers:
            if (job := self._helping.claim(self._tasks.schemas, now)) is None:
                return
            running = self._workers.start(job)
            running.renew_at = time.monotonic() + self.settings.lease_seconds / 3
            self.running_jobs.append(running)

    def _find_schema(self, task_id: int) -> Schema | None:
        """A task, even if it was defined since this tick has read the tasks."""
        if task_id not in self._tasks.schemas:
            with self.engine.connect() as connection:
                self._touched |= set(self._tasks.read(connection))
        return self._tasks.schemas.get(task_id)

    def _must_stop(self, running: RunningJob) -> bool:
        """Whether a process must end: its task is deleted, or it fits rivals of a task that is not retrained now."""
        if running.cycle is not None:
            return running.cycle.task_id not in self._tasks.schemas
        if isinstance(running.job, HelpCycle):
            return running.job.task_id not in self._tasks.schemas
        if isinstance(running.job, FillRivals):
            schema = self._tasks.schemas.get(running.job.task_id)
            return schema is None or schema.lifecycle != "active" or self._must_preempt()
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
            self.running_jobs.append(self._workers.start(Sweep()))

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
