"""Follow the registry's alias (download, verify, swap) and the releases that open, close or calibrate a version.

One thread of a process polls every few seconds. If a poll fails, the last good version continues to answer, and the
task's status says `degraded` and why. /predict only reads the references that are swapped here.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import anyio
import anyio.to_thread
import httpx
import structlog

from contracts.clock import format_moment
from contracts.errors import ArtefactRefused, NoModel, NotLoaded, Unavailable
from service.database import Store
from service.metrics import Metrics
from service.models.alias_history import record_alias_move
from service.models.backoff import LONGEST_WAIT, Backoff
from service.models.departed_tasks import explain_absence, find_departed, find_renamed
from service.models.forecaster import Forecaster
from service.models.loader import load_champion, load_copy
from service.models.local_copies import (
    Current,
    is_current,
    list_copies,
    lock_folder,
    next_current,
    read_current,
    read_made_at,
    remove_copies,
    remove_folder,
    rename_folder,
    save_overlay,
    write_current,
)
from service.models.registry import Champion, find_champion, make_client
from service.models.store_snapshot import Snapshot, read_snapshot
from service.models.task_state import ENDINGS, RegistryState, TaskState, find_overlay
from service.settings import ServiceSettings
from service.validation.names import only_task
from store.releases import Overlay

# Least seconds between two polls, however many requests ask for one.
_LEAST_PAUSE = 0.2

_NO_REGISTRY = RegistryState("degraded", "No registry is configured (MORROW_MLFLOW_URL).")

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Follower:
    """The version that answers for each task, and the state of following it.

    `poll` runs in a thread. The mappings that other threads read (`forecasters`, `registries`, `task_states`) are
    replaced whole, never changed in place. `clock` dates the rows that the follower writes.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        store: Store,
        metrics: Metrics,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.forecasters: Mapping[str, Forecaster] = {}
        self.registries: Mapping[str, RegistryState] = {}
        self.task_states: Mapping[str, TaskState] = {}
        self.paused: frozenset[str] = frozenset()
        self.database_answers = False
        self._settings = settings
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._client = make_client(settings.mlflow_url) if settings.mlflow_url else None
        self._models = settings.home / "models"
        self._task_ids: Mapping[str, int] = {}
        # The task that each version was loaded for, None if its copy does not say.
        self._served_ids: Mapping[str, int | None] = {}
        self._snapshot = Snapshot()
        self._overlays: Mapping[str, Overlay] = {}
        self._faults: Mapping[str, str] = {}
        self._backoff = Backoff()
        self._stopping = threading.Event()
        threads = settings.model_threads
        self._load_copy = partial(load_copy, threads=threads)
        self._load_champion = partial(load_champion, stopping=self._stopping, threads=threads)
        self._has_polled, self._is_retired = False, False
        self._poll_asked, self._polled = anyio.Event(), anyio.Event()

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks that the store or a local copy knows."""
        return tuple(sorted({*self._task_ids, *self.forecasters}))

    def add_task(self, task: str, task_id: int) -> None:
        """Add a task before the next poll of the store."""
        self._task_ids = {**self._task_ids, task: task_id}

    def find(self, task: str | None) -> Forecaster:
        """The version that answers for a task, or for the only task.

        Raises InvalidInput, NotFound, TaskArchived, NotLoaded, NoModel.
        """
        if task is None:
            task = only_task(self.tasks)
        forecaster = self.forecasters.get(task)
        if forecaster is not None:
            return forecaster
        if task not in self._task_ids:
            raise explain_absence(task, self._snapshot.departures)
        registry, task_state = self.registries.get(task, RegistryState()), self.task_states.get(task)
        released = registry.champion or (task_state.champion if task_state else None)
        if released is None:
            raise NoModel(_say_missing(task, task_state))
        raise NotLoaded(f"Version {released} is released. {registry.reason or 'This process has not loaded it yet.'}")

    @property
    def is_ready(self) -> bool:
        """Whether every task with a champion has a version that answers, and /predict or /events can be served.

        While any task is answered, a task whose only version is broken does not count: no other process could answer.
        """
        missing = [
            task
            for task, registry in self.registries.items()
            if registry.champion and task not in self.forecasters and not (registry.is_refused and self.forecasters)
        ]
        can_serve = bool(self.forecasters) or (self.database_answers and self._has_polled)
        return not missing and not self._is_retired and can_serve

    async def run(self) -> None:
        """Poll until cancelled; a poll that has begun is finished."""
        while True:
            try:
                await anyio.to_thread.run_sync(self.poll, time.monotonic())
            except Exception as error:  # a bug in one poll must not end polling
                self._metrics.follower_errors.labels("bug").inc()
                log.error("follower.failed", exc_info=error)
            self._polled.set()
            self._polled = anyio.Event()
            least = min(_LEAST_PAUSE, self._settings.poll_seconds)
            await anyio.sleep(least)
            with anyio.move_on_after(self._settings.poll_seconds - least):
                await self._poll_asked.wait()
            self._poll_asked = anyio.Event()

    async def poll_now(self) -> None:
        """Ask for a poll now, and wait until one ends."""
        self._poll_asked.set()
        await self._polled.wait()

    def retire(self) -> None:
        """Stop being ready: this process is about to end."""
        self._is_retired = True

    def stop(self) -> None:
        """Make the running poll end soon, including its download."""
        self._stopping.set()

    def close(self) -> None:
        """Close the connections to the registry; no poll may be running."""
        if self._client is not None:
            self._client.close()

    def restore(self) -> None:
        """Load the local copies, so that a start without registry and database answers as before.

        If the current copy is damaged, the previous one answers within its own bound until the registry is reached.
        """
        for task, current in list_copies(self._models).items():
            # Loads even if another worker holds the lock for too long: a copy is whole or refused.
            with lock_folder(self._models / task):
                self._restore(task, current)

    def _restore(self, task: str, current: Current) -> None:
        for version, overlay in current.overlays.items():
            try:
                forecaster = self._load_copy(self._models / task, version, former_names=current.former_names)
            except ArtefactRefused as error:
                self._metrics.follower_errors.labels("artefact").inc()
                reason = f"The local copy of version {version} was refused: {error}"
                self.registries = {**self.registries, task: RegistryState("degraded", reason)}
                continue
            self._serve(forecaster.with_overlay(overlay))
            self._served_ids = {**self._served_ids, task: current.task_id}
            log.info("model.restored", task=task, version=version)
            return

    def poll(self, now: float) -> None:
        """Read the store once and, for each task, the registry; `now` in monotonic seconds.

        If registry requests are slow, the store is read again between tasks: a closed horizon waits for no other task.
        """
        read_at = self._apply_releases(now)
        for task in self.tasks:
            if self._stopping.is_set():
                return
            if time.monotonic() - read_at >= self._settings.poll_seconds:
                read_at = self._apply_releases(now)
            if task not in self._task_ids and task not in self.forecasters:
                continue  # given up since this poll began
            registry = self.registries.get(task, RegistryState())
            try:
                self._save_overlay(task)
                found = self._follow(task, now)
            except (Unavailable, OSError) as error:
                reason = self._count_error(error)
                found = RegistryState("degraded", reason, registry.champion, registry.is_refused)
            except Exception as error:  # a bug in following one task must not stop the others
                self._metrics.follower_errors.labels("bug").inc()
                log.error("follower.failed", task=task, exc_info=error)
                found = RegistryState("degraded", "Following it failed; the error is in the log.", registry.champion)
            if task in self._faults and found.state == "ok":
                found = replace(found, state="degraded", reason=self._faults[task])
            if (found.state, found.reason) != (registry.state, registry.reason):
                say = log.warning if found.state == "degraded" else log.info
                say(f"registry.{found.state}", task=task, reason=found.reason, champion=found.champion)
            self.registries = {**self.registries, task: found}
        self._has_polled = True

    def _apply_releases(self, now: float) -> float:
        """Read the store and apply newer release rows at once; return the time of that, in monotonic seconds."""
        self._read_store(now)
        for task, overlay in self._overlays.items():
            forecaster = self.forecasters.get(task)
            if forecaster is None or overlay == forecaster.overlay:
                continue
            self._serve(forecaster.with_overlay(overlay))
            is_moved, moment = overlay.valid_until != forecaster.valid_until, format_moment(overlay.valid_until)
            say, event = (log.warning, "horizon.changed") if is_moved else (log.info, "calibration.changed")
            say(event, task=task, version=forecaster.version, valid_until=moment)
        return time.monotonic()

    def _read_store(self, now: float) -> None:
        """Read the database. If it does not answer, known tasks are kept and overlays stay applied."""
        try:
            snapshot = self._store.transact(
                lambda connection: read_snapshot(connection, self.forecasters, self._snapshot, now)
            )
        except Unavailable as error:
            if self.database_answers:
                log.warning("database.unreachable", reason=str(error), detail=self._store.explain(error))
            self.database_answers = False
            self._snapshot, self._overlays = self._snapshot.without_bookmark(), {}
            return
        if not self.database_answers:
            log.info("database.reached", tasks=len(snapshot.task_ids))
        self.database_answers = True
        self._snapshot, self.paused = snapshot, snapshot.paused
        served = {**self._task_ids, **self._served_ids}
        for task, new_name in find_renamed(served, snapshot.task_ids, snapshot.departures).items():
            self._rename(task, new_name, served[task])
        served = {**self._task_ids, **self._served_ids}
        for task in find_departed(served, snapshot.task_ids, snapshot.departures):
            self._give_up(task)
        self._task_ids = {**self._task_ids, **snapshot.task_ids}
        self.task_states = snapshot.task_states
        self._note_faults(snapshot.faults)
        self._overlays = {task: overlay for task, overlay in snapshot.overlays.items() if task in self.forecasters}

    def _rename(self, task: str, new_name: str, task_id: int | None) -> None:
        """Serve a task under its new name, from the same copies."""
        forecaster = self.forecasters.get(task)
        try:
            rename_folder(self._models, task, new_name, self._former_names(task_id))
        except OSError as error:  # the version is downloaded again
            log.warning("task.not_renamed", task=task, new_name=new_name, reason=self._count_error(error))
        if forecaster is not None:
            self._serve(forecaster.renamed(new_name))
            self._served_ids = {**self._served_ids, new_name: task_id}
            self.registries = {**self.registries, new_name: self.registries.get(task, RegistryState())}
        self._give_up(task)
        log.info("task.renamed", task=task, new_name=new_name)

    def _former_names(self, task_id: int | None) -> tuple[str, ...]:
        return () if task_id is None else tuple(sorted(self._snapshot.departures.former.get(task_id, ())))

    def _give_up(self, task: str) -> None:
        """Stop serving a task that is archived, deleted or renamed, and remove its copies."""
        self._task_ids, self._served_ids = _without(task, self._task_ids), _without(task, self._served_ids)
        self.forecasters, self.registries = _without(task, self.forecasters), _without(task, self.registries)
        self._backoff.forget(task)
        try:
            remove_folder(self._models / task)
        except OSError as error:
            log.warning("task.not_removed", task=task, reason=self._count_error(error))
        log.info("task.given_up", task=task)

    def _note_faults(self, faults: Mapping[str, str]) -> None:
        """Note the tasks whose rows cannot be read; each change is counted and logged once."""
        for task in faults.keys() - self._faults.keys():
            self._metrics.follower_errors.labels("rows").inc()
            log.error("task.unreadable", task=task, reason=faults[task])
        tasks = {*self.tasks}
        known = {task: found for task, found in self.registries.items() if task in tasks or task in faults}
        unknown = {task: RegistryState("degraded", faults[task]) for task in faults.keys() - known.keys() - tasks}
        self.registries = {**known, **unknown}
        self._faults = faults

    def _save_overlay(self, task: str) -> None:
        """Save the overlay of the version that answers, for a restart. Raises OSError."""
        forecaster, overlay = self.forecasters.get(task), self._overlays.get(task)
        if forecaster is not None and overlay is not None:
            save_overlay(self._models / task, forecaster.version, overlay)

    def _follow(self, task: str, now: float) -> RegistryState:
        """Serve the version that a task's alias names, and keep its copy on disk. Raises Unavailable."""
        if self._client is None or task in self._snapshot.renaming:
            return self._explain_pause(task)
        champion = find_champion(self._client, task)
        forecaster = self.forecasters.get(task)
        if champion is None:
            if forecaster is None:
                return RegistryState()
            return RegistryState("degraded", "The registry names no champion; the last one goes on answering.")
        task_state, version = self.task_states.get(task), champion.version
        if self.database_answers and task_state is not None and task_state.champion not in (None, version):
            record_alias_move(
                self._store, self._client, task, self._task_ids[task], champion=version, now=self._clock()
            )
        answers = forecaster is not None and champion.is_of(forecaster.version, forecaster.made_at)
        if answers and is_current(self._models / task, version):
            return RegistryState(champion=version)
        if self._backoff.may_try(task, version, now):
            try:
                if self._load(self._client, task, champion):
                    self._backoff.forget(task)
            except ArtefactRefused as error:
                self._backoff.add(task, version, f"Version {version} was refused: {error}", now)
                self._metrics.follower_errors.labels("artefact").inc()
                log.error("artefact.refused", task=task, version=version, reason=str(error), source="registry")
            except (Unavailable, OSError) as error:
                reason = self._count_error(error)
                self._backoff.add(task, version, reason, now, longest=LONGEST_WAIT, is_broken=False)
            else:
                return RegistryState(champion=version)
        is_refused = self._backoff.is_broken(task)
        return RegistryState("degraded", self._backoff.reason(task), version, is_refused)

    def _explain_pause(self, task: str) -> RegistryState:
        """Why a task's alias is not followed now."""
        if self._client is None:
            return _NO_REGISTRY
        known = self.registries.get(task, RegistryState())
        return RegistryState("degraded", "The trainer has yet to rename its model in MLflow.", known.champion)

    def _load(self, client: httpx.Client, task: str, champion: Champion) -> bool:
        """Load a version and let it answer; False if the next poll must do so. Raises as `load_champion`."""
        with lock_folder(self._models / task) as is_held:
            # While another worker held the folder, the alias may have moved again, and that worker may have followed.
            if not is_held or find_champion(client, task) != champion:
                return False
            # A copy with the same number may belong to another model; its overlay does not apply to this version.
            is_known = champion.is_of(champion.version, read_made_at(self._models / task / champion.version))
            forecaster = self._load_champion(
                client,
                self._models / task,
                champion,
                has_copy=is_known,
                former_names=self._former_names(self._task_ids.get(task)),
            )
            self._swap(task, forecaster, is_known=is_known)
            return True

    def _swap(self, task: str, forecaster: Forecaster, *, is_known: bool) -> None:
        """Let a loaded version answer: first on disk, then by one assignment."""
        folder, version = self._models / task, forecaster.version
        former, answering = read_current(folder), self.forecasters.get(task)
        known = former.overlays if is_known and former is not None else {}
        task_id = self._task_ids.get(task) if self.database_answers else None
        found = None if task_id is None else find_overlay(self._store, task_id, forecaster)
        overlay = found or known.get(version) or forecaster.overlay
        before = None if answering is None else (answering.version, answering.overlay)
        former_names = self._former_names(self._task_ids.get(task))
        current = next_current(former, before, version, overlay, task_id=task_id, former_names=former_names)
        if current != former:
            write_current(folder, current)
        self._serve(forecaster.with_overlay(overlay))
        self._served_ids = {**self._served_ids, task: current.task_id}
        remove_copies(folder, current)
        self._metrics.swaps.labels(task).inc()
        moment = format_moment(overlay.valid_until)
        log.info("model.swapped", task=task, version=version, previous=current.previous, valid_until=moment)

    def _serve(self, forecaster: Forecaster) -> None:
        self.forecasters = {**self.forecasters, forecaster.task.name: forecaster}

    def _count_error(self, error: Unavailable | OSError) -> str:
        """Count an error and return a sentence about it."""
        if isinstance(error, OSError):
            self._metrics.follower_errors.labels("disk").inc()
            return f"The local copy cannot be written: {error.strerror}."
        self._metrics.follower_errors.labels("registry").inc()
        return str(error)


def _say_missing(task: str, task_state: TaskState | None) -> str:
    """Why no version of a task answers, and what releases one."""
    last = None if task_state is None else task_state.last_ended
    ended = ""
    if last is not None and last.state in ENDINGS:
        reason = f": {last.reason}" if last.reason else ""
        ended = f" The cycle of {format_moment(last.cutoff)} {ENDINGS[last.state]}{reason}".rstrip(".") + "."
    return (
        f"No version of {task} had been released when this process looked last.{ended} `morrow cycle {task}` trains "
        f"one, and `morrow task show {task}` says what it lacks."
    )


def _without(task: str, known: Mapping[str, T]) -> dict[str, T]:
    return {name: one for name, one in known.items() if name != task}
