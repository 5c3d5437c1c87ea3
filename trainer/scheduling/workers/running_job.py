"""A job at work in a training process: its start, time limit and stop, and why it failed.

A stop, a kill and a crash end the process too, so they cost one job.
"""

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from contracts.failure import KILLED, STOPPED, Failure, FailureCode
from contracts.verdict import Decision
from store.cycles.ledger import Cycle
from store.outages import SILENT
from trainer.scheduling.workers.jobs import Job, RunCycle, Sweep, encode_job
from trainer.scheduling.workers.worker import EXIT_ORPHANED, EXIT_STOPPED, EXIT_STORE_AWAY, EXIT_UNIT_LEFT
from trainer.scheduling.workers.worker_process import (
    GRACE_SECONDS,
    WorkerProcess,
    end_worker,
    kill_worker,
    start_worker,
)
from trainer.settings import TrainerSettings

log = structlog.get_logger(__name__)

_SWEEP_LIMIT_SECONDS = 120.0
# What an exit code of a training process says of its job.
_ENDINGS = {
    EXIT_STOPPED: STOPPED,
    EXIT_ORPHANED: STOPPED,
    EXIT_STORE_AWAY: SILENT,
    EXIT_UNIT_LEFT: Failure(FailureCode.CYCLE_ERROR, "The unit could not be carried out; see the log of its process."),
    -signal.SIGKILL: KILLED,
}


@dataclass
class RunningJob:
    """A job at work in a process. At `deadline` (monotonic clock) it is killed, and its job fails with `overdue`.

    `limit` is the number of seconds that it may take, None once the deadline was shortened. `failure` is why it was
    ended from outside, if it was.
    """

    worker: WorkerProcess
    job: Job
    began: float
    limit: float | None
    deadline: float
    overdue: Failure
    failure: Failure | None = None
    # When its lease is renewed next (monotonic clock).
    renew_at: float = 0.0

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The process that does the job."""
        return self.worker.process

    @property
    def cycle(self) -> Cycle | None:
        """The cycle that it carries out, if it does."""
        return self.job.cycle if isinstance(self.job, RunCycle) else None

    @property
    def is_running(self) -> bool:
        return not self.worker.ended.is_set()


def start(
    settings: TrainerSettings, job: Job, worker: WorkerProcess | None = None, wake: Callable[[], None] = lambda: None
) -> RunningJob:
    """Let an idle process do this job, or a new one if none is given or if it has just ended."""
    line = encode_job(settings, job)
    if worker is None or not worker.give(line):
        worker = start_worker(settings, wake if worker is None else worker.wake)
        worker.give(line)
    limit = _SWEEP_LIMIT_SECONDS if isinstance(job, Sweep) else settings.cycle_limit_seconds
    began = time.monotonic()
    overdue = Failure(FailureCode.TIME_LIMIT, f"The time limit of {limit:g} s was reached.")
    return RunningJob(worker, job, began, limit, began + limit, overdue)


def shorten_deadline(running: RunningJob, seconds: float, overdue: Failure) -> None:
    """Let a process run for this many seconds at most, and say why."""
    deadline = time.monotonic() + seconds
    if deadline < running.deadline:
        running.limit, running.deadline, running.overdue = None, deadline, overdue


def kill_if_overdue(running: RunningJob) -> None:
    """Kill a process that is past its deadline; its job fails for that reason."""
    if running.is_running and time.monotonic() > running.deadline:
        running.failure = running.overdue
        log.error("child.killed", reason=running.overdue.reason)
        kill_worker(running.worker)


def ask_to_stop(running: RunningJob, failure: Failure) -> None:
    """Ask a process to stop, without waiting for it."""
    running.failure = failure
    running.process.terminate()


def stop(running: RunningJob, failure: Failure, grace_seconds: float = GRACE_SECONDS) -> None:
    """Ask a process to stop unless it was asked before, and kill it if that takes too long."""
    if running.failure is not failure:
        ask_to_stop(running, failure)
    end_worker(running.worker, grace_seconds)


def reap(running: RunningJob) -> Failure | None:
    """Wait for the end of the job; returns why it failed, None after a clean end. The process may stay for another."""
    running.worker.ended.wait()
    if not running.worker.stays:
        running.worker.close()
        code = running.process.wait()
    else:
        code = 0
    if running.failure is not None:
        return running.failure
    if code == 0:
        return None
    if code in _ENDINGS:
        return _ENDINGS[code]
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return Failure(FailureCode.CRASHED, f"The training process {how}.")


def find_broken_rule(running: RunningJob, failure: Failure) -> Decision:
    """The rule that the failed cycle broke; times in seconds."""
    if running.limit is not None and failure.code is FailureCode.TIME_LIMIT:
        seconds = round(time.monotonic() - running.began, 1)
        return Decision("cycle_limit", False, seconds, running.limit, failure.reason)
    return Decision("completed", False, reason=failure.reason)
