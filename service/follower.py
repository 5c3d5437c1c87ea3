"""Follows the registry's alias: download, verify, swap; and the releases that open or close a version's horizon.

One thread of a process looks every few seconds. Whatever goes wrong there, the last good version goes on answering
and the task's status says `degraded` and why. /predict only ever reads the references that are swapped here.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Literal

import anyio
import anyio.to_thread
import httpx
import structlog
from sqlalchemy import Connection

from contracts.catalog import list_tasks, lock_task
from contracts.clock import format_moment
from contracts.errors import ArtefactRefused, Fault, InvalidInput, NoModel, NotFound, Unavailable
from contracts.releases import note_moved_alias, read_overlay
from service.copies import Current, fill_copy, list_copies, read_current, remove_copies, write_current
from service.forecaster import Forecaster, load_forecaster
from service.metrics import Metrics
from service.registry import download_version, make_client, read_champion
from service.settings import ServiceSettings
from service.standing import Standing, read_standing
from service.store import Store

FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Registry:
    """How following a task's alias goes; `champion` is the version that the alias named last."""

    state: Literal["ok", "degraded"] = "ok"
    reason: str | None = None
    champion: str | None = None


@dataclass(frozen=True)
class _Refused:
    """A version that is not tried again before `until` (monotonic seconds)."""

    version: str
    reason: str
    until: float
    pause: float


class Follower:
    """The versions that answer, by task, and the state of following each.

    `poll` runs in a thread; what others read (`forecasters`, `registries`, `standings`) is replaced whole, never
    changed in place. `clock` dates what the follower writes down.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        store: Store,
        metrics: Metrics,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.forecasters: Mapping[str, Forecaster] = {}
        self.registries: Mapping[str, Registry] = {}
        self.standings: Mapping[str, Standing] = {}
        self.database_answers = False
        self._settings = settings
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._client: httpx.Client | None = make_client(settings.mlflow_url) if settings.mlflow_url else None
        self._models = settings.home / "models"
        self._task_ids: Mapping[str, int] = {}
        self._bounds: Mapping[str, int] = {}
        self._refused: dict[str, _Refused] = {}
        self._stopping = threading.Event()

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks that the store or a local copy knows."""
        return tuple(sorted({*self._task_ids, *self.forecasters}))

    def learn(self, task: str, task_id: int) -> None:
        """Know a task before the next look at the store."""
        self._task_ids = {**self._task_ids, task: task_id}

    def find(self, task: str | None) -> Forecaster:
        """What answers for a task, or for the only one. Raises InvalidInput, NotFound, NoModel."""
        if task is None:
            task = only_task(self.tasks)
        forecaster = self.forecasters.get(task)
        if forecaster is not None:
            return forecaster
        if task not in self._task_ids:
            raise NotFound("There is no task of this name.")
        raise NoModel

    @property
    def is_ready(self) -> bool:
        """Whether every task with a champion has a version that answers, and predict or events can be served."""
        missing = [
            task for task, registry in self.registries.items() if registry.champion and task not in self.forecasters
        ]
        return not missing and (bool(self.forecasters) or self.database_answers)

    async def run(self) -> None:
        """Look again and again until cancelled; a look that has begun is brought to an end."""
        while True:
            try:
                await anyio.to_thread.run_sync(self.poll, time.monotonic())
            except Exception as error:  # a bug in one look must not end the looking
                self._metrics.follower_errors.labels("bug").inc()
                log.error("follower.failed", exc_info=error)
            await anyio.sleep(self._settings.poll_seconds)

    def stop(self) -> None:
        """Make the look that goes on end soon, a download included."""
        self._stopping.set()

    def close(self) -> None:
        """Close the connections to the registry, once no look goes on."""
        if self._client is not None:
            self._client.close()

    def restore(self) -> None:
        """Load the local copies, so that a start without registry and database answers as before."""
        for task, current in list_copies(self._models).items():
            folder = self._models / task / current.version
            try:
                forecaster = load_forecaster(folder, task, current.version, threads=self._settings.model_threads)
            except ArtefactRefused as error:
                self._metrics.follower_errors.labels("artefact").inc()
                log.error(
                    "artefact.refused", task=task, version=current.version, reason=str(error), source="local copy"
                )
                continue
            self._put(forecaster.with_valid_until(current.valid_until))
            log.info("model.restored", task=task, version=current.version)

    def poll(self, now: float) -> None:
        """One look at the store and, for each task, at the registry; `now` in monotonic seconds."""
        self._read_store()
        for task in self.tasks:
            if self._stopping.is_set():
                return
            registry = self.registries.get(task, Registry())
            try:
                self._apply_bound(task)
                found = self._follow(task, now)
            except Unavailable as error:
                self._metrics.follower_errors.labels("registry").inc()
                found = Registry("degraded", str(error), registry.champion)
            except OSError as error:
                self._metrics.follower_errors.labels("disk").inc()
                found = Registry("degraded", f"The local copy cannot be written: {error.strerror}.", registry.champion)
            if (found.state, found.reason) != (registry.state, registry.reason):
                say = log.warning if found.state == "degraded" else log.info
                say(f"registry.{found.state}", task=task, reason=found.reason, champion=found.champion)
            self.registries = {**self.registries, task: found}

    def _read_store(self) -> None:
        """The tasks there are and how they stand, and the newest bounds of the versions that answer."""
        try:
            task_ids, standings, bounds = self._store.transact(self._read_tasks)
        except Unavailable as error:
            if self.database_answers:
                log.warning("database.unreachable", reason=str(error))
            self.database_answers = False
            self._bounds = {}
            return
        if not self.database_answers:
            log.info("database.reached", tasks=len(task_ids))
        self.database_answers = True
        self._task_ids = {**self._task_ids, **task_ids}
        self.standings = standings
        self._bounds = bounds

    def _apply_bound(self, task: str) -> None:
        """Let a newer release row count at once, and keep it for a restart. Raises OSError."""
        forecaster, valid_until = self.forecasters.get(task), self._bounds.get(task)
        if forecaster is None or valid_until is None:
            return
        if valid_until != forecaster.valid_until:
            self._put(forecaster.with_valid_until(valid_until))
            moment = format_moment(valid_until)
            log.warning("horizon.changed", task=task, version=forecaster.version, valid_until=moment)
        current = read_current(self._models / task)
        if current and current.version == forecaster.version and current.valid_until != valid_until:
            write_current(self._models / task, Current(current.version, valid_until, current.previous))

    def _read_tasks(
        self, connection: Connection
    ) -> tuple[Mapping[str, int], Mapping[str, Standing], Mapping[str, int]]:
        schemas = list_tasks(connection)
        task_ids = {schema.task.name: schema.task_id for schema in schemas}
        standings = {
            schema.task.name: read_standing(connection, schema, self.forecasters.get(schema.task.name))
            for schema in schemas
        }
        bounds = {}
        for task, forecaster in self.forecasters.items():
            if task in task_ids:
                overlay = read_overlay(connection, task_ids[task], forecaster.version)
                if overlay is not None:
                    bounds[task] = overlay.valid_until
        return task_ids, standings, bounds

    def _follow(self, task: str, now: float) -> Registry:
        """Bring one task to the version that its alias names. Raises Unavailable, OSError."""
        if self._client is None:
            return Registry("degraded", "No registry is configured (MORROW_MLFLOW_URL).")
        champion = read_champion(self._client, task)
        forecaster = self.forecasters.get(task)
        if champion is None:
            if forecaster is None:
                return Registry()
            return Registry("degraded", "The registry names no champion; the last one goes on answering.")
        self._note_moved_alias(self._client, task, champion)
        if forecaster is not None and forecaster.version == champion:
            return Registry(champion=champion)
        refused = self._refused.get(task)
        if refused is None or refused.version != champion or now >= refused.until:
            try:
                self._swap(task, champion, self._load(self._client, task, champion))
            except ArtefactRefused as error:
                self._refuse(task, champion, str(error), now)
            else:
                self._refused.pop(task, None)
                return Registry(champion=champion)
        return Registry("degraded", f"Version {champion} was refused: {self._refused[task].reason}", champion)

    def _note_moved_alias(self, client: httpx.Client, task: str, champion: str) -> None:
        """Where neither a cycle nor this API has moved the alias to the champion, write down that somebody has."""
        standing = self.standings.get(task)
        if not self.database_answers or standing is None or standing.champion in (None, champion):
            return
        task_id = self._task_ids[task]

        def note(connection: Connection) -> bool:
            lock_task(connection, task_id)
            # The alias may have been moved on, and written down, since it was read.
            if read_champion(client, task) != champion:
                return False
            return note_moved_alias(connection, task_id, champion, self._clock())

        try:
            if self._store.transact(note):
                log.warning("alias.moved", task=task, version=champion, former=standing.champion)
        except Unavailable as error:  # the next look tries again
            log.info("alias.not_noted", task=task, version=champion, reason=str(error))

    def _load(self, client: httpx.Client, task: str, version: str) -> Forecaster:
        """A verified copy that is there already, as after a rollback, or a fresh one."""
        folder = self._models / task
        threads = self._settings.model_threads
        if (folder / version).is_dir():
            try:
                return load_forecaster(folder / version, task, version, threads=threads)
            except ArtefactRefused as error:
                log.warning("artefact.refused", task=task, version=version, reason=str(error), source="local copy")
        download = partial(download_version, client, task, version, stopping=self._stopping)
        copy = fill_copy(folder, version, download)
        return load_forecaster(copy, task, version, threads=threads)

    def _swap(self, task: str, version: str, forecaster: Forecaster) -> None:
        """Let a loaded version answer: first on the disk, then by one assignment."""
        folder = self._models / task
        former = read_current(folder)
        valid_until = self._read_bound(task, version)
        if valid_until is None:
            known = former is not None and former.version == version
            valid_until = former.valid_until if former and known else forecaster.valid_until
        previous = former.version if former and former.version != version else former.previous if former else None
        current = Current(version, valid_until, previous)
        write_current(folder, current)
        self._put(forecaster.with_valid_until(valid_until))
        remove_copies(folder, current)
        self._metrics.swaps.labels(task).inc()
        log.info("model.swapped", task=task, version=version, previous=previous, valid_until=format_moment(valid_until))

    def _put(self, forecaster: Forecaster) -> None:
        self.forecasters = {**self.forecasters, forecaster.task.name: forecaster}

    def _read_bound(self, task: str, version: str) -> int | None:
        task_id = self._task_ids.get(task)
        if task_id is None or not self.database_answers:
            return None
        try:
            overlay = self._store.transact(lambda connection: read_overlay(connection, task_id, version))
            return None if overlay is None else overlay.valid_until
        except Unavailable:
            return None

    def _refuse(self, task: str, version: str, reason: str, now: float) -> None:
        """Remember a bad version and wait longer each time before trying it again."""
        former = self._refused.get(task)
        pause = min(2 * former.pause, LONGEST_PAUSE) if former and former.version == version else FIRST_PAUSE
        self._refused[task] = _Refused(version, reason, now + pause, pause)
        self._metrics.follower_errors.labels("artefact").inc()
        log.error("artefact.refused", task=task, version=version, reason=reason, source="registry")


def only_task(names: tuple[str, ...]) -> str:
    """The one task there is. Raises InvalidInput, NotFound."""
    if len(names) == 1:
        return names[0]
    if not names:
        raise NotFound("There is no task yet: define one with PUT /tasks/{task}.")
    raise InvalidInput([Fault("task", f"is required, for there is more than one: {', '.join(names[:20])}")])
