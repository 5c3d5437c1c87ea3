"""What is left to do for shared fits: share those that the store could not take, and clear away what nobody needs.

The job runs in the trainer process next to the scheduler's tick. A fit is fetched again if it is needed after all, so
the copies on this disk are bounded: those that were not used for longest go first.
"""

import shutil
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from contracts.errors import ArtefactRefused
from store.errors import ObjectStoreAway
from store.kept_fits import delete_objects, list_all, list_lost
from store.objects import Objects
from store.outages import name_outage
from store.tasks.catalog import list_tasks
from trainer.settings import TrainerSettings
from trainer.sharing.bundles import is_whole, read_marker
from trainer.sharing.shared_fits import SharedFits

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 10.0
_CLEAR_PAUSE_SECONDS = 600.0
_REST_FACTOR = 10.0
# The process that makes a fit shares it itself. What it has not shared by now, it could not.
SETTLED_SECONDS = 30.0


class Upkeep:
    """The state that outlives a tick: when to go on."""

    def __init__(
        self, engine: Engine, settings: TrainerSettings, stopping: threading.Event, objects: Objects | None
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._stopping = stopping
        self._objects = objects
        self._rest_until = 0.0
        self._clear_at = 0.0
        self._refused: set[tuple[Path, float]] = set()

    def tick(self, now: datetime) -> None:
        """Do what is left, unless the job rests. While a store is away, a later tick tries again."""
        began = time.monotonic()
        if self._objects is None or began < self._rest_until:
            return
        try:
            self.share_left(now)
            if began >= self._clear_at:
                self.clear(now)
                self._clear_at = began + _CLEAR_PAUSE_SECONDS
        except ObjectStoreAway:  # which is logged where it was found
            pass
        except SQLAlchemyError as error:
            if name_outage(error) is None:
                raise
        self._rest_until = time.monotonic() + max(_PAUSE_SECONDS, _REST_FACTOR * (time.monotonic() - began))

    def share_left(self, now: datetime) -> int:
        """Share the fits in this home that are not shared yet, or whose object is lost; returns how many.

        So a home of an earlier release, or of the time before MORROW_FITS_URL was set to this store, is shared too.
        Raises ObjectStoreAway.
        """
        if self._objects is None:
            return 0
        store = self._objects.identity()
        with self._engine.connect() as connection:
            task_ids = {schema.task.name: schema.task_id for schema in list_tasks(connection, with_archived=True)}
            lost = {(key.task_id, key.recipe, key.origin): digest for key, digest in list_lost(connection, store)}
        num_shared = 0
        for folder in self._folders():
            task_id, changed_at = task_ids.get(folder.parent.parent.name), _changed_at(folder)
            if task_id is None or self._stopping.is_set() or (folder, changed_at) in self._refused:
                continue
            held = read_marker(folder, store)
            is_left = held is None and changed_at < now.timestamp() - SETTLED_SECONDS and is_whole(folder)
            if not is_left and (held is None or lost.get((task_id, folder.parent.name, int(folder.name))) != held):
                continue
            try:
                SharedFits(self._engine, self._objects, task_id).share(folder)
                num_shared += 1
            except ArtefactRefused as error:
                log.warning("fit.refused", folder=str(folder), reason=str(error), remedy="morrow cycle TASK")
                self._refused.add((folder, changed_at))
        if num_shared:
            log.info("fits.shared", num_fits=num_shared)
        return num_shared

    def clear(self, now: datetime) -> None:
        """Delete copies that the ledger no longer names or that exceed the bound, then objects that no fit names.

        Raises ObjectStoreAway.
        """
        if self._objects is None:
            return
        store = self._objects.identity()
        with self._engine.connect() as connection:
            task_ids = {schema.task.name: schema.task_id for schema in list_tasks(connection, with_archived=True)}
            named = {(key.task_id, key.recipe, key.origin) for key in list_all(connection, store)}
        copies: list[Path] = []
        for folder in self._folders():
            key = (task_ids.get(folder.parent.parent.name, 0), folder.parent.name, int(folder.name))
            if read_marker(folder, store) is None:
                continue
            if key in named:
                copies.append(folder)
            else:
                shutil.rmtree(folder, ignore_errors=True)
        self._bound(copies, now)
        num_deleted = -1
        while num_deleted and not self._stopping.is_set():
            with self._engine.begin() as connection:
                num_deleted = delete_objects(connection, store, self._objects.delete, now)
            if num_deleted:
                log.info("fit_objects.deleted", num_objects=num_deleted)

    def _bound(self, copies: list[Path], now: datetime) -> None:
        """Delete the copies that were not used for longest, down to the bound. A running cycle keeps its own."""
        sizes = {folder: _size(folder) for folder in copies}
        excess = sum(sizes.values()) - self._settings.fits_cache_mib * 2**20
        unused_since = now.timestamp() - self._settings.cycle_limit_seconds
        for folder in sorted(copies, key=_changed_at):
            if excess <= 0 or _changed_at(folder) > unused_since:
                return
            shutil.rmtree(folder, ignore_errors=True)
            excess -= sizes[folder]

    def _folders(self) -> Iterator[Path]:
        """The folders of all fits in this home, whole or not."""
        for folder in self._settings.home.glob("candidates/*/*/*"):
            if folder.name.removeprefix("-").isdecimal() and folder.is_dir():
                yield folder


def _changed_at(folder: Path) -> float:
    """When a folder was made or last used, in seconds since the epoch."""
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def _size(folder: Path) -> int:
    try:
        return sum(file.stat().st_size for file in folder.iterdir())
    except OSError:
        return 0
