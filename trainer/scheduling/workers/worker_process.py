"""One training process as the trainer sees it: it starts, is given one job after the other, and ends.

A process that has done a job may stay for another one, which then begins without the seconds that imports take.
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

from contracts.runtime.addresses import split_credentials
from contracts.runtime.python_process import find_start_folder, python_command
from contracts.runtime.surroundings import build_environment
from trainer.scheduling.workers.jobs import decode_outcome
from trainer.settings import TrainerSettings, count_threads

GRACE_SECONDS = 10.0


@dataclass
class WorkerProcess:
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
        except (BrokenPipeError, ValueError):  # it has ended, or `follow` has closed the pipe since
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
        self.close()
        self.ended.set()
        self.wake()

    def close(self) -> None:
        """Let the process end, which it does at once if it has no job."""
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()


def start_worker(settings: TrainerSettings, wake: Callable[[], None]) -> WorkerProcess:
    """Start a process in a session of its own, so that a terminal's Ctrl-C does not reach it. It waits for a job."""
    own = {
        "MORROW_MLFLOW_URL": split_credentials(settings.mlflow_url or "")[0],  # says which proxy is needed
        "OMP_NUM_THREADS": str(count_threads(settings)),
    }
    reports, reporting = os.pipe()
    try:
        process = subprocess.Popen(
            python_command("-m", "trainer.scheduling.workers.worker", str(reporting)),
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
    worker = WorkerProcess(process, wake)
    threading.Thread(target=worker.follow, args=(reports,), daemon=True).start()
    return worker


def end_worker(worker: WorkerProcess, grace_seconds: float) -> None:
    """Wait for the end of a process that was asked for it, and kill it if that takes too long."""
    try:
        worker.process.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        kill_worker(worker)


def kill_worker(worker: WorkerProcess) -> None:
    """Kill the process and what it has started, which is in its session."""
    os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
