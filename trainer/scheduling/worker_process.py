"""Supervision of one training process and of its job: start, time limit, stop, and what its exit code means.

A process that has done a job may stay for another one, which then begins without the seconds that imports take. A stop,
a kill and a crash end the process, so they cost one job.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from contracts.failure import KILLED, STOPPED, Failure, FailureCode
from contracts.runtime.addresses import split_credentials
from contracts.runtime.python_process import find_start_folder, python_command
from contracts.runtime.surroundings import build_environment
from contracts.verdict import Decision
from store.cycles.ledger import Cycle
from store.outages import SILENT
from trainer.scheduling.jobs import Job, RunCycle, Sweep, decode_outcome, encode_job
from trainer.scheduling.worker import EXIT_ORPHANED, EXIT_STOPPED, EXIT_STORE_AWAY
from trainer.settings import TrainerSettings, count_threads

log = structlog.get_logger(__name__)

GRACE_SECONDS = 10.0
_SWEEP_LIMIT_SECONDS = 120.0


@dataclass
class Worker:
    """A training process, which does one job after the other. `ended` is set once it has none, or is no more.

    `stays` says whether it waits for another job. `wake` is called, in a thread, whenever a job has ended.
    """

    process: "subprocess.Popen[bytes]"
    wake: Callable[[], None]
    ended: threading.Event = field(default_factory=threading.Event)
    stays: bool = False
    idle_since: float = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether another job can be given to it."""
        return self.stays and self.process.poll() is None

    def give(self, line: bytes) -> bool:
        """Send it a job; returns False if the process has just ended."""
        assert self.process.stdin is not None
        self.stays = False
        self.ended.clear()
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
        except BrokenPipeError:
            self.close()
            return False
        return True

    def follow(self, reports: int) -> None:
        """Note the ends of jobs that the process reports at this end of a pipe, until the pipe ends with it."""
        with open(reports, "rb") as lines:
            for line in lines:
                self.stays, self.idle_since = decode_outcome(line).stays, time.monotonic()
                self.ended.set()
                self.wake()
        self.stays = False
        self.process.wait()
        self.ended.set()
        self.wake()

    def close(self) -> None:
        """Let the process end, which it does at once if it has no job."""
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()


@dataclass
class Child:
    """A job at work in a process. At `deadline` (monotonic clock) it is killed, and its job fails with `overdue`.

    `limit` is the number of seconds that it may take, None once the deadline was shortened. `failure` is why it was
    ended from outside, if it was.
    """

    worker: Worker
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


def start_worker(settings: TrainerSettings, wake: Callable[[], None]) -> Worker:
    """Start a process in a session of its own, so that a terminal's Ctrl-C does not reach it. It waits for a job."""
    own = {
        "MORROW_MLFLOW_URL": split_credentials(settings.mlflow_url or "")[0],  # says which proxy is needed
        "OMP_NUM_THREADS": str(count_threads(settings)),
    }
    reports, reporting = os.pipe()
    try:
        process = subprocess.Popen(
            python_command("-m", "trainer.scheduling.worker", str(reporting)),
            cwd=find_start_folder(),
            env=build_environment(os.environ, own=own),
            stdin=subprocess.PIPE,
            stdout=sys.stderr,
            start_new_session=True,
            pass_fds=[reporting],
        )
    except BaseException:
        os.close(reports)
        raise
    finally:
        os.close(reporting)
    worker = Worker(process, wake)
    threading.Thread(target=worker.follow, args=(reports,), daemon=True).start()
    return worker


def start(
    settings: TrainerSettings, job: Job, worker: Worker | None = None, wake: Callable[[], None] = lambda: None
) -> Child:
    """Let an idle process do this job, or a new one if none is given or if it has just ended."""
    line = encode_job(settings, job)
    if worker is None or not worker.give(line):
        worker = start_worker(settings, wake if worker is None else worker.wake)
        worker.give(line)
    limit = _SWEEP_LIMIT_SECONDS if isinstance(job, Sweep) else settings.cycle_limit_seconds
    began = time.monotonic()
    overdue = Failure(FailureCode.TIME_LIMIT, f"The time limit of {limit:g} s was reached.")
    return Child(worker, job, began, limit, began + limit, overdue)


def shorten_deadline(child: Child, seconds: float, overdue: Failure) -> None:
    """Let a process run for this many seconds at most, and say why."""
    deadline = time.monotonic() + seconds
    if deadline < child.deadline:
        child.limit, child.deadline, child.overdue = None, deadline, overdue


def kill_if_overdue(child: Child) -> None:
    """Kill a process that is past its deadline; its job fails for that reason."""
    if child.is_running and time.monotonic() > child.deadline:
        child.failure = child.overdue
        log.error("child.killed", reason=child.overdue.reason)
        _kill(child.worker)


def ask_to_stop(child: Child, failure: Failure) -> None:
    """Ask a process to stop, without waiting for it."""
    child.failure = failure
    child.process.terminate()


def stop(child: Child, failure: Failure, grace_seconds: float = GRACE_SECONDS) -> None:
    """Ask a process to stop unless it was asked before, and kill it if that takes too long."""
    if child.failure is not failure:
        ask_to_stop(child, failure)
    end_worker(child.worker, grace_seconds)


def end_worker(worker: Worker, grace_seconds: float) -> None:
    """Wait for the end of a process that was asked for it, and kill it if that takes too long."""
    try:
        worker.process.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        _kill(worker)


def reap(child: Child) -> Failure | None:
    """Wait for the end of the job; returns why it failed, None after a clean end. The process may stay for another."""
    child.worker.ended.wait()
    if not child.worker.stays:
        child.worker.close()
        code = child.process.wait()
    else:
        code = 0
    if child.failure is not None:
        return child.failure
    if code == 0:
        return None
    if code in (EXIT_STOPPED, EXIT_ORPHANED):
        return STOPPED
    if code == EXIT_STORE_AWAY:
        return SILENT
    if code == -signal.SIGKILL:
        return KILLED
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return Failure(FailureCode.CRASHED, f"The training process {how}.")


def find_broken_rule(child: Child, failure: Failure) -> Decision:
    """The rule that the failed cycle broke; times in seconds."""
    if child.limit is not None and failure.code is FailureCode.TIME_LIMIT:
        seconds = round(time.monotonic() - child.began, 1)
        return Decision("cycle_limit", False, seconds, child.limit, failure.reason)
    return Decision("completed", False, reason=failure.reason)


def _kill(worker: Worker) -> None:
    # The session holds the process and what it started.
    os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
