"""The workers of one API, as each of them sees the others: by files that every worker writes each second.

All of them follow the same alias, each for itself. One that fails where another succeeds would go on answering with a
former version while the API as a whole looks healthy. So each compares itself with the others, and one that stays
behind leaves readiness and ends itself; the supervisor starts another. Where nobody can follow, nobody is behind.
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
from service.models.local_copies import list_copies
from service.settings import ServiceSettings

BEAT_SECONDS = 1.0

log = structlog.get_logger(__name__)


class Following(msgspec.Struct, frozen=True):
    """What a worker answers with for one task, if with anything, until when (microseconds), and how following goes."""

    version: str | None
    valid_until: int | None
    is_degraded: bool


class Beat(msgspec.Struct, frozen=True):
    """What a worker says of itself; `at` in seconds since the epoch."""

    pid: int
    at: float
    is_ready: bool
    database_answers: bool
    tasks: dict[str, Following]

    def version(self, task: str) -> str | None:
        """The version that it answers with."""
        following = self.tasks.get(task)
        return None if following is None else following.version


class Siblings:
    """The beats of all workers, and since when this one is behind; alone where it shares no `folder` with others.

    `end` is how this process asks itself to stop.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        follower: Follower,
        metrics: Metrics,
        *,
        folder: Path | None = None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self._follower = follower
        self._metrics = metrics
        self._folder = folder
        self._end = end
        self._models = settings.home / "models"
        self._pause = min(BEAT_SECONDS, settings.poll_seconds)
        self._patience = max(settings.stale_seconds, 2 * settings.poll_seconds)
        self._others: Sequence[Beat] = ()
        self._behind_since: Mapping[str, float] = {}
        self._has_ended = False

    def beats(self, now: float) -> list[Beat]:
        """Of this worker as it is now (seconds since the epoch), and of the others as they were last seen, by pid."""
        return sorted([describe(self._follower, now), *self._others], key=lambda beat: beat.pid)

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while self._folder is not None:
            try:
                await anyio.to_thread.run_sync(self.look, self._folder, time.monotonic(), time.time())
            except OSError as error:  # a full disk must not end the looking
                self._metrics.follower_errors.labels("disk").inc()
                log.warning("worker.not_told", reason=error.strerror)
            await anyio.sleep(self._pause)

    def look(self, folder: Path, monotonic: float, now: float) -> None:
        """Say how this worker is, see how the others are, and end this one where it has been behind for too long.

        Both moments in seconds. Raises OSError where the others cannot be told.
        """
        own = describe(self._follower, now)
        self._others = [beat for beat in read_beats(folder) if beat.pid != own.pid]
        current = {task: copy.version for task, copy in list_copies(self._models).items()}
        behind = list_behind(own, current, self._others)
        self._behind_since = {task: self._behind_since.get(task, monotonic) for task in behind}
        stale = [task for task, since in self._behind_since.items() if monotonic - since >= self._patience]
        if stale and not self._has_ended:
            self._has_ended = True
            versions = {task: [own.version(task), current[task]] for task in stale}
            log.error("worker.stale", versions=versions, seconds=self._patience)
            self._metrics.stale_workers.inc()
            self._follower.retire()
            self._end()
        write_beat(folder, describe(self._follower, now))


def describe(follower: Follower, now: float) -> Beat:
    """This worker at a moment, in seconds since the epoch."""
    forecasters, registries = follower.forecasters, follower.registries
    tasks = {}
    for task in sorted({*forecasters, *registries}):
        forecaster, registry = forecasters.get(task), registries.get(task)
        tasks[task] = Following(
            None if forecaster is None else forecaster.version,
            None if forecaster is None else forecaster.valid_until,
            registry is not None and registry.state == "degraded",
        )
    return Beat(os.getpid(), now, follower.is_ready, follower.database_answers, tasks)


def list_behind(own: Beat, current: Mapping[str, str], others: Iterable[Beat]) -> list[str]:
    """Tasks for which another worker answers with the version that is current in the home, and this one does not."""
    return [
        task
        for task, version in current.items()
        if own.version(task) != version and any(other.version(task) == version for other in others)
    ]


def write_beat(folder: Path, beat: Beat) -> None:
    """Replace the worker's file in one step. Raises OSError."""
    temporary = folder / f".{beat.pid}"
    temporary.write_bytes(msgspec.json.encode(beat))
    temporary.replace(folder / f"{beat.pid}.json")


def read_beats(folder: Path) -> list[Beat]:
    """Of all workers that live; what dead ones have left is removed."""
    beats = []
    for file in folder.glob("*.json"):
        if not _lives(int(file.stem)):
            file.unlink(missing_ok=True)
            continue
        with suppress(FileNotFoundError):  # another worker has removed it
            beats.append(msgspec.json.decode(file.read_bytes(), type=Beat))
    return beats


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
