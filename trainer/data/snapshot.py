"""One read of the event store, and the rows of it that each origin may see.

All origins of a cycle are cut from the same read, so a backtest and its candidate use the same rows. Nothing that
happened or became known after an origin can reach its fit.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import numpy as np
from sqlalchemy import Engine

from contracts.clock import to_micros
from contracts.quality.far_values import count_far_off
from contracts.task import Training
from store.events.columns import EventColumns, read_events
from store.tasks.catalog import Schema


@dataclass(frozen=True)
class Reading:
    """Every revision allowed at the cutoff. Moments in microseconds."""

    schema: Schema
    cutoff: int
    read_at: int
    events: EventColumns

    @cached_property
    def current(self) -> EventColumns:
        """All rows that were known at the cutoff, however old: those that fits are scored on."""
        return self._without_far_off(self.events.as_of(self.cutoff))

    @cached_property
    def latest(self) -> EventColumns:
        """`known` at the cutoff. It is cut once, so its digest is hashed once, however many steps ask for it."""
        return self._in_history(self.current, self.cutoff)

    def known(self, origin: int) -> EventColumns:
        """The rows that were known at an origin, of the windows that `training.history` lets a fit read."""
        if origin == self.cutoff:
            return self.latest
        return self._in_history(self._without_far_off(self.events.as_of(origin)), origin)

    def _without_far_off(self, rows: EventColumns) -> EventColumns:
        """The rows without those dated far from all others: validity starts where rows support it."""
        task = self.schema.task
        before, after = count_far_off(rows.at, task.clock.window, task.guard.min_rows - 1)
        return rows.select(slice(before, len(rows) - after)) if before or after else rows

    def _in_history(self, rows: EventColumns, origin: int) -> EventColumns:
        task = self.schema.task
        if task.training.history is None:
            return rows
        return rows.select(rows.at >= origin - task.training.history * task.clock.window)

    @cached_property
    def fingerprints(self) -> dict[int, tuple[int, int]]:
        """Window -> the number of its current rows and of all their revisions: any append or correction changes one."""
        windows = self.schema.task.clock.window_starts(self.events.at)
        starts, place, num_revisions = np.unique(windows, return_inverse=True, return_counts=True)
        num_rows = np.bincount(place, self.events.superseded_at > self.cutoff, len(starts)).astype(np.int64)
        return {
            start: (rows, revisions)
            for start, rows, revisions in zip(starts.tolist(), num_rows.tolist(), num_revisions.tolist(), strict=True)
        }

    def fit_rows(self, origin: int) -> EventColumns:
        """`known` without the withheld rows: the rows that the fit of this origin is made of."""
        rows = self.known(origin)
        return rows.select(~rows.withheld)

    def num_fit_rows(self, origin: int) -> int:
        """The number of `fit_rows`, without copying them."""
        return int(np.count_nonzero(~self.known(origin).withheld))

    def with_training(self, training: Training) -> "Reading":
        """The same rows for a task that differs in its recipe alone."""
        return replace(self, schema=replace(self.schema, task=self.schema.task.with_training(training)))


def read(engine: Engine, schema: Schema, cutoff: int, now: datetime) -> Reading:
    """Read once, in a snapshot of its own, which is closed before anything is fitted."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection, connection.begin():
        events = read_events(connection, schema.task_id, schema.task, cutoff)
    return Reading(schema, cutoff, to_micros(now), events)
