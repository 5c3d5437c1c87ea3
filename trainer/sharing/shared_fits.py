"""Kept fits of all trainers: each is an object in the store, a row in the ledger, and a copy in a folder here.

The ledger says which object is the fit of an origin. A trainer fetches the object where its own copy is missing or
another one. It works on while the store is away: what it fits then stays here, and `trainer.sharing.upkeep` shares it
later. A lost object leads to a new fit, or is written again by a trainer that still has its copy.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import structlog
from sqlalchemy import Connection, Engine

from contracts.clock import format_moment
from contracts.errors import ArtefactRefused
from store.errors import ObjectLost, ObjectStoreAway
from store.kept_fits import (
    FitKey,
    announce_object,
    find_fit,
    list_fits,
    mark_lost,
    record_fit,
    withdraw_fit,
    withdraw_older,
)
from store.objects import Objects, digest_of
from trainer.settings import TrainerSettings
from trainer.sharing.bundles import is_whole, mark, pack, read_marker, unmark, unpack
from trainer.sharing.objects import open_objects

log = structlog.get_logger(__name__)


class SharedFits:
    """The kept fits of one task. Folders are named `<recipe>/<origin>`, with origins in microseconds."""

    def __init__(
        self, engine: Engine, objects: Objects, task_id: int, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._engine = engine
        self._objects = objects
        self._task_id = task_id
        self._clock = clock

    def add_named(self, found: Mapping[int, Path], recipe: Path) -> dict[int, Path]:
        """Origin -> folder of every fit of a recipe, to be fetched before it is opened.

        `found` are the folders in this home; those that the ledger no longer names are left out. Raises
        ObjectStoreAway before the store ever answered.
        """
        store = self._objects.identity()
        with self._engine.connect() as connection:
            named = {
                fit.origin: fit for fit in list_fits(connection, store, self._task_id) if fit.recipe == recipe.name
            }
        kept = {
            origin: folder for origin, folder in found.items() if origin in named or read_marker(folder, store) is None
        }
        return kept | {origin: recipe / str(origin) for origin, fit in named.items() if not fit.is_lost}

    def try_fetch(self, folder: Path) -> None:
        """As `fetch`, but if the store is away the folder stays as it is."""
        with suppress(ObjectStoreAway):
            self.fetch(folder)

    def fetch(self, folder: Path) -> None:
        """Let the folder hold the fit that the ledger names. Raises ObjectStoreAway.

        A copy that the ledger no longer names is deleted. What was fitted here and is not shared yet stays, unless
        another trainer has shared a fit of this origin.
        """
        key = self._key(folder)
        with self._engine.connect() as connection:
            named = find_fit(connection, key)
        held = read_marker(folder, key.store)
        if named is None:
            if held is not None:
                shutil.rmtree(folder, ignore_errors=True)
            return
        if held == named.digest and is_whole(folder):
            os.utime(folder)  # it was used
            return
        if named.is_lost:
            return
        try:
            unpack(self._objects.read(named.digest), folder, (key.store, named.digest))
        except (ObjectLost, ArtefactRefused) as error:
            remedy = "the next cycle fits it again"
            log.warning("fit.lost", **_facts(key), reason=str(error), remedy=remedy)
            self._write(lambda connection: mark_lost(connection, key, named.digest, self._clock()))

    def replace_copy(self, folder: Path) -> bool:
        """Fetch a fit again if its copy here is damaged; returns whether that could be done."""
        with suppress(ObjectStoreAway):
            if read_marker(folder, self._objects.identity()) is None:
                return False
        shutil.rmtree(folder, ignore_errors=True)
        self.try_fetch(folder)
        return folder.is_dir()

    def try_share(self, folder: Path) -> None:
        """As `share`, but if the store is away, `trainer.sharing.upkeep` shares the fit later."""
        unmark(folder)
        with suppress(ObjectStoreAway):
            self.share(folder)

    def share(self, folder: Path) -> None:
        """Write the folder's fit to the store and name it in the ledger.

        Raises ObjectStoreAway, and ArtefactRefused if the folder holds no whole fit.
        """
        content = pack(folder)
        key, digest = self._key(folder), digest_of(content)
        self._write(lambda connection: announce_object(connection, key.store, digest, self._clock()))
        self._objects.write(content)
        self._write(lambda connection: record_fit(connection, key, digest, self._clock()))
        mark(folder, key.store, digest)

    def withdraw(self, folder: Path) -> None:
        """Let no trainer score or reuse the fit of this folder any longer."""
        with suppress(ObjectStoreAway):
            key = self._key(folder)
            self._write(lambda connection: withdraw_fit(connection, key))

    def withdraw_older(self, oldest: int) -> None:
        """Withdraw all fits of origins before `oldest` (microseconds)."""
        self._write(lambda connection: withdraw_older(connection, self._task_id, oldest))

    def _key(self, folder: Path) -> FitKey:
        return FitKey(self._objects.identity(), self._task_id, folder.parent.name, int(folder.name))

    def _write(self, work: Callable[[Connection], None]) -> None:
        with self._engine.begin() as connection:
            work(connection)


def open_shared(engine: Engine, settings: TrainerSettings, task_id: int) -> SharedFits | None:
    """The shared fits of a task; None if trainers share none."""
    objects = open_objects(settings)
    return None if objects is None else SharedFits(engine, objects, task_id)


def _facts(key: FitKey) -> dict[str, object]:
    return {"task_id": key.task_id, "recipe": key.recipe, "origin": format_moment(key.origin)}
