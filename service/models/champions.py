"""Let the version that a task's alias names answer: download it, verify it, keep its copy on disk, swap.

If that fails, the last good version continues to answer, and the task's status says `degraded` and why.
"""

import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial

import httpx
import structlog

from contracts.clock import format_moment
from contracts.errors import ArtefactRefused, Unavailable
from service.database import Store
from service.metrics import Metrics
from service.models.backoff import LONGEST_WAIT, Backoff
from service.models.forecaster import LoadedForecaster
from service.models.loader import load_champion
from service.models.local_copies import (
    is_current,
    lock_folder,
    next_current,
    read_current,
    read_made_at,
    remove_copies,
    write_current,
)
from service.models.registry.alias_history import record_alias_move
from service.models.registry.aliases import Aliases
from service.models.registry.client import Champion, find_champion
from service.models.served_versions import ServedVersions
from service.models.task_states.store_snapshot import Snapshot
from service.models.task_states.stored_states import find_overlay
from service.models.task_states.task_state import RegistryState
from service.settings import ServiceSettings
from store.tasks.installation import REMEDY

log = structlog.get_logger(__name__)


class Champions:
    """What the aliases name, loaded for the tasks that are followed."""

    def __init__(
        self,
        settings: ServiceSettings,
        client: httpx.Client,
        served: ServedVersions,
        *,
        store: Store,
        metrics: Metrics,
        stopping: threading.Event,
        clock: Callable[[], datetime],
    ) -> None:
        self.aliases = Aliases(client)
        self._client = client
        self._models = settings.home / "models"
        self._served = served
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._backoff = Backoff()
        self._load_champion = partial(load_champion, stopping=stopping, threads=settings.model_threads)

    def forget(self, task: str) -> None:
        """Forget why a version of a task was refused."""
        self._backoff.forget(task)

    def follow(self, task: str, snapshot: Snapshot, task_ids: Mapping[str, int], now: float) -> RegistryState:
        """Serve the version that a task's alias names; `task_ids` is empty while the database does not answer.

        `now` is in monotonic seconds. Raises Unavailable, OSError.
        """
        task_state = snapshot.task_states.get(task)
        released = None if task_state is None else task_state.champion
        champion, forecaster = self.aliases.find(task, released), self._served.forecasters.get(task)
        if champion is None:
            if forecaster is None:
                return RegistryState()
            return RegistryState("degraded", "The registry names no champion; the last one goes on answering.")
        version = champion.version
        if (mark := champion.installation) not in (None, snapshot.installation):
            if snapshot.installation is None:
                raise Unavailable(f"Version {version} waits for the database, which says whose it is.")
            whose = f"Version {version} of MLflow's model {task!r} is of another installation ({mark})"
            return RegistryState("degraded", f"{whose}, so it does not answer here: {REMEDY}.")
        if task in task_ids and released not in (None, version):
            record_alias_move(self._store, self._client, task, task_ids[task], champion=version, now=self._clock())
        answers = forecaster is not None and champion.is_of(forecaster.version, forecaster.made_at)
        if answers and is_current(self._models / task, version):
            return RegistryState(champion=version)
        if self._backoff.may_try(task, version, now):
            try:
                if self._load(task, champion, released, snapshot.former_names(task_ids.get(task)), task_ids.get(task)):
                    self._backoff.forget(task)
            except ArtefactRefused as error:
                self._backoff.add(task, version, f"Version {version} was refused: {error}", now)
                self._metrics.follower_errors.labels("artefact").inc()
                log.error("artefact.refused", task=task, version=version, reason=str(error), source="registry")
            except (Unavailable, OSError) as error:
                reason = count_error(self._metrics, error)
                self._backoff.add(task, version, reason, now, longest=LONGEST_WAIT, is_broken=False)
            else:
                return RegistryState(champion=version)
        is_refused = self._backoff.is_broken(task)
        return RegistryState("degraded", self._backoff.reason(task), version, is_refused)

    def _load(
        self, task: str, champion: Champion, released: str | None, former_names: tuple[str, ...], task_id: int | None
    ) -> bool:
        """Load a version and let it answer; False if the next poll must do so. Raises as `load_champion`."""
        with lock_folder(self._models / task) as is_held:
            # While another worker held the folder, the alias may have moved again, and that worker may have followed.
            if not is_held:
                return False
            asked = find_champion(self._client, task)
            if asked is None or not asked.is_of(champion.version, champion.made_at):
                self.aliases.note(task, released, asked)
                return False
            # A copy with the same number may belong to another model; its overlay does not apply to this version.
            is_known = asked.is_of(asked.version, read_made_at(self._models / task / asked.version))
            forecaster = self._load_champion(
                self._client, self._models / task, asked, has_copy=is_known, former_names=former_names
            )
            self._swap(task, forecaster, former_names, task_id, is_known=is_known)
            return True

    def _swap(
        self,
        task: str,
        forecaster: LoadedForecaster,
        former_names: tuple[str, ...],
        task_id: int | None,
        *,
        is_known: bool,
    ) -> None:
        """Let a loaded version answer: first on disk, then by one assignment."""
        folder, version = self._models / task, forecaster.version
        former, answering = read_current(folder), self._served.forecasters.get(task)
        known = former.overlays if is_known and former is not None else {}
        found = None if task_id is None else find_overlay(self._store, task_id, forecaster)
        overlay = found or known.get(version) or forecaster.overlay
        before = None if answering is None else (answering.version, answering.overlay)
        current = next_current(former, before, version, overlay, task_id=task_id, former_names=former_names)
        if current != former:
            write_current(folder, current)
        self._served.serve(forecaster.with_overlay(overlay), current.task_id)
        remove_copies(folder, current)
        self._metrics.swaps.labels(task).inc()
        moment = format_moment(overlay.valid_until)
        log.info("model.swapped", task=task, version=version, previous=current.previous, valid_until=moment)


def count_error(metrics: Metrics, error: Unavailable | OSError) -> str:
    """Count an error and return a sentence about it."""
    if isinstance(error, OSError):
        metrics.follower_errors.labels("disk").inc()
        return f"The local copy cannot be written: {error.strerror}."
    metrics.follower_errors.labels("registry").inc()
    return str(error)
