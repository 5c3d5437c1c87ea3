"""The training process, which does one job and ends: a cycle, a sweep of orphaned runs, or the rivals of one task.

Only this process loads torch and mlflow, so running out of memory, a hang or a broken device costs one window and never
the scheduler. The job comes as one line on standard input, which keeps passwords out of arguments and environment. The
pipe then stays open: it ends when the scheduler is gone.
"""

import io
import os
import signal
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog
from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError

from contracts.clock import format_moment
from contracts.errors import CycleError, Unavailable
from contracts.runtime.logs import configure_logs
from store.cycles import Cycle, find_cycles
from store.database import cycles, make_engine
from store.outages import name_outage
from store.tasks.catalog import list_tasks
from trainer.progress import Report
from trainer.scheduling.jobs import FillRivals, RunCycle, Sweep, decode_job
from trainer.scheduling.library_loading import fast_imports
from trainer.settings import TrainerSettings

if TYPE_CHECKING:
    from trainer.tracking.registry import Registry

log = structlog.get_logger(__name__)

EXIT_STORE_AWAY = 69
EXIT_ORPHANED = 70
EXIT_STOPPED = 130
# Facts of reports that are microseconds since the epoch.
_MOMENTS = ("cutoff", "origin")
_UNDER_WAY = ("requested", "running")
# Rivals leave the cores to the API and to cycles.
_NICENESS = 10


def run_job(stream: io.RawIOBase) -> int:
    """Do the job that comes first on the stream; returns the exit code.

    The stream is unbuffered: a thread that still waits in a buffered one would abort the interpreter at its end.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    settings, job = decode_job(stream.readline())
    threading.Thread(target=_die_with_parent, args=(stream,), daemon=True).start()
    configure_logs(settings)
    assert settings.database_url is not None
    assert settings.mlflow_url is not None
    engine = make_engine(settings.database_url)
    try:
        match job:
            case RunCycle(cycle, task):
                _run(engine, cycle, task, settings, settings.mlflow_url)
            case Sweep():
                end_orphans(engine, settings.mlflow_url)
            case FillRivals(task_id, _):
                _fill(engine, task_id, settings)
    except KeyboardInterrupt:
        return EXIT_STOPPED
    except SQLAlchemyError as error:  # a cycle that has begun handles outages itself
        if name_outage(error) is None:
            raise
        # The scheduler reports the outage; here only this job is lost.
        log.warning("child.cut_short", job=type(job).__name__, error=type(error).__name__, remedy="morrow doctor")
        return EXIT_STORE_AWAY
    return 0


def report_to(logger_name: str) -> Report:
    """A report that logs progress for operators: epochs at DEBUG only, timestamps in RFC 3339."""
    logger = structlog.get_logger(logger_name)

    def report(event: str, /, **facts: object) -> None:
        moments = {name: format_moment(at) for name in _MOMENTS if isinstance(at := facts.get(name), int)}
        (logger.debug if event == "epoch.ended" else logger.info)(event, **facts | moments)

    return report


def _run(engine: Engine, cycle: Cycle, task: str, settings: TrainerSettings, mlflow_url: str) -> None:
    with fast_imports():
        from trainer.retraining.cycle import run_cycle
        from trainer.tracking.registry import Registry

    try:
        end_orphans(engine, mlflow_url)
    except Unavailable as error:
        log.warning("registry.unreachable", reason=str(error), remedy="check MORROW_MLFLOW_URL: morrow doctor")
    except CycleError as error:
        log.warning("orphans.not_ended", reason=str(error), remedy="morrow doctor")
    with structlog.contextvars.bound_contextvars(task=task, cycle_id=cycle.cycle_id):
        report = report_to("trainer.cycle")
        run_cycle(engine, Registry(mlflow_url), cycle, settings=settings, now=lambda: datetime.now(UTC), report=report)


def _fill(engine: Engine, task_id: int, settings: TrainerSettings) -> None:
    with fast_imports():
        from trainer.network.device import choose_device
        from trainer.rivals.rivals import fill_rivals, read_for_rivals

    os.nice(_NICENESS)
    with engine.connect() as connection:
        (schema,) = (schema for schema in list_tasks(connection) if schema.task_id == task_id)
    reading = read_for_rivals(engine, schema, datetime.now(UTC))
    with structlog.contextvars.bound_contextvars(task=schema.task.name):
        report = report_to("trainer.rivals")
        fill_rivals(engine, reading, settings, choose_device(settings), report)


def _die_with_parent(stream: io.RawIOBase) -> None:
    """End this process when the pipe ends, as it does however the scheduler died; the lease then runs out."""
    stream.read()
    os._exit(EXIT_ORPHANED)


def end_orphans(engine: Engine, mlflow_url: str) -> None:
    """Let the runs of all tasks agree with the ledger, which knows each cycle by its id and lease.

    A run that MLflow shows as running although its cycle has ended is ended. One that has ended otherwise than its
    cycle gets the cycle's end, for example if the trainer was stopped right after a release.
    """
    with fast_imports():
        from trainer.tracking.registry import EndedRun, Registry

    registry = Registry(mlflow_url)
    with engine.connect() as connection:
        # A task without an ended cycle has no run that could disagree.
        with_ends = set(
            connection.execute(select(cycles.c.task_id).where(cycles.c.state.not_in(_UNDER_WAY)).distinct()).scalars()
        )
        known_tasks = list_tasks(connection, with_archived=True)
        names = {one.task_id: one.task.name for one in known_tasks if one.task_id in with_ends}
    runs = [run for task in names.values() for run in registry.open_runs(task)]
    runs += registry.ended_runs(names.values())
    with engine.connect() as connection:
        known = find_cycles(connection, {run.cycle_id for run in runs})
    for run in runs:
        cycle = known.get(run.cycle_id)
        if cycle is None or cycle.lease != run.lease or cycle.state in _UNDER_WAY or cycle.task_id not in names:
            continue
        facts = {"task": names[cycle.task_id], "run_id": run.run_id, "cycle_id": run.cycle_id}
        if not isinstance(run, EndedRun):
            _end_run(registry, names[cycle.task_id], run.run_id, cycle)
            log.info("run.orphan_ended", **facts)
        elif (run.status == "FINISHED") is (cycle.state == "failed") or run.state not in (None, cycle.state):
            _end_run(registry, names[cycle.task_id], run.run_id, cycle)
            log.info("run.corrected", **facts, state=cycle.state)


def _end_run(registry: "Registry", task: str, run_id: str, cycle: Cycle) -> None:
    """End a run as its cycle has ended."""
    from trainer.tracking.tags import NOTE_TAG, STATE_TAG, VERDICT_TAG, VERSION_TAG

    verdict = f"{cycle.state}: {cycle.reason}" if cycle.state in ("held", "skipped") else cycle.state
    tags = {STATE_TAG: cycle.state, VERDICT_TAG: verdict}
    if cycle.state == "released" and cycle.version is not None:
        tags[VERSION_TAG] = cycle.version
        if (description := registry.describe_version(task, cycle.version)) is not None:
            tags[NOTE_TAG] = description
    registry.correct_run(run_id, "FAILED" if cycle.state == "failed" else "FINISHED", tags, cycle.reason)


if __name__ == "__main__":
    with open(0, "rb", buffering=0, closefd=False) as standard_input:
        sys.exit(run_job(standard_input))
