"""One read of the event store, and the rows of it that each origin may see.

All origins of a cycle are cut from the same read, so a backtest and its candidate use the same rows. Nothing that
happened or became known after an origin can reach its fit.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import numpy as np
from sqlalchemy import Connection, Engine

from contracts.clock import to_micros
from contracts.quality.far_values import FAR_WINDOWS, count_far_off
from contracts.task import Training
from store.events.reading.columns import EventColumns, read_events
from store.events.reading.known_windows import find_newest_moments, find_windows
from store.tasks.catalog import Schema
from trainer.data.replica import Replica, read_rows
from trainer.data.windows import complete_until, history_start, oldest_origin, window_places

# Known windows are counted up to this number.
MOST_COUNTED = 10_000


@dataclass(frozen=True)
class Reading:
    """Every revision allowed at the cutoff, from `since` on. Moments in microseconds.

    since            where the reading begins: no fit that it is meant for can use older rows; None for the first row
    num_older        number of complete windows with rows before `since`
    """

    schema: Schema
    cutoff: int
    read_at: int
    events: EventColumns
    since: int | None = None
    num_older: int = 0

    def reaches(self, origin: int) -> bool:
        """Whether it holds every row that a fit of this origin can use."""
        first = history_start(self.schema.task, origin)
        return self.since is None or (first is not None and first >= self.since)

    @cached_property
    def current(self) -> EventColumns:
        """All rows that were known at the cutoff, however old, if they were read: those that fits are scored on."""
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
        first = history_start(self.schema.task, origin)
        return rows if first is None else rows.select(slice(int(np.searchsorted(rows.at, first)), None))

    @cached_property
    def fingerprints(self) -> dict[int, tuple[int, int]]:
        """Window -> the number of its current rows and of all their revisions: any append or correction changes one."""
        starts, places = window_places(self.schema.task.clock, self.events.at)
        if len(starts) == 0:
            return {}
        is_current = self.events.superseded_at > self.cutoff
        if self.events.odd_labels is not None:
            is_current = is_current & ~self.events.odd_labels
        num_rows = np.add.reduceat(is_current, places, dtype=np.int64)
        num_revisions = np.diff(places, append=len(self.events))
        return {
            start: (rows, revisions)
            for start, rows, revisions in zip(starts.tolist(), num_rows.tolist(), num_revisions.tolist(), strict=True)
        }

    @cached_property
    def _fitted(self) -> EventColumns:
        """The rows that are not withheld. Those of most origins are a view of them, so they take no memory."""
        return self.events.select(~self.events.withheld)

    def fit_rows(self, origin: int) -> EventColumns:
        """`known` without the withheld rows: the rows that the fit of this origin is made of."""
        known = self.known(origin)
        if len(known) == 0:
            return known
        first, last = known.part("at", slice(0, 1)), known.part("at", slice(len(known) - 1, None))
        rows = self._fitted.as_of(origin)
        at = rows.at
        places = np.searchsorted(at, first, "left"), np.searchsorted(at, last, "right")
        return rows.select(slice(*(int(place[0]) for place in places)))

    def num_fit_rows(self, origin: int) -> int:
        """The number of `fit_rows`."""
        return len(self.fit_rows(origin))

    def with_training(self, training: Training) -> "Reading":
        """The same rows for a task that differs in its recipe alone."""
        return replace(self, schema=replace(self.schema, task=self.schema.task.with_training(training)))


def read(
    engine: Engine,
    schema: Schema,
    cutoff: int,
    now: datetime,
    *,
    since: int | None = None,
    replica: Replica | None = None,
) -> Reading:
    """Read once, in a snapshot of its own, which is closed before anything is fitted; from `since` on if given."""
    events = read_rows(
        engine,
        replica,
        lambda connection: read_events(connection, schema.task_id, schema.task, cutoff, since=since),
    )
    return Reading(schema, cutoff, to_micros(now), events, since)


def read_for_cycle(
    engine: Engine,
    schema: Schema,
    cutoff: int,
    now: datetime,
    *,
    num_windows: int,
    replica: Replica | None = None,
) -> Reading:
    """Read what a cycle can use that scores each age on at most `num_windows` windows, likewise in one snapshot.

    With `training.history` older rows stay in the database. The exceptions are a task whose recipe is still chosen,
    because trials use origins of any age, and one whose newest rows may be dated far from all others.
    """

    def work(connection: Connection) -> tuple[EventColumns, int | None, int]:
        since, num_older = _find_start(connection, schema, cutoff, num_windows)
        return read_events(connection, schema.task_id, schema.task, cutoff, since=since), since, num_older

    events, since, num_older = read_rows(engine, replica, work)
    return Reading(schema, cutoff, to_micros(now), events, since, num_older)


def _find_start(connection: Connection, schema: Schema, cutoff: int, num_windows: int) -> tuple[int | None, int]:
    """Where the reading of a cycle begins, None for the first row, and the number of complete windows before that."""
    task = schema.task
    if task.training.history is None or task.training.tune or _may_end_far_off(connection, schema, cutoff):
        return None, 0
    newest_first = find_windows(connection, schema.task_id, task, cutoff, most=MOST_COUNTED)
    starts = np.array(newest_first[::-1], np.int64)
    since = history_start(task, oldest_origin(task, starts, cutoff, num_windows))
    if since is None:
        return None, 0
    return since, int(np.count_nonzero(starts < min(since, complete_until(task, cutoff))))


def _may_end_far_off(connection: Connection, schema: Schema, cutoff: int) -> bool:
    """Whether a long gap precedes some of the newest rows: only a reading of all rows shows whether fits count them."""
    task = schema.task
    newest = find_newest_moments(connection, schema.task_id, task, cutoff, most=task.guard.min_rows)
    return bool((-np.diff(newest) > FAR_WINDOWS * task.clock.window).any())
