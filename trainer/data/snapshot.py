"""One read of the event store, and what each origin may see of it.

All origins of a cycle are cut from the same read, so a backtest and its candidate stand on the same rows, and nothing
that happened or became known after an origin can reach its fit.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import numpy as np
from sqlalchemy import Engine

from contracts.clock import to_micros
from store.catalog import Schema
from store.columns import EventColumns, read_events


@dataclass(frozen=True)
class Reading:
    """Every revision allowed at the cutoff. Moments in microseconds."""

    schema: Schema
    cutoff: int
    read_at: int
    events: EventColumns

    def known(self, origin: int) -> EventColumns:
        """What was known at an origin, of the windows that `training.history` lets a fit read."""
        rows = self.events.as_of(origin)
        task = self.schema.task
        if task.training.history is None:
            return rows
        return rows.select(rows.at >= origin - task.training.history * task.clock.window)

    @cached_property
    def fingerprints(self) -> dict[int, tuple[int, int]]:
        """Window -> its current rows and all their revisions: any append or correction changes one of the two."""
        windows = self.schema.task.clock.window_starts(self.events.at)
        starts, place, num_revisions = np.unique(windows, return_inverse=True, return_counts=True)
        num_rows = np.bincount(place, self.events.superseded_at > self.cutoff, len(starts)).astype(np.int64)
        return {
            start: (rows, revisions)
            for start, rows, revisions in zip(starts.tolist(), num_rows.tolist(), num_revisions.tolist(), strict=True)
        }

    def fit_rows(self, origin: int) -> EventColumns:
        """The same without the withheld rows: what the fit of this origin is made of."""
        rows = self.known(origin)
        return rows.select(~rows.withheld)

    def num_fit_rows(self, origin: int) -> int:
        """How many these are; nothing is copied."""
        return int(np.count_nonzero(~self.known(origin).withheld))


def read(engine: Engine, schema: Schema, cutoff: int, now: datetime) -> Reading:
    """Read once, in a snapshot of its own that is closed before anything is fitted."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection, connection.begin():
        events = read_events(connection, schema.task_id, schema.task, cutoff)
    return Reading(schema, cutoff, to_micros(now), events)
