"""Upkeep of the log of predictions, next to the scheduler's tick: partitions made ahead, and old rows gone.

A day whose rows are too old for every task is dropped whole. Rows of a task that keeps them for fewer days than others
are deleted in batches before that.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from contracts.spec.prediction_log import PredictionLog
from store.outages import name_outage
from store.predictions.partitions import (
    delete_before,
    drop_partition,
    find_missing,
    list_partitions,
    make_partition,
)
from store.tasks.catalog import read_tasks

T = TypeVar("T")

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 600.0
# After an outage, and while a reader holds the table, such as a backup.
_RETRY_SECONDS = 30.0
_DAYS_AHEAD = 2
BATCH_SIZE = 10_000


@dataclass(frozen=True)
class _Kept:
    """For how many days each task keeps its rows, by id, and the most of these days."""

    days: Mapping[int, int]
    longest: int


class PredictionDays:
    """The state that outlives a tick: when to look again."""

    def __init__(self, engine: Engine, stopping: threading.Event) -> None:
        self._engine = engine
        self._stopping = stopping
        self._look_at = 0.0

    def tick(self, now: datetime) -> None:
        """Make and drop what is due, unless it was looked for a short time ago. A later tick goes on after outages."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _PAUSE_SECONDS
        try:
            self._make(now)
            kept = self._write(_read_kept)
            self._drop(kept, now)
            self._delete(kept, now)
        except SQLAlchemyError as error:
            if name_outage(error) is None:
                raise
            self._look_at = time.monotonic() + _RETRY_SECONDS

    def _make(self, now: datetime) -> None:
        for partition in self._write(partial(find_missing, now=now, days_ahead=_DAYS_AHEAD)):
            self._write(partial(make_partition, partition=partition))

    def _drop(self, kept: _Kept, now: datetime) -> None:
        for partition in self._write(list_partitions):
            if partition.end <= now - timedelta(days=kept.longest):
                self._write(partial(drop_partition, partition=partition))
                log.info("predictions.dropped", day=partition.day.isoformat())

    def _delete(self, kept: _Kept, now: datetime) -> None:
        """Delete the rows of tasks that keep them for fewer days, as if the partitions of those days were dropped."""
        for task_id, days in kept.days.items():
            if days == kept.longest:
                continue
            before = (now - timedelta(days=days)).replace(hour=0, minute=0, second=0, microsecond=0)
            delete = partial(delete_before, task_id=task_id, moment=before, size=BATCH_SIZE)
            num_deleted = count = self._write(delete)
            while count == BATCH_SIZE and not self._stopping.is_set():
                count = self._write(delete)
                num_deleted += count
            if num_deleted:
                log.info("predictions.deleted", task_id=task_id, num_rows=num_deleted, days=days)

    def _write(self, work: Callable[[Connection], T]) -> T:
        with self._engine.begin() as connection:
            return work(connection)


def _read_kept(connection: Connection) -> _Kept:
    """A task whose spec this release cannot read keeps its rows as if it said nothing."""
    schemas, unreadable = read_tasks(connection)
    usual = PredictionLog().days
    days = {schema.task_id: schema.task.log.days for schema in schemas} | dict.fromkeys(unreadable, usual)
    return _Kept(days, max(days.values(), default=usual))
