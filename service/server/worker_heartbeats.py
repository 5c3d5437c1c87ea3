"""Heartbeats of an API's workers: each writes a file every second and reads the files of the others.

Every worker follows the same alias on its own. A worker that fails where another succeeds would keep answering with an
old version while the API as a whole looks healthy. So each compares itself with the others. A worker that stays behind
leaves readiness and stops itself, and the supervisor starts another. If no worker can follow, none is behind.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import structlog

from service.metrics import Metrics
from service.models.follower import Follower
from service.models.forecaster import Forecaster
from service.models.local_copies import read_current
from service.models.replaced_mappings import Derived
from service.models.task_states.task_state import RegistryState
from service.settings import ServiceSettings

HEARTBEAT_SECONDS = 1.0

log = structlog.get_logger(__name__)


class ServedVersion(msgspec.Struct, frozen=True):
    """The version a worker serves for one task, if any; its bound in microseconds; whether following it fails."""

    version: str | None
    valid_until: int | None
    is_degraded: bool


class Heartbeat(msgspec.Struct, frozen=True):
    """A worker's report about itself; `at` in seconds since the epoch."""

    pid: int
    at: float
    is_ready: bool
    database_answers: bool
    tasks: dict[str, ServedVersion]

    def version(self, task: str) -> str | None:
        """The version that the worker serves for a task."""
        served = self.tasks.get(task)
        return None if served is None else served.version


class WorkerHeartbeats:
    """The heartbeats of all workers, and how long this one has been behind. Without a `folder` there is one worker.

    `stop` asks this process to stop.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        follower: Follower,
        metrics: Metrics,
        *,
        folder: Path | None = None,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._follower = follower
        self._metrics = metrics
        self._folder = folder
        self._stop = stop
        self._models = settings.home / "models"
        self._pause = min(HEARTBEAT_SECONDS, settings.poll_seconds)
        self._patience = max(settings.stale_seconds, 2 * settings.poll_seconds)
        self._others: Sequence[Heartbeat] = ()
        self._served = Derived(_describe_tasks)
        self._behind_since: Mapping[str, float] = {}
        self._has_stopped = False

    def all(self, now: float, only: str | None = None) -> list[Heartbeat]:
        """This worker's heartbeat as of `now` (seconds since the epoch) and the last ones of the others, by pid.

        With `only`, this worker's has no task but that one.
        """
        own = self._describe(now) if only is None else describe_worker(self._follower, now, only)
        return sorted([own, *self._others], key=lambda one: one.pid)

    async def run(self) -> None:
        """Exchange heartbeats until cancelled."""
        while self._folder is not None:
            try:
                await anyio.to_thread.run_sync(self.exchange, self._folder, time.monotonic(), time.time())
            except OSError as error:  # a full disk must not stop the loop
                self._metrics.follower_errors.labels("disk").inc()
                log.warning("worker.not_told", reason=error.strerror)
            await anyio.sleep(self._pause)

    def exchange(self, folder: Path, monotonic: float, now: float) -> None:
        """Read the other workers' heartbeats, write this one's, and stop this worker if it stayed behind too long.

        Both times in seconds. Raises OSError if the heartbeat cannot be written.
        """
        own = self._describe(now)
        self._others = [one for one in read_heartbeats(folder) if one.pid != own.pid]
        current = self._read_disputed(own)
        behind = list_behind(own, current, self._others)
        self._behind_since = {task: self._behind_since.get(task, monotonic) for task in behind}
        stale = [task for task, since in self._behind_since.items() if monotonic - since >= self._patience]
        if stale and not self._has_stopped:
            self._has_stopped = True
            versions = {task: [own.version(task), current[task]] for task in stale}
            log.error("worker.stale", versions=versions, seconds=self._patience)
            self._metrics.stale_workers.inc()
            self._follower.retire()
            self._stop()
        write_heartbeat(folder, self._describe(now))

    def _describe(self, now: float) -> Heartbeat:
        """This worker's heartbeat about all tasks, which are described again only after a change."""
        follower = self._follower
        tasks = self._served.of(follower.forecasters, follower.registries)
        return Heartbeat(os.getpid(), now, follower.is_ready, follower.database_answers, tasks)

    def _read_disputed(self, own: Heartbeat) -> dict[str, str]:
        """The current versions in the home of the tasks for which another worker serves another version than this one.

        The files of the others need not be read, however many there are.
        """
        disputed = {
            task
            for other in self._others
            for task, served in other.tasks.items()
            if served.version is not None and served.version != own.version(task)
        }
        found = {task: read_current(self._models / task) for task in disputed}
        return {task: current.version for task, current in found.items() if current is not None}


def describe_worker(follower: Follower, now: float, only: str | None = None) -> Heartbeat:
    """This worker's heartbeat, about one task or all; `now` in seconds since the epoch."""
    tasks = _describe_tasks(follower.forecasters, follower.registries, only)
    return Heartbeat(os.getpid(), now, follower.is_ready, follower.database_answers, tasks)


def _describe_tasks(
    forecasters: Mapping[str, Forecaster], registries: Mapping[str, RegistryState], only: str | None = None
) -> dict[str, ServedVersion]:
    if only is None:
        known = {*forecasters, *registries}
    else:
        known = {only} if only in forecasters or only in registries else set()
    tasks = {}
    for task in sorted(known):
        forecaster, registry = forecasters.get(task), registries.get(task)
        tasks[task] = ServedVersion(
            None if forecaster is None else forecaster.version,
            None if forecaster is None else forecaster.valid_until,
            registry is not None and registry.state == "degraded",
        )
    return tasks


def list_behind(own: Heartbeat, current: Mapping[str, str], others: Iterable[Heartbeat]) -> list[str]:
    """Tasks whose current version in the home another worker serves and this one does not."""
    return [
        task
        for task, version in current.items()
        if own.version(task) != version and any(other.version(task) == version for other in others)
    ]


def write_heartbeat(folder: Path, heartbeat: Heartbeat) -> None:
    """Replace the worker's file in one step. Raises OSError."""
    temporary = folder / f".{heartbeat.pid}"
    temporary.write_bytes(msgspec.json.encode(heartbeat))
    temporary.replace(folder / f"{heartbeat.pid}.json")


def read_heartbeats(folder: Path) -> list[Heartbeat]:
    """The heartbeats of all live workers; files of dead ones are removed."""
    heartbeats = []
    for file in folder.glob("*.json"):
        if not _is_alive(int(file.stem)):
            file.unlink(missing_ok=True)
            continue
        with suppress(FileNotFoundError):  # another worker has removed it
            heartbeats.append(msgspec.json.decode(file.read_bytes(), type=Heartbeat))
    return heartbeats


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
