"""Follow the registry's alias (download, verify, swap) and the releases that open, close or calibrate a version.

One thread of a process polls every few seconds. If a poll fails, the last good version continues to answer, and the
task's status says `degraded` and why. /predict only reads the references that are swapped here.
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import anyio
import anyio.to_thread
import structlog

from contracts.clock import format_moment
from contracts.errors import NoModel, NotLoaded, Unavailable
from service.database import Store
from service.metrics import Metrics
from service.models.champions import Champions, count_error
from service.models.forecaster import Forecaster, LoadedForecaster
from service.models.loader import load_copy
from service.models.local_copies import remove_folder, rename_folder, save_overlay
from service.models.registry.client import make_client
from service.models.replaced_mappings import Derived
from service.models.served_versions import ServedVersions
from service.models.task_states.departed_tasks import explain_absence, find_departed, find_renamed
from service.models.task_states.store_snapshot import Snapshot, read_snapshot
from service.models.task_states.task_state import RegistryState, TaskState, lacks_versions, say_missing
from service.settings import ServiceSettings
from service.validation.names import only_task
from service.validation.rules import compile_rules
from store.tasks.touched import KEPT_SECONDS, delete_notes

# Least seconds between two polls, however many requests ask for one.
_LEAST_PAUSE = 0.2

_NO_REGISTRY = RegistryState("degraded", "No registry is configured (MORROW_MLFLOW_URL).")
_RENAMING = "The trainer has yet to rename its model in MLflow."

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
        self.registries: Mapping[str, RegistryState] = {}
        self._lacks_versions = Derived(lacks_versions)
        self.database_answers = False
        self._settings = settings
        self._store = store
        self._metrics = metrics
        self._models = settings.home / "models"
        copies = partial(load_copy, threads=settings.model_threads)
        self._served = ServedVersions(self._models, settings.models_in_memory, copies, metrics)
        self._client = make_client(settings.mlflow_url) if settings.mlflow_url else None
        self._stopping = threading.Event()
        self._champions = (
            None
            if self._client is None
            else Champions(
                settings,
                self._client,
                self._served,
                store=store,
                metrics=metrics,
                stopping=self._stopping,
                clock=clock,
            )
        )
        self._task_ids: Mapping[str, int] = {}
        self._snapshot = Snapshot()
        self._faults: Mapping[str, str] = {}
        # Tasks whose overlay may not be on disk.
        self._unsaved: set[str] = set()
        self._has_polled, self._is_retired = False, False
        self._notes_deleted_at = float("-inf")
        self._poll_asked, self._polled = anyio.Event(), anyio.Event()

    @property
    def forecasters(self) -> Mapping[str, Forecaster]:
        """Every version that answers here, in memory or not."""
        return self._served.forecasters

    @property
    def snapshot(self) -> Snapshot:
        """The store at the last poll."""
        return self._snapshot

    @property
    def task_states(self) -> Mapping[str, TaskState]:
        """What the store said at the last poll."""
        return self._snapshot.task_states

    @property
    def paused(self) -> frozenset[str]:
        """Tasks that are not retrained for now."""
        return self._snapshot.paused

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks that the store or a local copy knows."""
        return tuple(sorted({*self._task_ids, *self.forecasters}))

    def knows(self, task: str) -> bool:
        """Whether `tasks` has this name."""
        return task in self._task_ids or task in self.forecasters

    def task_id(self, task: str) -> int | None:
        """The id of a task that the store or a local copy knows; None if neither says it."""
        return self._task_ids.get(task, self._served.task_ids.get(task))

    def add_task(self, task: str, task_id: int) -> None:
        """Add a task before the next poll of the store."""
        self._task_ids = {**self._task_ids, task: task_id}

    def find(self, task: str | None) -> LoadedForecaster:
        """The version that answers for a task, or for the only task.

        Raises InvalidInput, NotFound, TaskArchived, NotLoaded, NoModel. `load` loads a version that is not in memory.
        """
        served = self._served
        if task is None:
            task = only_task(self.tasks)
        forecaster = served.loaded.get(task)
        if forecaster is not None:
            served.asked.add(task)
            return forecaster
        if (described := served.forecasters.get(task)) is not None:
            raise NotLoaded(f"Version {described.version} is released. It is not in memory.")
        if task not in self._task_ids:
            raise explain_absence(task, self._snapshot.departures, self.tasks)
        registry, task_state = self.registries.get(task, RegistryState()), self.task_states.get(task)
        released = registry.champion or (task_state.champion if task_state else None)
        if released is None:
            raise NoModel(say_missing(task, task_state))
        raise NotLoaded(f"Version {released} is released. {registry.reason or 'This process has not loaded it yet.'}")

    def must_load(self, task: str | None) -> bool:
        """Whether the version that answers for a task, or for the only task, is not in memory."""
        if task is None:
            names = self.tasks
            task = names[0] if len(names) == 1 else None
        return task in self.forecasters and task not in self._served.loaded

    def load(self, task: str | None) -> LoadedForecaster:
        """Load the version that answers from its local copy, which takes tens of milliseconds. Raises as `find`.

        It runs in a thread.
        """
        if task is None:
            task = only_task(self.tasks)
        if self.must_load(task):
            self._served.load(task)
        return self.find(task)

    @property
    def is_ready(self) -> bool:
        """Whether every task with a champion has a version that answers, and /predict or /events can be served.

        While any task is answered, a task whose only version is broken does not count: no other process could answer.
        """
        if self._is_retired or self._lacks_versions.of(self.registries, self.forecasters):
            return False
        return bool(self.forecasters) or (self.database_answers and self._has_polled)

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
        """Serve the local copies, so that a start without registry and database answers as before."""
        refused = self._served.restore()
        self.registries = {**self.registries, **{task: RegistryState("degraded", why) for task, why in refused.items()}}

    def poll(self, now: float) -> None:
        """Read the store once, and the registry's aliases if it is time; `now` in monotonic seconds.

        If loading new versions is slow, the store is read again between tasks: a closed horizon waits for no other
        task.
        """
        read_at = self._apply_releases(now)
        for task in self._list_due(now):
            if self._stopping.is_set():
                return
            if time.monotonic() - read_at >= self._settings.poll_seconds:
                read_at = self._apply_releases(now)
            if not self.knows(task):
                continue  # given up since this poll began
            self._note_registry(task, self._follow_safely(task, now))
        self._served.end_look()
        self._has_polled = True
        self._delete_notes(now)

    def _list_due(self, now: float) -> list[str]:
        """The tasks, by name, for which something may have changed or is not as it should be."""
        moved: set[str] = set()
        if self._champions is not None:
            try:
                moved = self._champions.aliases.search(now)
            except Unavailable as error:
                count_error(self._metrics, error)
        return [task for task in self.tasks if task in moved or task in self._unsaved or self._is_open(task)]

    def _is_open(self, task: str) -> bool:
        """Whether following a task is not finished."""
        registry, forecaster = self.registries.get(task), self.forecasters.get(task)
        if registry is None or registry.state == "degraded" or task in self._faults:
            return True
        return registry.champion is not None and (forecaster is None or forecaster.version != registry.champion)

    def _follow_safely(self, task: str, now: float) -> RegistryState:
        """How following a task goes; an error, even a bug, must not stop the others."""
        registry = self.registries.get(task, RegistryState())
        try:
            self._save_overlay(task)
            found = self._follow(task, registry, now)
        except (Unavailable, OSError) as error:
            reason = count_error(self._metrics, error)
            found = RegistryState("degraded", reason, registry.champion, registry.is_refused)
        except Exception as error:
            self._metrics.follower_errors.labels("bug").inc()
            reason = f"Following it failed ({type(error).__name__}); the error is in the log."
            found = RegistryState("degraded", reason, registry.champion)
            if (found.state, found.reason) != (registry.state, registry.reason):  # each poll finds it again
                log.error("follower.failed", task=task, exc_info=error)
        if task in self._faults and found.state == "ok":
            found = replace(found, state="degraded", reason=self._faults[task])
        return found

    def _follow(self, task: str, registry: RegistryState, now: float) -> RegistryState:
        """Serve the version that a task's alias names, if it can be followed now. Raises Unavailable, OSError."""
        if self._champions is None:
            return _NO_REGISTRY
        if task in self._snapshot.renaming:
            return RegistryState("degraded", _RENAMING, registry.champion)
        if (error := self._champions.aliases.error) is not None:  # counted once, by the search
            return RegistryState("degraded", str(error), registry.champion, registry.is_refused)
        return self._champions.follow(task, self._snapshot, self._task_ids if self.database_answers else {}, now)

    def _note_registry(self, task: str, found: RegistryState) -> None:
        registry = self.registries.get(task)
        if found == registry:
            return
        before = registry or RegistryState()
        if (found.state, found.reason) != (before.state, before.reason):
            say = log.warning if found.state == "degraded" else log.info
            say(f"registry.{found.state}", task=task, reason=found.reason, champion=found.champion)
        self.registries = {**self.registries, task: found}

    def _apply_releases(self, now: float) -> float:
        """Read the store and apply newer release rows at once; return the time of that, in monotonic seconds."""
        self._read_store(now)
        if self.database_answers:
            for former, forecaster in self._served.update(self._snapshot.overlays_just_read):
                is_moved = forecaster.valid_until != former.valid_until
                moment = format_moment(forecaster.valid_until)
                say, event = (log.warning, "horizon.changed") if is_moved else (log.info, "calibration.changed")
                say(event, task=forecaster.task.name, version=forecaster.version, valid_until=moment)
                with suppress(OSError):  # this poll tries again, and says what is wrong
                    self._save_overlay(forecaster.task.name)
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
            self._snapshot = self._snapshot.without_bookmark()
            return
        if not self.database_answers:
            log.info("database.reached", tasks=len(snapshot.task_ids))
        self.database_answers = True
        compile_rules.make_room(len(snapshot.task_ids))
        former, self._snapshot = self._snapshot, snapshot
        if snapshot.task_ids != former.task_ids or snapshot.departures != former.departures or not self._has_polled:
            self._note_departures(snapshot)
        self._task_ids = {**self._task_ids, **snapshot.task_ids}
        self._unsaved |= {*snapshot.names_just_read}
        self._note_faults(snapshot.faults)

    def _note_departures(self, snapshot: Snapshot) -> None:
        served = {**self._task_ids, **self._served.task_ids}
        for task, new_name in find_renamed(served, snapshot.task_ids, snapshot.departures).items():
            self._rename(task, new_name, served[task])
        served = {**self._task_ids, **self._served.task_ids}
        for task in find_departed(served, snapshot.task_ids, snapshot.departures):
            self._give_up(task)

    def _rename(self, task: str, new_name: str, task_id: int | None) -> None:
        """Serve a task under its new name, from the same copies."""
        try:
            rename_folder(self._models, task, new_name, self._snapshot.former_names(task_id))
        except OSError as error:  # the version is downloaded again
            log.warning("task.not_renamed", task=task, new_name=new_name, reason=count_error(self._metrics, error))
        if task in self.forecasters:
            self._served.rename(task, new_name, task_id)
            self.registries = {**self.registries, new_name: self.registries.get(task, RegistryState())}
        self._give_up(task)
        log.info("task.renamed", task=task, new_name=new_name)

    def _give_up(self, task: str) -> None:
        """Stop serving a task that is archived, deleted or renamed, and remove its copies."""
        self._task_ids = {name: task_id for name, task_id in self._task_ids.items() if name != task}
        self._served.remove(task)
        self.registries = {name: registry for name, registry in self.registries.items() if name != task}
        self._unsaved.discard(task)
        if self._champions is not None:
            self._champions.forget(task)
        try:
            remove_folder(self._models / task)
        except OSError as error:
            log.warning("task.not_removed", task=task, reason=count_error(self._metrics, error))
        log.info("task.given_up", task=task)

    def _note_faults(self, faults: Mapping[str, str]) -> None:
        """Note the tasks whose rows cannot be read; each change is counted and logged once."""
        if faults == self._faults and self._has_polled:
            return
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
        forecaster, overlay = self.forecasters.get(task), self._snapshot.overlays.get(task)
        if (
            forecaster is not None
            and overlay is not None
            and self.database_answers
            and not save_overlay(self._models / task, forecaster.version, overlay)
        ):
            return  # another process holds the folder: the next poll saves it
        self._unsaved.discard(task)

    def _delete_notes(self, now: float) -> None:
        """Delete old notes of changes now and then: every process that reads them does so."""
        if not self.database_answers or now - self._notes_deleted_at < KEPT_SECONDS:
            return
        self._notes_deleted_at = now
        try:
            self._store.transact(delete_notes)
        except Unavailable as error:
            log.info("notes.not_deleted", reason=str(error))
