"""Deletes refused rows that are older than `MORROW_REFUSED_DAYS`, next to the scheduler's tick."""

import threading
import time
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from store.events.refused_rows import delete_refused_before
from store.outages import name_outage
from trainer.settings import TrainerSettings

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 600.0
BATCH_SIZE = 5_000


class RefusedRows:
    """The state that outlives a tick: when to look again."""

    def __init__(self, engine: Engine, settings: TrainerSettings, stopping: threading.Event) -> None:
        self._engine = engine
        self._days = settings.refused_days
        self._stopping = stopping
        self._look_at = 0.0

    def tick(self, now: datetime) -> None:
        """Delete what is too old, unless it was looked for a short time ago. After an outage, a later tick goes on."""
        if self._days is None or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _PAUSE_SECONDS
        num_deleted = 0
        try:
            while not self._stopping.is_set():
                with self._engine.begin() as connection:
                    count = delete_refused_before(connection, now - timedelta(days=self._days), size=BATCH_SIZE)
                num_deleted += count
                if count < BATCH_SIZE:
                    break
        except SQLAlchemyError as error:
            if name_outage(error) is None:
                raise
        if num_deleted:
            log.info("refused_rows.deleted", num_rows=num_deleted, days=self._days)
