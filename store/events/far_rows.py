"""A cheap look at a task's events for values that are far from all others; `contracts.quality.far_values` finds them.

It reads the oldest and the newest rows only, so a status can afford it however many events there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select

from contracts.clock import MICROSECOND, to_micros
from contracts.quality.far_values import FarLabels, count_far_off_ends, find_far_labels, most_far_off
from store.database import events
from store.tasks.catalog import Schema

# With more events than these, no more of the outermost are read: at most 1,000 on either side.
_MOST_COUNTED = 20_000


@dataclass(frozen=True)
class FarEvents:
    """Events dated far from all others: their number, the ids of the outermost, and moments in microseconds.

    `outermost` is the moment of the outermost of them, and `others` that of the nearest event which is not far off.
    """

    count: int
    ids: tuple[str, ...]
    outermost: int
    others: int


@dataclass(frozen=True)
class FarRows:
    """Events dated far before or after the others, and labels far outside the others among the newest rows."""

    before: FarEvents | None = None
    after: FarEvents | None = None
    labels: FarLabels | None = None


def find_far_rows(connection: Connection, schema: Schema, labels: Sequence[str], now: datetime) -> FarRows:
    """What is far from the other events before `now`; `labels` are those of the newest rows."""
    task_id, task = schema.task_id, schema.task
    most = most_far_off(_count_events(connection, task_id, now, _MOST_COUNTED))
    oldest = _read_ends(connection, task_id, now, most + 1, newest=False)
    newest = _read_ends(connection, task_id, now, most + 1, newest=True)
    before = after = None
    if len(oldest.at) > most:
        window, most_newest = task.window // MICROSECOND, task.guard.min_rows - 1
        num_before, num_after = count_far_off_ends(oldest.at, newest.at[::-1], window, most_newest)
        before, after = oldest.describe(num_before), newest.describe(num_after)
    far_labels = None if task.is_classification else find_far_labels(np.array([*map(float, labels)], np.float64))
    return FarRows(before, after, far_labels)


@dataclass(frozen=True)
class _Ends:
    """Moments `(n,)` and ids of events, the outermost first."""

    at: NDArray[np.int64]
    ids: tuple[str, ...]

    def describe(self, count: int) -> FarEvents | None:
        """The outermost events; None if there are none."""
        return FarEvents(count, self.ids[:count], int(self.at[0]), int(self.at[count])) if count else None


def _count_events(connection: Connection, task_id: int, now: datetime, most: int) -> int:
    """How many events lie before `now`, counted up to `most`."""
    some = select(events.c.at).where(events.c.task_id == task_id, events.c.superseded_at.is_(None), events.c.at < now)
    return connection.execute(
        select(func.count()).select_from(some.order_by(events.c.at).limit(most).subquery())
    ).scalar_one()


def _read_ends(connection: Connection, task_id: int, now: datetime, count: int, *, newest: bool) -> _Ends:
    """The oldest or the newest events."""
    order = events.c.at.desc() if newest else events.c.at
    rows = connection.execute(
        select(events.c.at, events.c.event_id)
        .where(events.c.task_id == task_id, events.c.superseded_at.is_(None), events.c.at < now)
        .order_by(order)
        .limit(count)
    ).all()
    return _Ends(np.array([to_micros(at) for at, _ in rows], np.int64), tuple(event_id for _, event_id in rows))
