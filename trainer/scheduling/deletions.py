"""What is left to do for deleted and renamed tasks: in the store, in MLflow, and with the fits that are kept here.

Of a deleted task everything is removed, and its own row goes last. A renamed task gets its new name in MLflow too.

The job runs in the trainer process next to the scheduler's tick, loads neither torch nor mlflow, and waits for no cycle
of another task. It begins again where a kill or an outage ended it.
"""

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from contracts.errors import RegistryRefusal, Unavailable
from store.outages import name_outage
from store.tasks.changes import Contents
from store.tasks.deletion import (
    DELETE_SOME,
    DeletedTask,
    RenamedTask,
    delete_events,
    finish_deletion,
    finish_renaming,
    has_cycles_since,
    list_deleted,
    list_renamed,
    record_trouble,
)
from store.tasks.installation import read_traces
from trainer.settings import TrainerSettings
from trainer.tracking.task_removal import remove_task, rename_task

T = TypeVar("T")

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 5.0
# After its lease is lost, a process may take this long to end.
_LEAVE_SECONDS = 10.0


class Deletions:
    """The state that outlives a tick: the end of a pause after an outage, and what was logged."""

    def __init__(self, engine: Engine, settings: TrainerSettings, stopping: threading.Event) -> None:
        self._engine = engine
        self._settings = settings
        self._stopping = stopping
        self._rest_until = 0.0
        self._logged: dict[str, str] = {}
        # Rows that this process has removed of each task.
        self._removed: dict[int, Counter[str]] = {}

    def tick(self, now: datetime) -> None:
        """Do what is left. An outage is logged once, and a later tick goes on. No task waits for another's trouble."""
        if time.monotonic() < self._rest_until:
            return
        renamed: list[RenamedTask] = []
        found: list[DeletedTask] = []

        def list_work() -> None:
            with self._engine.connect() as connection:
                renamed.extend(list_renamed(connection))
                found.extend(list_deleted(connection))

        self._attempt("", list_work)
        for one in renamed:
            self._attempt(one.new_name, partial(self._rename, one))
        for deleted in found:
            self._attempt(deleted.name, partial(self._remove_if_idle, deleted, now))

    def _attempt(self, task: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Unavailable as error:
            self._wait(task, str(error))
        except SQLAlchemyError as error:
            if (outage := name_outage(error)) is None:
                raise
            self._wait(task, outage.reason)

    def _rename(self, renamed: RenamedTask) -> None:
        assert self._settings.mlflow_url is not None
        names = list(dict.fromkeys([renamed.name, *renamed.former]))
        try:
            traces = self._write(partial(read_traces, task_id=renamed.task_id))
            left = rename_task(self._settings.mlflow_url, names, renamed.new_name, renamed.task_id, traces)
        except RegistryRefusal as error:
            if str(error) != renamed.trouble:
                self._write(partial(record_trouble, renamed=renamed, trouble=str(error)))
            raise
        self._log_left(renamed.name, left)
        fits = self._settings.home / "candidates"
        if (fits / renamed.name).is_dir() and not (fits / renamed.new_name).exists():
            (fits / renamed.name).rename(fits / renamed.new_name)
        self._write(partial(finish_renaming, renamed=renamed))
        log.info("task.renamed", task=renamed.name, new_name=renamed.new_name)

    def _remove_if_idle(self, deleted: DeletedTask, now: datetime) -> None:
        if self._may_begin(deleted, now):
            self._remove(deleted, now)

    def _may_begin(self, deleted: DeletedTask, now: datetime) -> bool:
        """Whether no process of a cycle can still write: the deletion took its lease, which it may notice late."""
        patience = timedelta(seconds=self._settings.lease_seconds + _LEAVE_SECONDS)
        with self._engine.connect() as connection:
            return not has_cycles_since(connection, deleted.task_id, max(deleted.deleted_at, now - patience))

    def _remove(self, deleted: DeletedTask, now: datetime) -> None:
        removed = self._removed.setdefault(deleted.task_id, Counter())
        after, is_done = "", False
        while not is_done:
            batch = self._write(partial(delete_events, task_id=deleted.task_id, after=after))
            removed.update({"num_events": batch.num_current, "num_revisions": batch.num_rows})
            after, is_done = batch.after, batch.num_rows == 0
        for delete_some in DELETE_SOME:
            while self._write(partial(delete_some, task_id=deleted.task_id)):
                pass
        assert self._settings.mlflow_url is not None
        traces = self._write(partial(read_traces, task_id=deleted.task_id))
        left = remove_task(self._settings.mlflow_url, deleted.registry_names, deleted.task_id, traces)
        self._log_left(deleted.name, left)
        shutil.rmtree(self._settings.home / "candidates" / deleted.name, ignore_errors=True)
        if self._write(partial(finish_deletion, deleted=deleted, now=now)):
            log.info(
                "task.deleted",
                task=deleted.name,
                task_id=deleted.task_id,
                actor=deleted.actor,
                **_sum_removed(deleted.contents, removed),
            )
            del self._removed[deleted.task_id]

    def _log_left(self, task: str, left: list[str]) -> None:
        if left:
            log.warning("task.left_in_mlflow", task=task, left=left, remedy="delete it in MLflow if nobody uses it")

    def _write(self, work: Callable[[Connection], T]) -> T:
        """The result of short work in a transaction of its own. Raises Unavailable once the trainer stops."""
        if self._stopping.is_set():
            raise Unavailable("The trainer is stopping.")
        with self._engine.begin() as connection:
            return work(connection)

    def _wait(self, task: str, reason: str) -> None:
        self._rest_until = time.monotonic() + _PAUSE_SECONDS
        if self._logged.get(task) != reason:
            log.warning("task.not_done_yet", task=task, reason=reason)
        self._logged[task] = reason


def _sum_removed(held: Contents | None, removed: Counter[str]) -> dict[str, int]:
    """The numbers of rows that the task lost in all: an earlier process may have removed some of them."""
    counts = {name: removed[name] for name in ("num_events", "num_revisions")}
    if held is None or held.num_revisions <= removed["num_revisions"]:
        return counts
    return {"num_events": held.num_events, "num_revisions": held.num_revisions}
