"""Live scoring: labels that have arrived since the last pass are scored with the kept fits, which fills the matrix.

A cell records how many rows and revisions of its window it was scored on. Each pass counts how many there are now. A
window is read only if the two differ, once for all of its fits. So late labels and corrections are scored again, and
nothing is after a restart. Then the guard checks the promises of the released versions.

A pass takes up tasks with news only, and a few others by turns (`trainer.monitoring.task_news`).

With an object store, the fits of all trainers are scored, wherever they were made, so a trainer that leaves takes none
away. A fit is fetched when it is needed.

The job runs in the trainer process next to the scheduler's tick and loads no torch. After a pass it rests ten times as
long as the pass took, so that it takes at most a tenth of a core from a fit.
"""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from contracts.clock import MICROSECOND, format_moment, to_micros
from contracts.errors import CycleError
from contracts.manifest import MANIFEST_FILE, read_manifest
from contracts.task import Task
from store.error_cells import Cell, Mark, delete_window, read_marks, record_cells
from store.errors import ObjectStoreAway
from store.events.imports import list_retractions
from store.events.reading.columns import EventColumns, read_events
from store.events.reading.counts import read_fingerprints
from store.objects import Objects
from store.outages import is_locked, name_outage
from store.releases import CHAMPION_ACTIONS, list_releases
from store.tasks.catalog import Schema
from trainer.data.windows import complete_until
from trainer.evaluation.fit_store import find_origins, open_fit, read_moment, recipe_folder, score_fit
from trainer.evaluation.stored_matrix import find_withdrawn
from trainer.monitoring.horizon_guard import enforce
from trainer.monitoring.promises import Promise, read_promise
from trainer.monitoring.task_news import TaskNews
from trainer.settings import TrainerSettings
from trainer.sharing.objects import open_objects
from trainer.sharing.shared_fits import SharedFits

log = structlog.get_logger(__name__)

REST_FACTOR = 10.0


def find_stale(
    task: Task, origins: Iterable[int], fingerprints: Mapping[int, tuple[int, int]], marks: Iterable[Mark], now: int
) -> dict[int, list[int]]:
    """Window -> origins whose cell does not stand on what is known `now`; moments in microseconds.

    Where a cell knows more revisions than we, another trainer's clock is ahead of ours: it is right.
    """
    there = {(mark.origin, mark.window): mark for mark in marks if mark.method == task.training.method}
    complete, kept = complete_until(task, now), set(origins)
    stale: dict[int, list[int]] = {}
    for window, (num_rows, num_revisions) in sorted(fingerprints.items()):
        for origin in (window - age * task.clock.window for age in range(task.guard.max_age)):
            mark = there.get((origin, window))
            if mark is None:
                is_stale = num_rows > 0
            else:
                is_news = (num_rows, num_revisions) != (mark.num_rows, mark.num_revisions)
                is_stale = num_revisions >= mark.num_revisions and (
                    is_news or (window < complete and not mark.is_complete)
                )
            if is_stale and origin in kept:
                stale.setdefault(window, []).append(origin)
    return stale


class LiveScoring:
    """The state that outlives a pass: the end of its rest, refused fits, logged troubles, and what the guard saw."""

    def __init__(
        self, engine: Engine, settings: TrainerSettings, stopping: threading.Event, objects: Objects | None = None
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._stopping = stopping
        self._rest_until = 0.0
        self._objects = objects or open_objects(settings)
        # What went wrong in the last pass, and in this one.
        self._former_troubles: set[tuple[str, ...]] = set()
        self._troubles: set[tuple[str, ...]] = set()
        # Fits that cannot be opened, with their manifests' times of change: a changed one is tried again.
        self._refused: set[tuple[Path, int]] = set()
        self._promises: dict[int, tuple[int, list[Promise]]] = {}
        # The newest row of a version, the end of the last complete window, and a hash of the cells.
        self._judged: dict[tuple[int, str], tuple[int, int, int]] = {}
        self._news = TaskNews()
        # Tasks some of whose fits could not be fetched in the last pass.
        self._waiting: set[int] = set()

    def tick(self, now: datetime) -> None:
        """Make a pass unless the job still rests. A trouble is logged once, and the next pass tries again."""
        began = time.monotonic()
        if began < self._rest_until:
            return
        self._former_troubles, self._troubles = self._troubles, set()
        try:
            self.score_new_labels(now)
        except SQLAlchemyError as error:
            if (outage := name_outage(error)) is None:
                raise
            if self._is_new("live.waiting", outage.code):
                log.warning("live.waiting", reason=outage.reason, remedy="morrow doctor")
        self._rest_until = time.monotonic() + REST_FACTOR * (time.monotonic() - began)

    def score_new_labels(self, now: datetime) -> int:
        """One pass: score new labels, then let the guard judge. Returns how many cells were written.

        Raises SQLAlchemyError if the store does not answer.
        """
        with self._engine.connect() as connection:
            chosen = self._news.choose(connection, to_micros(now))
        num_cells = 0
        for schema, extent in chosen:
            try:
                found, is_done = self._score_task(schema, now)
                num_cells += found
                if is_done:
                    self._news.note(schema.task_id, extent)
            except Exception as error:  # a bug in one task must not stop the others
                if name_outage(error) is not None and not is_locked(error):
                    raise
                if self._is_new("live.failed", schema.task.name, type(error).__name__):
                    log.error("live.failed", task=schema.task.name, exc_info=error)
        return num_cells

    def _score_task(self, schema: Schema, now: datetime) -> tuple[int, bool]:
        """Score and judge; returns how many cells were written, and whether nothing is left to do."""
        with self._engine.connect() as connection:
            rows = list_releases(connection, schema.task_id, limit=1, with_calibration=False)
            newest = rows[0].release_id if rows else 0
            known, promises = self._promises.get(schema.task_id, (-1, []))
            if newest != known:
                rows = list_releases(connection, schema.task_id, actions=["release"], with_calibration=False)
                promises = [promise for row in rows if (promise := read_promise(row))]
                self._promises[schema.task_id] = newest, promises
        num_cells, is_done = 0, True
        self._waiting.discard(schema.task_id)
        for task in self._find_matrices(schema, promises, now):
            origins = self._find_sound(schema.task_id, task, promises)
            num_cells += self._score_news(schema.task_id, task, origins, now)
            cutoffs = [promise.cutoff for promise in promises if promise.recipe == task.recipe]
            if cutoffs and not self._stopping.is_set():
                since = min([*origins, max(cutoffs)])
                is_done = self._judge(schema.task_id, task, newest, now, since=since) and is_done
        return num_cells, is_done and schema.task_id not in self._waiting and not self._stopping.is_set()

    def _find_matrices(self, schema: Schema, promises: Sequence[Promise], now: datetime) -> list[Task]:
        """The task with its present recipe, and with those of other versions whose labels may still arrive.

        Labels count for one window longer than they are due.
        """
        waiting = to_micros(now) - schema.task.label_delay // MICROSECOND - schema.task.clock.window
        others = {promise.recipe for promise in promises if promise.valid_until > waiting} - {schema.task.recipe}
        found = [schema.task]
        for recipe in sorted(others):
            folders = self._find_fits(schema.task_id, schema.task.name, recipe)
            if folders:
                try:
                    self._fetch(schema.task_id, folders[max(folders)])
                    task = read_manifest(folders[max(folders)]).parse_task()
                    # The manifest of a fit may have an earlier name of the task.
                    found.append(task.model_copy(update={"name": schema.task.name}))
                except CycleError as error:
                    self._refuse(folders[max(folders)], error)
                except ObjectStoreAway:
                    self._waiting.add(schema.task_id)
        return found

    def _find_fits(self, task_id: int, name: str, recipe: str) -> dict[int, Path]:
        """Origin -> folder of every fit of a recipe: those in this home, and those that other trainers share."""
        folder = recipe_folder(self._settings.home, name, recipe)
        found = find_origins(folder)
        shared = self._shared(task_id)
        try:
            return found if shared is None else shared.add_named(found, folder)
        except ObjectStoreAway:  # which the object store has logged
            self._waiting.add(task_id)
            return found

    def _shared(self, task_id: int) -> SharedFits | None:
        return None if self._objects is None else SharedFits(self._engine, self._objects, task_id)

    def _fetch(self, task_id: int, folder: Path) -> None:
        """Fetch the fit of a folder, if trainers share fits. Raises ObjectStoreAway."""
        if (shared := self._shared(task_id)) is not None:
            shared.fetch(folder)

    def _find_sound(self, task_id: int, task: Task, promises: Sequence[Promise]) -> dict[int, Path]:
        """Origin -> folder of the fits that may score.

        One that has read retracted events may not (`trainer.evaluation.stored_matrix`), unless it is the version that
        answers: its errors are those that clients get.
        """
        folders = self._find_fits(task_id, task.name, task.recipe)
        with self._engine.connect() as connection:
            retractions = list_retractions(connection, task_id)
            champions = (
                list_releases(connection, task_id, actions=CHAMPION_ACTIONS, limit=1, with_calibration=False)
                if retractions
                else []
            )
        moments = {origin: read_moment(folder) for origin, folder in folders.items()} if retractions else {}
        withdrawn = find_withdrawn(task, {origin: at for origin, at in moments.items() if at is not None}, retractions)
        answering = {promise.cutoff for promise in promises if promise.version in {row.version for row in champions}}
        return {
            origin: folder
            for origin, folder in folders.items()
            if _stamp(folder) not in self._refused and (origin not in withdrawn or origin in answering)
        }

    def _score_news(self, task_id: int, task: Task, origins: Mapping[int, Path], now: datetime) -> int:
        if not origins:
            return 0
        since, moment = task.clock.window_start(min(origins)), to_micros(now)
        with self._engine.connect() as connection:
            fingerprints = read_fingerprints(connection, task_id, task, moment, since=since)
            marks = read_marks(connection, task_id, task.recipe, since=since)
        num_cells = 0
        for window, stale in find_stale(task, origins, fingerprints, marks, moment).items():
            if self._stopping.is_set():
                break
            num_cells += self._score_window(task_id, task, window, [origins[origin] for origin in stale], now)
        return num_cells

    def _score_window(self, task_id: int, task: Task, window: int, folders: Sequence[Path], now: datetime) -> int:
        """Read what is known of a window by now, and score these fits on it."""
        moment = to_micros(now)
        snapshot = self._engine.connect().execution_options(isolation_level="REPEATABLE READ")
        with snapshot as connection, connection.begin():
            events = read_events(connection, task_id, task, moment, since=window, until=window + task.clock.window)
        rows = events.as_of(moment)
        if len(rows) == 0:
            with self._engine.begin() as connection:
                delete_window(connection, task_id, task.recipe, window)
            return 0
        is_complete = window < complete_until(task, moment)
        cells: list[Cell] = []
        for folder in folders:
            if self._stopping.is_set():
                return 0
            try:
                self._fetch(task_id, folder)
            except ObjectStoreAway:  # which the object store has logged; a later pass scores what is missing
                self._waiting.add(task_id)
            cells += self._score_fit(folder, rows, window, len(events), is_complete)
        with self._engine.begin() as connection:
            record_cells(connection, task_id, task.recipe, cells, now)
        say = log.info if is_complete else log.debug
        say(
            "cells.scored",
            task=task.name,
            window=format_moment(window),
            num_rows=len(rows),
            num_fits=len(folders),
            is_complete=is_complete,
        )
        return len(cells)

    def _score_fit(
        self, folder: Path, rows: EventColumns, window: int, num_revisions: int, is_complete: bool
    ) -> Sequence[Cell]:
        stamp = _stamp(folder)
        try:
            fit = open_fit(folder)
            return score_fit(fit, rows, window=window, num_revisions=num_revisions, is_complete=is_complete)
        except CycleError as error:
            # A cycle may delete a fit at any time, once it needs it no longer.
            if folder.is_dir():
                self._refuse(folder, error, stamp)
            return ()

    def _judge(self, task_id: int, task: Task, newest: int, now: datetime, *, since: int) -> bool:
        """Let the guard judge, unless it has judged the same rows and cells with the same windows complete.

        Returns whether it could.
        """
        with self._engine.connect() as connection:
            marks = read_marks(connection, task_id, task.recipe, since=since)
        seen, key = (newest, complete_until(task, to_micros(now)), hash(tuple(marks))), (task_id, task.recipe)
        if self._judged.get(key) != seen and enforce(self._engine, task_id, task, now, since=since):
            self._judged[key] = seen
        return self._judged.get(key) == seen

    def _refuse(self, folder: Path, error: CycleError, stamp: tuple[Path, int] | None = None) -> None:
        stamp = stamp or _stamp(folder)
        if stamp not in self._refused:
            log.warning("fit.refused", folder=str(folder), reason=str(error), remedy="morrow cycle TASK fits it again")
        self._refused.add(stamp)

    def _is_new(self, *trouble: str) -> bool:
        """Whether the last pass did not have this trouble; remembers it."""
        self._troubles.add(trouble)
        return trouble not in self._former_troubles


def _stamp(folder: Path) -> tuple[Path, int]:
    """A fit and the time of its manifest's last change."""
    try:
        return folder, (folder / MANIFEST_FILE).stat().st_mtime_ns
    except OSError:
        return folder, 0
