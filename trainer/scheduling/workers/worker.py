"""The training process, which does one job after the other: cycles or their units, sweeps of runs, rivals of a task.

Only this process loads torch and mlflow, so running out of memory, a hang or a broken device costs one window and never
the scheduler. A job comes as one line on standard input, which keeps passwords out of arguments and environment. The
pipe stays open: it ends when the scheduler is gone. After a job that ended well, the process reports so and waits for
the next one. After any other it ends, and so it does before its memory has grown too far.
"""

import ctypes
import gc
import io
import os
import queue
import resource
import signal
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from contracts.clock import format_moment
from contracts.errors import CycleError, MorrowError, Unavailable
from contracts.runtime.logs import configure_logs
from store.cycles.ledger import State
from store.engine import make_engine
from store.outages import name_outage
from store.tasks.catalog import read_tasks
from trainer.progress import RUN_LEFT_OPEN, Report
from trainer.scheduling.workers.jobs import (
    FillRivals,
    HelpCycle,
    Job,
    Outcome,
    RunCycle,
    Sweep,
    decode_job,
    encode_outcome,
)
from trainer.scheduling.workers.library_loading import fast_imports
from trainer.scheduling.workers.orphaned_runs import Settled, end_orphans
from trainer.settings import TrainerSettings

log = structlog.get_logger(__name__)

EXIT_STORE_AWAY = 69
EXIT_ORPHANED = 70
EXIT_UNIT_LEFT = 75
EXIT_STOPPED = 130
# Facts of reports that are microseconds since the epoch.
_MOMENTS = ("cutoff", "origin")
# Rivals leave the cores to the API and to cycles.
_NICENESS = 10
# Bounds of a process that goes on after a job: libraries that leak, and memory that glibc keeps for a large fit.
_MAX_JOBS = 100
_MAX_MIB = 1024.0


def serve(stream: io.RawIOBase, reports: io.RawIOBase) -> int:
    """Do the jobs that come on the stream, and report each; returns the exit code of the process.

    The stream is unbuffered: a thread that still waits in a buffered one would abort the interpreter at its end.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    inbox = Inbox(stream)
    lasting = Lasting()
    num_jobs = 0
    try:
        while (line := inbox.receive()) is not None:
            settings, job = decode_job(line)
            code, is_well = _do(job, settings, lasting)
            if code != 0:
                return code
            num_jobs += 1
            stays = is_well and num_jobs < _MAX_JOBS and _tidy_memory() < _MAX_MIB
            inbox.finish()
            reports.write(encode_outcome(Outcome(stays)))
            if not stays:
                return 0
    except KeyboardInterrupt:
        return EXIT_STOPPED
    return 0


class Inbox:
    """The jobs on a stream. Its end ends this process, as it does however the scheduler died: a lease then runs out."""

    def __init__(self, stream: io.RawIOBase) -> None:
        self._stream = stream
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._has_job = False
        threading.Thread(target=self._read, daemon=True).start()

    def receive(self) -> bytes | None:
        """The next job; None if the stream has ended."""
        return self._lines.get()

    def finish(self) -> None:
        """The job that was received last has ended."""
        with self._lock:
            self._has_job = False

    def _read(self) -> None:
        while line := self._stream.readline():
            with self._lock:
                self._has_job = True
            self._lines.put(line)
        with self._lock:
            if self._has_job:
                os._exit(EXIT_ORPHANED)
            self._lines.put(None)


class Lasting:
    """What a process keeps from job to job.

    An engine knows its server and has compiled its statements; without a job it has no connection.
    """

    def __init__(self) -> None:
        self.settled = Settled()
        self._engines: dict[str, Engine] = {}

    def engine(self, database_url: str) -> Engine:
        """The engine of a database."""
        if database_url not in self._engines:
            self._engines[database_url] = make_engine(database_url)
        return self._engines[database_url]


def _do(job: Job, settings: TrainerSettings, lasting: Lasting) -> tuple[int, bool]:
    """Do a job; returns the exit code that it calls for, and whether this process is as good as new."""
    configure_logs(settings)
    assert settings.database_url is not None
    assert settings.mlflow_url is not None
    engine = lasting.engine(settings.database_url)
    try:
        match job:
            case RunCycle():
                state = _run(engine, job, settings, settings.mlflow_url, lasting.settled)
                return 0, state not in ("failed", None)
            case Sweep():
                end_orphans(engine, settings.mlflow_url)
            case FillRivals(task_id, _):
                _fill(engine, task_id, settings)
                return 0, False
            case HelpCycle():
                return (0, True) if _help(engine, job, settings) else (EXIT_UNIT_LEFT, False)
    except (SQLAlchemyError, psycopg.Error, Unavailable) as error:  # a cycle that has begun handles outages itself
        if name_outage(error) is None and not isinstance(error, Unavailable):
            raise
        # The scheduler reports the outage; here only this job is lost.
        log.warning("child.cut_short", job=type(job).__name__, error=type(error).__name__, remedy="morrow doctor")
        return EXIT_STORE_AWAY, False
    finally:
        engine.dispose()
    return 0, True


def _tidy_memory() -> float:
    """Give memory that the job has left back to the system; returns the MiB still held, 0 if they are unknown."""
    gc.collect()
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * resource.getpagesize() / 1024**2


def report_to(logger_name: str) -> Report:
    """A report that logs progress for operators: epochs at DEBUG only, timestamps in RFC 3339."""
    logger = structlog.get_logger(logger_name)

    def report(event: str, /, **facts: object) -> None:
        moments = {name: format_moment(at) for name in _MOMENTS if isinstance(at := facts.get(name), int)}
        (logger.debug if event == "epoch.ended" else logger.info)(event, **facts | moments)

    return report


def _run(engine: Engine, job: RunCycle, settings: TrainerSettings, mlflow_url: str, settled: Settled) -> State | None:
    with fast_imports():
        from trainer.retraining.cycle import run_cycle
        from trainer.tracking.registry import Registry

    cycle = job.cycle
    try:
        if job.sweeps_all or not settled.covers(engine, cycle):
            end_orphans(engine, mlflow_url, None if job.sweeps_all else cycle.task_id)
    except Unavailable as error:
        log.warning("registry.unreachable", reason=str(error), remedy="check MORROW_MLFLOW_URL: morrow doctor")
    except CycleError as error:
        log.warning("orphans.not_ended", reason=str(error), remedy="morrow doctor")
    is_left_open = False
    progress = report_to("trainer.cycle")

    def report(event: str, /, **facts: object) -> None:
        nonlocal is_left_open
        is_left_open |= event == RUN_LEFT_OPEN
        progress(event, **facts)

    with structlog.contextvars.bound_contextvars(task=job.task, cycle_id=cycle.cycle_id):
        registry = Registry(mlflow_url)
        state = run_cycle(engine, registry, cycle, settings=settings, now=lambda: datetime.now(UTC), report=report)
    settled.note(cycle, is_settled=state is not None and not is_left_open)
    return state


def _fill(engine: Engine, task_id: int, settings: TrainerSettings) -> None:
    with fast_imports():
        from trainer.data.replica import find_replica
        from trainer.network.device import choose_device
        from trainer.rivals.rivals import fill_rivals, read_for_rivals

    os.nice(_NICENESS)
    with engine.connect() as connection:
        (schema,), _ = read_tasks(connection, [task_id])
    reading = read_for_rivals(engine, schema, datetime.now(UTC), find_replica(settings))
    with structlog.contextvars.bound_contextvars(task=schema.task.name):
        report = report_to("trainer.rivals")
        fill_rivals(engine, reading, settings, choose_device(settings), report)


def _help(engine: Engine, job: HelpCycle, settings: TrainerSettings) -> bool:
    """Carry out a unit; returns whether that was possible. The process of its cycle then meets the same trouble."""
    with fast_imports():
        from trainer.executors.spread import help_with

    with structlog.contextvars.bound_contextvars(task=job.task, unit_id=job.unit_id):
        try:
            help_with(engine, settings, job.unit_id, job.lease, lambda: datetime.now(UTC))
        except MorrowError as error:
            if isinstance(error, Unavailable):
                raise
            log.warning("unit.failed", reason=str(error), remedy="none needed: the cycle's own process carries it out")
            return False
    return True


if __name__ == "__main__":
    number = int(sys.argv[1])
    os.set_inheritable(number, False)  # the pipe ends with this process, whatever it has started
    with open(0, "rb", buffering=0, closefd=False) as standard_input, open(number, "wb", buffering=0) as reporting:
        sys.exit(serve(standard_input, reporting))
