"""Notes the ends of validity for the hooks, and deletes old events, next to the scheduler's tick."""

import threading
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from store.hooks.expiries import EXPIRED, EXPIRING, Bound, Expiry, list_bounds, note_expiries
from store.hooks.ledger import has_hooks
from store.hooks.outbox import delete_ended_before
from store.outages import name_outage
from store.tasks.current_tasks import CurrentTasks

log = structlog.get_logger(__name__)

# A version expires soon if less than this share of a window is left, as for the alert MorrowExpiresSoon.
EXPIRING_SHARE = 0.2
DELIVERED_KEPT, GIVEN_UP_KEPT = timedelta(days=7), timedelta(days=30)
_LOOK_SECONDS = 10.0
_CLEAN_SECONDS = 600.0
_BATCH_SIZE = 5_000


class HookUpkeep:
    """The state that outlives a tick: the tasks as they were read last, and when to look again."""

    def __init__(self, engine: Engine, stopping: threading.Event) -> None:
        self._engine = engine
        self._stopping = stopping
        self._tasks = CurrentTasks()
        self._look_at = self._clean_at = 0.0

    def tick(self, now: datetime) -> None:
        """Look what has expired, unless that was done a short time ago. After an outage a later tick goes on."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_SECONDS
        try:
            self._note_expiries(now)
            if time.monotonic() >= self._clean_at:
                self._clean(now)
                self._clean_at = time.monotonic() + _CLEAN_SECONDS
        except SQLAlchemyError as error:
            if name_outage(error) is None:
                raise

    def _note_expiries(self, now: datetime) -> None:
        with self._engine.begin() as connection:
            if not has_hooks(connection):
                return
            self._tasks.read(connection)
            windows = {task_id: schema.task.window for task_id, schema in self._tasks.schemas.items()}
            found = find_expiries(list_bounds(connection), windows, now)
            num_new = note_expiries(connection, found)
        if num_new:
            log.info("expiries.noted", count=num_new)

    def _clean(self, now: datetime) -> None:
        count = _BATCH_SIZE
        while count == _BATCH_SIZE and not self._stopping.is_set():
            with self._engine.begin() as connection:
                count = delete_ended_before(connection, now - DELIVERED_KEPT, now - GIVEN_UP_KEPT, _BATCH_SIZE)


def find_expiries(bounds: Iterable[Bound], windows: Mapping[int, timedelta], now: datetime) -> list[Expiry]:
    """What has become of these bounds by now and is not noted yet, each with the moment at which it became so.

    `windows` are the lengths of windows by the ids of tasks. A bound that was set in the past has expired when it was
    set.
    """
    found = []
    for bound in bounds:
        window = windows.get(bound.task_id)
        if bound.valid_until < now:
            kind, at = EXPIRED, bound.valid_until
        elif window is not None and bound.valid_until - now < EXPIRING_SHARE * window:
            kind, at = EXPIRING, bound.valid_until - EXPIRING_SHARE * window
        else:
            continue
        if kind not in bound.noted:
            found.append(Expiry(bound.release_id, kind, max(at, bound.set_at)))
    return found
