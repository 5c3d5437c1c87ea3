"""Sealed events, next to the scheduler's tick: seal old windows, and look after the files that there are.

Each pass rewrites files that hold erased or retracted rows, and seals some rows of one task if `MORROW_SEAL_AFTER` is
set. Every ten minutes it deletes files that nothing names, and reads one to see whether it is whole. A file that cannot
be read is noted with its reason, which the status of its task shows; no other task waits for it. If the present store
has the same bytes, as after a home was moved, the file has its address there from then on.
"""

import threading
import time
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from contracts.clock import to_micros
from contracts.errors import Conflict
from store.errors import ObjectStoreAway, SealedRowsUnreadable, StoreOutage
from store.events.sealed.manifest import SealedFile, find_next_file, note_address, note_trouble
from store.events.sealed.parquet_rows import SealedFiles
from store.events.sealed.rewriting import list_stale, rewrite_stale, sweep, transact
from store.events.sealed.sealing import DEFAULT_LIMITS, seal
from store.outages import name_outage
from store.tasks.catalog import list_tasks
from trainer.settings import TrainerSettings, sealed_store

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 10.0
_REST_FACTOR = 4.0
_SWEEP_PAUSE_SECONDS = 600.0
# Of fewer rows, no file is made: there would be one for each window.
_FEWEST_ROWS = 10_000
_LIMITS = replace(DEFAULT_LIMITS, fewest_rows=_FEWEST_ROWS, max_files=1)


class Sealing:
    """The state that outlives a tick: when to go on, the file that was read last, and which tasks have been asked."""

    def __init__(self, engine: Engine, settings: TrainerSettings, stopping: threading.Event) -> None:
        self._engine = engine
        self._settings = settings
        self._stopping = stopping
        self._rest_until = 0.0
        self._sweep_at = 0.0
        self._read_last = 0
        self._asked: dict[int, float] = {}
        self._logged: dict[str, str] = {}

    def tick(self, now: datetime) -> None:
        """Make a pass unless the job rests. A trouble is logged once, and a later pass tries again."""
        began = time.monotonic()
        if began < self._rest_until:
            return
        try:
            self._look_after(now)
            self._seal_one(now)
            self._logged.pop("", None)
        except (ObjectStoreAway, SealedRowsUnreadable, StoreOutage) as error:
            self._log("", str(error))
        except SQLAlchemyError as error:
            if (outage := name_outage(error)) is None:
                raise
            self._log("", outage.reason)
        self._rest_until = time.monotonic() + max(_PAUSE_SECONDS, _REST_FACTOR * (time.monotonic() - began))

    def _log(self, task: str, reason: str) -> None:
        if reason != self._logged.get(task):
            log.warning("sealing.waiting", task=task, reason=reason, remedy="morrow doctor")
        self._logged[task] = reason

    def _look_after(self, now: datetime) -> None:
        run = partial(transact, self._engine)
        stale = run(list_stale)
        if stale:
            log.info("sealed_files.rewritten", num_files=rewrite_stale(run, stale, now))
        if time.monotonic() >= self._sweep_at:
            if num_files := sweep(run, now):
                log.info("sealed_files.deleted", num_files=num_files)
            while self._read_next():  # all files of a store may have moved
                pass
            self._sweep_at = time.monotonic() + _SWEEP_PAUSE_SECONDS

    def _read_next(self) -> bool:
        """Read the next file and note whether it is whole; returns whether it has another address now."""
        file = transact(self._engine, lambda connection: find_next_file(connection, self._read_last))
        self._read_last = 0 if file is None else file.file_id
        if file is None:
            return False
        trouble = _find_trouble(file)
        moved = replace(file, store=sealed_store(self._settings))
        if trouble is not None and moved.store != file.store and _find_trouble(moved) is None:
            transact(self._engine, lambda connection: note_address(connection, file, moved.store))
            log.info("sealed_file.moved", path=file.path, store=moved.store.partition("?")[0])
            return True
        if transact(self._engine, lambda connection: note_trouble(connection, file, trouble)):
            log.warning("sealed_file.unreadable", reason=trouble, remedy="restore the file")
        return False

    def _seal_one(self, now: datetime) -> None:
        """Seal some rows of the first task that has enough of them, beginning with the task asked longest ago."""
        days = self._settings.seal_after
        if days is None:
            return
        before = to_micros(now - timedelta(days=days))
        with self._engine.connect() as connection:
            tasks = list_tasks(connection, with_archived=True)
        for schema in sorted(tasks, key=lambda one: self._asked.get(one.task_id, 0.0)):
            if self._stopping.is_set() or time.monotonic() < self._asked.get(schema.task_id, 0.0):
                return
            self._asked[schema.task_id] = time.monotonic() + _SWEEP_PAUSE_SECONDS
            try:
                sealed = seal(self._engine, sealed_store(self._settings), schema, before, now, limits=_LIMITS)
            except (SealedRowsUnreadable, Conflict) as error:  # no other task waits for this one
                self._log(schema.task.name, str(error))
                continue
            if sealed.num_rows:
                log.info("events.sealed", task=schema.task.name, num_rows=sealed.num_rows, num_bytes=sealed.num_bytes)
                self._asked[schema.task_id] = 0.0
                return


def _find_trouble(file: SealedFile) -> str | None:
    """Why a file cannot be read; None if it is whole."""
    try:
        SealedFiles().read(file, ["event_id"])
    except SealedRowsUnreadable as error:
        return str(error)
    return None
