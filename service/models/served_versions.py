"""The versions that answer here, by task, and which of them are in memory.

A version is loaded when it is released, to be checked, and when it is asked. If more than `most` are in memory, those
that nobody has asked for longest leave it, and their local copies are loaded at the next question. Meanwhile the
version is described as before, so that status, metrics and readiness do not change.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import structlog

from contracts.errors import ArtefactRefused, NotLoaded
from service.metrics import Metrics
from service.models.forecaster import Forecaster, LoadedForecaster
from service.models.loader import describe_copy
from service.models.local_copies import Current, list_copies, lock_folder, read_current
from store.releases import Overlay

# Loads the copy of a version from the folder of its task; raises ArtefactRefused.
LoadCopy = Callable[..., LoadedForecaster]
T = TypeVar("T")

log = structlog.get_logger(__name__)


class ServedVersions:
    """Mappings that other threads read are replaced whole, never changed in place; `_lock` is held to replace them.

    `forecasters` has every version that answers, loaded or only described, and `loaded` those in memory.
    `task_ids` has the task that each version was loaded for, None if its copy does not say.
    """

    def __init__(self, models: Path, most: int, load_copy: LoadCopy, metrics: Metrics) -> None:
        self.forecasters: Mapping[str, Forecaster] = {}
        self.loaded: Mapping[str, LoadedForecaster] = {}
        self.task_ids: Mapping[str, int | None] = {}
        # Tasks asked about lately. The hot path adds to it, whatever thread replaces it.
        self.asked: set[str] = set()
        self._models = models
        self._most = most
        self._load_copy = load_copy
        self._metrics = metrics
        self._lock = threading.RLock()
        self._loading: dict[str, threading.Lock] = {}
        self._last_asked: dict[str, int] = {}
        self._turn = 0

    def restore(self) -> dict[str, str]:
        """Serve the local copies; returns the tasks of which a copy was refused, with the reason.

        All are loaded if there is room for them in memory, and else each at its first question. If the current copy of
        a task is damaged, the previous one answers within its own bound.
        """
        copies = list_copies(self._models)
        refused = {}
        described: dict[str, Forecaster] = {}
        for task, current in copies.items():
            if len(copies) > self._most and (known := self._describe(task, current)) is not None:
                described[task] = known
                continue
            # Loads even if another worker holds the lock for too long: a copy is whole or refused.
            with lock_folder(self._models / task):
                reason = self._restore(task, current)
            if reason is not None:
                refused[task] = reason
        with self._lock:
            self.forecasters = {**self.forecasters, **described}
            self.task_ids = {**self.task_ids, **{task: current.task_id for task, current in copies.items()}}
        return refused

    def load(self, task: str) -> None:
        """Load the local copy of a version that is not in memory. Raises NotLoaded."""
        with self._lock:
            loading = self._loading.setdefault(task, threading.Lock())
        with loading:
            described = self.forecasters.get(task)
            if described is None or task in self.loaded:
                return
            with lock_folder(self._models / task):
                current = read_current(self._models / task)
                reason = "Its local copy is gone." if current is None else self._restore(task, current)
            if task not in self.loaded:
                with self._lock:  # the follower downloads it again
                    self.forecasters = _without(task, self.forecasters)
                raise NotLoaded(f"Version {described.version} is released. {reason}")
            self._metrics.model_loads.inc()
        with self._lock:
            self._loading.pop(task, None)
            self._note_asked()
            self._last_asked[task] = self._turn
            self._unload_surplus({task})

    def serve(self, forecaster: LoadedForecaster, task_id: int | None) -> None:
        """Let a version answer for its task."""
        task = forecaster.task.name
        with self._lock:
            self.forecasters = {**self.forecasters, task: forecaster}
            self.loaded = {**self.loaded, task: forecaster}
            self.task_ids = {**self.task_ids, task: task_id}
            self._last_asked.setdefault(task, self._turn)

    def update(self, overlays: Iterable[tuple[str, str | None, Overlay]]) -> list[tuple[Forecaster, Forecaster]]:
        """Apply what `releases` says now of versions: task, version, overlay.

        Returns each version that this changes, as it was and as it is.
        """
        with self._lock:
            changed = [
                (former, former.with_overlay(overlay))
                for task, version, overlay in overlays
                if (former := self.forecasters.get(task)) is not None
                and former.version == version
                and overlay != former.overlay
            ]
            if changed:
                self._replace(now for _, now in changed)
        return changed

    def rename(self, task: str, new_name: str, task_id: int | None) -> None:
        """Let a version answer under the new name of its task as well."""
        with self._lock:
            if (forecaster := self.forecasters.get(task)) is not None:
                self._replace([forecaster.renamed(new_name)])
                self.task_ids = {**self.task_ids, new_name: task_id}

    def remove(self, task: str) -> None:
        """Stop serving a task."""
        with self._lock:
            self.forecasters, self.loaded = _without(task, self.forecasters), _without(task, self.loaded)
            self.task_ids = _without(task, self.task_ids)
            self._last_asked.pop(task, None)

    def end_look(self) -> None:
        """Note which versions were asked, and let the surplus leave memory."""
        with self._lock:
            self._unload_surplus(self._note_asked())

    def _note_asked(self) -> set[str]:
        """Give all that were asked since the last time the next turn."""
        asked, self.asked = self.asked, set()
        self._turn += 1
        self._last_asked.update(dict.fromkeys(asked & self.loaded.keys(), self._turn))
        return asked

    def _replace(self, forecasters: Iterable[Forecaster]) -> None:
        known = {one.task.name: one for one in forecasters}
        loaded = {task: one for task, one in known.items() if isinstance(one, LoadedForecaster)}
        self.forecasters = {**self.forecasters, **known}
        self.loaded = {**self.loaded, **loaded}

    def _unload_surplus(self, kept: set[str]) -> None:
        """Describe those that were asked longest ago, as many as are too many."""
        surplus = len(self.loaded) - self._most
        if surplus <= 0:
            return
        oldest = sorted(self.loaded.keys() - kept, key=lambda task: (self._last_asked.get(task, 0), task))[:surplus]
        left = {task: self.loaded[task].described() for task in oldest}
        self.forecasters = {**self.forecasters, **left}
        self.loaded = {task: one for task, one in self.loaded.items() if task not in left}
        for task in left:
            self._last_asked.pop(task, None)

    def _describe(self, task: str, current: Current) -> Forecaster | None:
        """The current copy as its manifest describes it; None if it cannot be read."""
        try:
            folder = self._models / task / current.version
            found = describe_copy(folder, task, current.version, current.former_names)
        except ArtefactRefused:
            return None
        return found.with_overlay(current.overlays[current.version])

    def _restore(self, task: str, current: Current) -> str | None:
        """Load the best of a task's copies; returns why one was refused."""
        reason = None
        for version, overlay in current.overlays.items():
            try:
                forecaster = self._load_copy(self._models / task, version, former_names=current.former_names)
            except ArtefactRefused as error:
                self._metrics.follower_errors.labels("artefact").inc()
                reason = f"The local copy of version {version} was refused: {error}"
                continue
            with self._lock:
                known = self.forecasters.get(task)
                is_same = known is not None and (known.version, known.made_at) == (version, forecaster.made_at)
                # What is known here is newer than what the copy says.
                newest = known.overlay if known is not None and is_same else overlay
                self.serve(forecaster.with_overlay(newest), current.task_id)
            log.info("model.restored", task=task, version=version)
            break
        return reason


def _without(task: str, known: Mapping[str, T]) -> dict[str, T]:
    return {name: one for name, one in known.items() if name != task}
