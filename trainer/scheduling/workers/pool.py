"""The training processes of a trainer: a cycle gets one that is warm, if there is one.

A process that imports torch and MLflow takes seconds of CPU time to start, many times what a small fit takes. So one
that has ended a cycle well stays for the next, and goes if none comes within a minute.
"""

import time
from collections.abc import Callable

from trainer.scheduling.workers.jobs import FillRivals, Job
from trainer.scheduling.workers.running_job import RunningJob, start
from trainer.scheduling.workers.worker_process import GRACE_SECONDS, WorkerProcess, end_worker
from trainer.settings import TrainerSettings

# How long a process without a job keeps its memory.
_KEEP_SECONDS = 60.0


class Workers:
    """The processes that have no job; `wake` is called, in a thread, whenever a job has ended."""

    def __init__(self, settings: TrainerSettings, wake: Callable[[], None]) -> None:
        self._settings = settings
        self._wake = wake
        self._idle: list[WorkerProcess] = []

    def start(self, job: Job) -> RunningJob:
        """Start a job, in a warm process if there is one. Rivals get a polite process of their own, and the memory."""
        if isinstance(job, FillRivals):
            self.close()
        while self._idle and not self._idle[-1].is_idle:
            self._idle.pop().close()
        return start(self._settings, job, self._idle.pop() if self._idle else None, self._wake)

    def take_back(self, worker: WorkerProcess) -> None:
        """Keep the process of a job that has ended, if it waits for another one."""
        if worker.is_idle:
            self._idle.append(worker)

    def retire(self) -> None:
        """Let those end that have had no job for long."""
        now = time.monotonic()
        while self._idle and now - self._idle[0].idle_since > _KEEP_SECONDS:
            self._idle.pop(0).close()

    def close(self) -> None:
        """Let all end."""
        leaving, self._idle = self._idle, []
        for worker in leaving:
            worker.close()
        for worker in leaving:
            end_worker(worker, GRACE_SECONDS)
