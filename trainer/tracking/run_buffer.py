"""The MLflow run of one cycle, buffered so that it survives MLflow's absence.

A fit of hours must not fail because a tracking server restarts. So everything that is logged while the server is away
is kept, and sent once it is back. Only ending and registering wait for an answer.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path

import structlog

from contracts.errors import CycleError, Unavailable
from trainer.tracking.registry import Registry
from trainer.tracking.runs import Lineage, RunStatus
from trainer.tracking.tags import PARENT_TAG, REASON_TAG

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 5.0
_PAUSE_SECONDS_WHEN_AWAY = 15.0
_MAX_METRICS = 5000


class Run:
    """What one cycle logs, on its way to MLflow. `run_id` is None until the server has given one."""

    def __init__(self, registry: Registry, task: str, name: str, tags: Mapping[str, str], now: Callable[[], datetime]):
        self.run_id: str | None = None
        self.registry = registry
        self._task, self._name, self._first_tags = task, name, dict(tags)
        self._now = now
        self._metrics: list[tuple[str, float, int, int]] = []
        self._params: dict[str, str] = {}
        self._tags: dict[str, str] = {}
        # What is no parameter, tag or metric of the run itself, in order; each is sent with the run's id.
        self._parcels: list[Callable[[str], None]] = []
        self._num_metrics = 0
        self._quiet_until = 0.0
        self._is_away = False

    def log_params(self, params: Mapping[str, object]) -> None:
        """Keep parameters for the next flush."""
        self._params |= {key: str(value) for key, value in params.items()}

    def set_tags(self, tags: Mapping[str, object]) -> None:
        """Keep tags for the next flush."""
        self._tags |= {key: str(value) for key, value in tags.items()}

    def log_metric(self, key: str, value: float, step: int) -> None:
        """Keep one value for the next flush. Values beyond a bound are dropped: a run cannot hold every step."""
        if self._num_metrics < _MAX_METRICS:
            self._num_metrics += 1
            self._metrics.append((key, value, step, self._milliseconds()))

    def log_file(self, file: Path, write: Callable[[Path], None] | None = None) -> None:
        """Keep a file for the next flush. If it cannot be read by then, the run goes without it.

        `write` makes the file, and only then: what a run shows must not delay a release. The run goes without it too if
        that fails, which is logged as a bug.
        """

        def send(run_id: str) -> None:
            try:
                if write is None or self._is_written(file, write):
                    self.registry.log_file(run_id, file)
            except OSError as error:
                log.warning(
                    "run.file_missing",
                    task=self._task,
                    file=file.name,
                    reason=error.strerror,
                    remedy="give MORROW_HOME to one trainer alone",
                )

        self._parcels.append(send)

    def _is_written(self, file: Path, write: Callable[[Path], None]) -> bool:
        try:
            write(file)
        except OSError:
            raise
        except Exception:  # a picture that cannot be drawn fails no cycle, but it is a bug
            log.exception("run.file_failed", task=self._task, file=file.name)
            return False
        return True

    def log_lineage(self, lineage: Lineage) -> None:
        """Keep the description of the rows that the run uses for the next flush."""
        self._parcels.append(lambda run_id: self.registry.log_lineage(run_id, lineage))

    def add_child(
        self, name: str, metrics: Iterable[tuple[str, float, int]], params: Mapping[str, str], tags: Mapping[str, str]
    ) -> None:
        """Keep a finished part of the cycle as a run below this one; its metrics are (key, value, step)."""
        at = self._milliseconds()
        stamped = [(key, value, step, at) for key, value, step in islice(metrics, _MAX_METRICS)]

        def send(run_id: str) -> None:
            child = self.registry.start_run(self._task, name, {**self._first_tags, **tags, PARENT_TAG: run_id})
            self.registry.log(child, stamped, params, {})
            self.registry.end_run(child, "FINISHED")

        self._parcels.append(send)

    def flush_if_due(self) -> None:
        """Send what is kept, once in a while. While the server is away, warn once and keep everything."""
        if time.monotonic() < self._quiet_until:
            return
        try:
            self.flush()
        except Unavailable:
            if not self._is_away:
                log.warning("registry.unreachable", task=self._task, remedy="check MORROW_MLFLOW_URL: morrow doctor")
            self._is_away = True
            self._quiet_until = time.monotonic() + _PAUSE_SECONDS_WHEN_AWAY
        else:
            self._quiet_until = time.monotonic() + _PAUSE_SECONDS

    def start(self) -> str:
        """Begin the run if it has not begun, and send nothing else; returns its id. Raises Unavailable."""
        if self.run_id is None:
            self.run_id = self.registry.start_run(self._task, self._name, self._first_tags)
            self._quiet_until = time.monotonic() + _PAUSE_SECONDS
        return self.run_id

    def flush(self) -> str:
        """Send everything now; returns the run's id. Raises Unavailable."""
        run_id = self.start()
        if self._metrics or self._params or self._tags:
            self.registry.log(run_id, self._metrics, self._params, self._tags)
            self._metrics, self._params, self._tags = [], {}, {}
        while self._parcels:
            self._parcels[0](run_id)
            self._parcels.pop(0)
        if self._is_away:
            log.info("registry.reached", task=self._task)
            self._is_away = False
        return run_id

    def end(self, status: RunStatus, reason: str | None) -> bool:
        """Send what is left and close the run; returns whether it is closed. If not, a sweep closes it later."""
        if reason is not None:
            self.set_tags({REASON_TAG: reason})
        try:
            run_id = self.flush()
            self.registry.end_run(run_id, status)
        except (Unavailable, CycleError) as error:
            facts = {"task": self._task, "run_id": self.run_id, "status": status, "error": str(error)}
            log.warning("run.not_ended", **facts, remedy="a sweep ends it once MLflow answers: morrow doctor")
            return False
        return True

    def _milliseconds(self) -> int:
        return int(self._now().timestamp() * 1000)
