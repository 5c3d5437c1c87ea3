"""Supervision of one training process: start, time limit, stop, and what its exit code means."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import structlog

from contracts.failure import KILLED, STOPPED, Failure, FailureCode
from contracts.runtime.addresses import split_credentials
from contracts.runtime.python_process import find_start_folder, python_command
from contracts.runtime.surroundings import build_environment
from contracts.verdict import Decision
from store.cycles import Cycle
from store.outages import SILENT
from trainer.scheduling.jobs import Job, RunCycle, Sweep, encode_job
from trainer.scheduling.worker import EXIT_ORPHANED, EXIT_STOPPED, EXIT_STORE_AWAY
from trainer.settings import TrainerSettings, count_threads

log = structlog.get_logger(__name__)

GRACE_SECONDS = 10.0
_SWEEP_LIMIT_SECONDS = 120.0


@dataclass
class Child:
    """A started process. At `deadline` (monotonic clock) it is killed, and its job fails with `overdue`.

    `limit` is the number of seconds that it may take, None once the deadline was shortened. `failure` is why it was
    ended from outside, if it was.
    """

    process: "subprocess.Popen[bytes]"
    job: Job
    began: float
    limit: float | None
    deadline: float
    overdue: Failure
    failure: Failure | None = None

    @property
    def cycle(self) -> Cycle | None:
        """The cycle that it carries out, if it does."""
        return self.job.cycle if isinstance(self.job, RunCycle) else None

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None


def start(settings: TrainerSettings, job: Job) -> Child:
    """Start a process for this job in a session of its own, so that a terminal's Ctrl-C does not reach it."""
    own = {
        "MORROW_MLFLOW_URL": split_credentials(settings.mlflow_url or "")[0],  # says which proxy is needed
        "OMP_NUM_THREADS": str(count_threads(settings)),
    }
    process = subprocess.Popen(
        python_command("-m", "trainer.scheduling.worker"),
        cwd=find_start_folder(),
        env=build_environment(os.environ, own=own),
        stdin=subprocess.PIPE,
        stdout=sys.stderr,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(encode_job(settings, job))
    process.stdin.flush()
    limit = _SWEEP_LIMIT_SECONDS if isinstance(job, Sweep) else settings.cycle_limit_seconds
    began = time.monotonic()
    overdue = Failure(FailureCode.TIME_LIMIT, f"The time limit of {limit:g} s was reached.")
    return Child(process, job, began, limit, began + limit, overdue)


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
        _kill(child)


def stop(child: Child, failure: Failure, grace_seconds: float = GRACE_SECONDS) -> None:
    """Ask a process to stop, and kill it if that takes too long."""
    child.failure = failure
    if child.is_running:
        child.process.terminate()
    try:
        child.process.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        _kill(child)


def reap(child: Child) -> Failure | None:
    """Wait for the exit code and close the pipe; returns why the job failed, None after a clean exit."""
    code = child.process.wait()
    if child.process.stdin is not None:
        child.process.stdin.close()
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


def _kill(child: Child) -> None:
    # The session holds the process and what it started.
    os.killpg(child.process.pid, signal.SIGKILL)
    child.process.wait()
