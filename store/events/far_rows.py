"""A cheap look at a task's events for values that are far from all others; `contracts.quality.far_values` finds them.

It reads the oldest and the newest rows, and those next to a few moments in between, so a status can afford it however
many events there are: a gap that is longer than a third of a time holds one of a few moments spread over that time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Column, ColumnElement, Connection, Select, func, select, text, true

from contracts.clock import MICROSECOND, from_micros, to_micros
from contracts.quality.far_values import (
    FarLabels,
    Gap,
    count_far_off_ends,
    find_far_labels,
    most_far_off,
    part_by_gaps,
    search_gaps,
)
from store.database import FIRST_MOMENT, events, is_readable, sealed_windows
from store.events.sealed.newest_rows import Outermost, read_outermost
from store.tasks.catalog import Schema

T = TypeVar("T")

# With more events than these, no more of the outermost are read: at most 1,000 on either side.
_MAX_COUNTED = 20_000
# The number of parts of a time whose longest gap is looked for, and the most ids of a group that are read.
_NUM_PARTS = 8
_MAX_IDS = 3
# The most events of the future that are counted.
_MAX_FUTURE = 1_000


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
class GroupApart:
    """Events beyond a long gap, too many to be left out of fits: at least `count`, of `begin` to `end`.

    `others` is the moment on the other side of the gap; all are in microseconds. `ids` are some of theirs.
    """

    count: int
    ids: tuple[str, ...]
    begin: int
    end: int
    others: int

    @property
    def is_older(self) -> bool:
        return self.end < self.others

    @property
    def is_counted(self) -> bool:
        """Whether there are no more than `count`."""
        return self.count < _MAX_COUNTED


@dataclass(frozen=True)
class FarRows:
    """Events dated far before or after the others, and labels far outside the others among the newest rows."""

    before: FarEvents | None = None
    after: FarEvents | None = None
    labels: FarLabels | None = None
    apart: tuple[GroupApart, ...] = ()


@dataclass(frozen=True)
class FutureEvents:
    """Events dated after a moment: at least `count`, the ids of the newest, and the newest moment; in microseconds.

    `since` is the moment of the oldest of those that were counted.
    """

    count: int
    ids: tuple[str, ...]
    newest: int
    since: int

    @property
    def is_counted(self) -> bool:
        """Whether there are no more than `count`."""
        return self.count < _MAX_FUTURE


def find_future(
    connection: Connection, task_id: int, after: datetime, import_id: int | None = None
) -> FutureEvents | None:
    """The events dated after a moment, of an import as they came if one is given; None if there is none."""
    rows = connection.execute(
        select(events.c.at, events.c.event_id)
        .where(events.c.task_id == task_id, events.c.superseded_at.is_(None))
        .where(events.c.at > after, is_readable(events.c.at))
        .where(true() if import_id is None else events.c.import_id == import_id)
        .order_by(events.c.at.desc())
        .limit(_MAX_FUTURE)
    ).all()
    if not rows:
        return None
    ids = tuple(event_id for _, event_id in rows[: _MAX_IDS + 1])
    return FutureEvents(len(rows), ids, to_micros(rows[0].at), to_micros(rows[-1].at))


def find_far_rows(connection: Connection, schema: Schema, labels: Sequence[str], now: datetime) -> FarRows:
    """What is far from the other events before `now`; `labels` are those of the newest rows."""
    task_id, task = schema.task_id, schema.task
    most = most_far_off(_count_events(connection, task_id, now, _MAX_COUNTED))
    oldest = _read_ends(connection, task_id, now, most + 1, newest=False)
    newest = _read_ends(connection, task_id, now, most + 1, newest=True)
    before = after = None
    apart: tuple[GroupApart, ...] = ()
    if len(oldest.at) > most:
        window, most_newest = task.window // MICROSECOND, task.guard.min_rows - 1
        num_before, num_after = count_far_off_ends(oldest.at, newest.at[::-1], window, most_newest)
        before, after = oldest.describe(num_before), newest.describe(num_after)
        apart = tuple(_find_apart(connection, task_id, int(oldest.at[num_before]), int(newest.at[num_after]), window))
    far_labels = None if task.is_classification else find_far_labels(np.array([*map(float, labels)], np.float64))
    return FarRows(before, after, far_labels, apart)


@dataclass(frozen=True)
class _Ends:
    """Moments `(n,)` and ids of events, the outermost first."""

    at: NDArray[np.int64]
    ids: tuple[str, ...]

    def describe(self, count: int) -> FarEvents | None:
        """The outermost events; None if there are none."""
        return FarEvents(count, self.ids[:count], int(self.at[0]), int(self.at[count])) if count else None


def _find_apart(connection: Connection, task_id: int, oldest: int, newest: int, window: int) -> Iterator[GroupApart]:
    """The groups beyond long gaps between these moments, without the largest group."""
    gaps = search_gaps(oldest, newest, window, partial(_find_longest_gap, connection, task_id))
    groups = part_by_gaps(oldest, newest, gaps)
    if len(groups) == 1:
        return
    counts = [_count_between(connection, task_id, *group) for group in groups]
    main = len(counts) - 1 - counts[::-1].index(max(counts))  # of equal ones the newest
    for place, ((begin, end), count) in enumerate(zip(groups, counts, strict=True)):
        if place != main:
            others = groups[place + 1][0] if place < main else groups[place - 1][1]
            yield GroupApart(count, _read_ids(connection, task_id, begin, end), begin, end, others)


def _find_longest_gap(connection: Connection, task_id: int, oldest: int, newest: int) -> Gap:
    """The longest gap around some moments between these two, which are the moments of events."""
    places = [oldest + (newest - oldest) * part // _NUM_PARTS for part in range(1, _NUM_PARTS)]
    rows = connection.execute(_NEIGHBOURS, {"task_id": task_id, "places": [*map(from_micros, places)]}).all()
    known = sorted({oldest, newest, *(to_micros(at) for row in rows for at in row if at is not None)})
    inside = [at for at in known if oldest <= at <= newest]
    return max((Gap(last, first) for last, first in pairwise(inside)), key=lambda gap: gap.length)


# The newest event before each moment, and the oldest one from then on. A window with sealed events has its first and
# its last for all of them: a long gap is longer than a window.
_NEIGHBOURS = text("""
    SELECT
        greatest(
            (SELECT at FROM events WHERE task_id = :task_id AND superseded_at IS NULL AND at < place
             ORDER BY at DESC LIMIT 1),
            (SELECT max(last_at) FROM sealed_windows WHERE task_id = :task_id AND last_at < place),
            (SELECT max(first_at) FROM sealed_windows WHERE task_id = :task_id AND first_at < place)
        ),
        least(
            (SELECT at FROM events WHERE task_id = :task_id AND superseded_at IS NULL AND at >= place
             ORDER BY at LIMIT 1),
            (SELECT min(first_at) FROM sealed_windows WHERE task_id = :task_id AND first_at >= place),
            (SELECT min(last_at) FROM sealed_windows WHERE task_id = :task_id AND last_at >= place)
        )
    FROM unnest(CAST(:places AS timestamptz[])) AS place
""")


def _count_between(connection: Connection, task_id: int, begin: int, end: int) -> int:
    """How many events lie between these moments, both included, counted up to a limit."""
    some = _select_between(events.c.at, task_id, begin, end).limit(_MAX_COUNTED)
    count = connection.execute(select(func.count()).select_from(some.subquery())).scalar_one()
    return min(_MAX_COUNTED, count + _count_sealed(connection, task_id, begin, end))


def _count_sealed(connection: Connection, task_id: int, begin: int, end: int) -> int:
    """How many sealed events lie in windows whose events all lie between these moments, both included."""
    query = select(func.coalesce(func.sum(sealed_windows.c.num_rows), 0)).where(
        sealed_windows.c.task_id == task_id,
        sealed_windows.c.first_at >= from_micros(begin),
        sealed_windows.c.last_at <= from_micros(end),
    )
    return int(connection.execute(query).scalar_one())


def _read_ids(connection: Connection, task_id: int, begin: int, end: int) -> tuple[str, ...]:
    """Ids of the oldest events between these moments."""
    query = select(events.c.at, events.c.event_id).where(*_between(task_id, begin, end)).order_by(events.c.at)
    rows = connection.execute(query.limit(_MAX_IDS + 1)).all()
    found = [(to_micros(at), event_id) for at, event_id in rows]
    wanted = Outermost(_MAX_IDS + 1, newest=False, first=begin, end=end + 1)
    return tuple(event_id for _, event_id in _add_sealed(connection, task_id, found, wanted))


def _add_sealed(
    connection: Connection,
    task_id: int,
    found: list[tuple[int, str]],
    wanted: Outermost,
) -> list[tuple[int, str]]:
    """The outermost events, of those that were found in the table and sealed ones."""
    if len(found) == wanted.count:
        wanted = replace(wanted, beyond=found[-1][0])
    sealed = read_outermost(connection, task_id, wanted)
    if not sealed:
        return found
    every = [*found, *((to_micros(row.at), row.event_id) for row in sealed)]
    return sorted(every, key=lambda one: one[0], reverse=wanted.newest)[: wanted.count]


def _select_between(column: Column[T], task_id: int, begin: int, end: int) -> Select[T]:
    return select(column).where(*_between(task_id, begin, end)).order_by(events.c.at)


def _between(task_id: int, begin: int, end: int) -> tuple[ColumnElement[bool], ...]:
    return (
        events.c.task_id == task_id,
        events.c.superseded_at.is_(None),
        events.c.at >= from_micros(begin),
        events.c.at <= from_micros(end),
    )


def _count_events(connection: Connection, task_id: int, now: datetime, most: int) -> int:
    """How many events lie before `now`, counted up to `most`."""
    some = select(events.c.at).where(events.c.task_id == task_id, events.c.superseded_at.is_(None), events.c.at < now)
    count = connection.execute(
        select(func.count()).select_from(some.order_by(events.c.at).limit(most).subquery())
    ).scalar_one()
    return min(most, count + _count_sealed(connection, task_id, to_micros(FIRST_MOMENT), to_micros(now) - 1))


def _read_ends(connection: Connection, task_id: int, now: datetime, count: int, *, newest: bool) -> _Ends:
    """The oldest or the newest events."""
    order = events.c.at.desc() if newest else events.c.at
    rows = connection.execute(
        select(events.c.at, events.c.event_id)
        .where(events.c.task_id == task_id, events.c.superseded_at.is_(None), events.c.at < now)
        .order_by(order)
        .limit(count)
    ).all()
    found = [(to_micros(at), event_id) for at, event_id in rows]
    ends = _add_sealed(connection, task_id, found, Outermost(count, newest=newest, end=to_micros(now)))
    return _Ends(np.array([at for at, _ in ends], np.int64), tuple(event_id for _, event_id in ends))
