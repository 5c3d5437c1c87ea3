"""Settles halves of events that no request completed, next to the scheduler's tick (`store.labels.sweep`)."""

import threading
import time
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from store.labels.sweep import list_tasks_with_halves, sweep_halves
from store.outages import name_outage
from store.tasks.catalog import read_tasks
from trainer.settings import TrainerSettings

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 10.0


class IncompleteEvents:
    """The state that outlives a tick: when to look again."""

    def __init__(self, engine: Engine, settings: TrainerSettings, stopping: threading.Event) -> None:
        self._engine = engine
        self._longest_wait = timedelta(days=settings.label_wait_days)
        self._stopping = stopping
        self._look_at = 0.0

    def tick(self, now: datetime) -> None:
        """Settle halves, unless that was done a short time ago. After an outage, a later tick goes on."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _PAUSE_SECONDS
        try:
            self._sweep(now)
        except SQLAlchemyError as error:
            if name_outage(error) is None:
                raise

    def _sweep(self, now: datetime) -> None:
        with self._engine.connect() as connection:
            task_ids = list_tasks_with_halves(connection)
            schemas, _ = read_tasks(connection, task_ids) if task_ids else ([], {})
        for schema in schemas:
            if self._stopping.is_set():
                return
            with self._engine.begin() as connection:
                swept = sweep_halves(connection, schema, now, self._longest_wait)
            if swept.num_joined or swept.num_overdue:
                log.info(
                    "labels.settled",
                    task=schema.task.name,
                    joined=swept.num_joined,
                    overdue=swept.num_overdue,
                )
