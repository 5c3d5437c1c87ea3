"""What windows hold, without their rows: numbers of rows, and the newest one."""

from sqlalchemy import Connection, collate, func, or_, select, true

from contracts.clock import EPOCH, Clock, from_micros, to_micros
from contracts.task import Task
from store.database import FIRST_MOMENT, LAST_MOMENT, events, is_readable
from store.events.reading.sealed_columns import Span, count_rows
from store.events.row_forms import find_forms
from store.events.sealed.manifest import find_newest_sealed, find_oldest_sealed


def read_fingerprints(
    connection: Connection, task_id: int, task: Task, cutoff: int, *, since: int, until: int | None = None
) -> dict[int, tuple[int, int]]:
    """Window -> numbers of its current rows and of all their revisions, as known at `cutoff`.

    Windows begin with the one at `since`, and end before `until` if given. Any append, correction or erasure changes
    one of the two numbers, so they show whether a cell is still up to date. Of a regression, a row whose label does not
    begin like a number counts as a revision only.
    """
    window = func.date_bin(from_micros(task.clock.window) - EPOCH, events.c.at, from_micros(since))
    is_current = events.c.superseded_at.is_(None) | (events.c.superseded_at > from_micros(cutoff))
    if not task.is_classification:
        first = collate(events.c.label, "C")
        is_current = is_current & (first >= "+") & (first < ":")
    forms = find_forms(connection, task_id, task)
    rows = connection.execute(
        select(window, func.count().filter(is_current), func.count())
        .where(
            events.c.task_id == task_id,
            events.c.at >= from_micros(since),
            events.c.at < from_micros(cutoff if until is None else min(cutoff, until)),
            events.c.known_at <= from_micros(cutoff),
            events.c.schema_id.in_(forms.schema_ids),
            true() if forms.classes is None else events.c.label.in_(forms.labels),
        )
        .group_by(window)
    )
    found = {to_micros(start): (num_rows, num_revisions) for start, num_rows, num_revisions in rows}
    # A sealed row is the only revision of its event, and its label a number if it has to be one.
    for start, count in count_rows(connection, task_id, task, forms, Span(cutoff, since, until)).items():
        num_rows, num_revisions = found.get(start, (0, 0))
        found[start] = num_rows + count, num_revisions + count
    return found


def find_newest(connection: Connection, task_id: int, *, before: int | None = None) -> int | None:
    """When the newest event, or the newest before a moment, happened (microseconds); None if there is none.

    An event with a moment that has no microseconds, such as `infinity`, is passed over: `has_unreadable` finds it.
    """
    newest = connection.execute(
        select(func.max(events.c.at)).where(
            events.c.task_id == task_id,
            events.c.superseded_at.is_(None),
            is_readable(events.c.at),
            true() if before is None else events.c.at < from_micros(before),
        )
    ).scalar_one()
    sealed = find_newest_sealed(connection, task_id, before)
    moments = [moment for moment in (None if newest is None else to_micros(newest), sealed) if moment is not None]
    return max(moments, default=None)


def has_unreadable(connection: Connection, task_id: int) -> bool:
    """Whether the task has events with a moment that has no microseconds, from a time when the table took them."""
    at = events.c.at
    # The outermost moments: a search for any row outside the calendar may be planned as a scan of the whole table.
    ends = [
        select(side).where(events.c.task_id == task_id).order_by(order).limit(1).scalar_subquery()
        for side, order in ((at < FIRST_MOMENT, at), (at > LAST_MOMENT, at.desc()))
    ]
    return connection.execute(select(func.coalesce(or_(*ends), False))).scalar_one()


def count_windows(connection: Connection, task_id: int, clock: Clock, *, until: int, most: int) -> int:
    """The number of windows before `until` (microseconds) that hold an event; counting stops at `most`."""
    found, since = 0, None
    while found < most:
        oldest = connection.execute(
            select(func.min(events.c.at)).where(
                events.c.task_id == task_id,
                events.c.superseded_at.is_(None),
                events.c.at < from_micros(until),
                events.c.at >= (FIRST_MOMENT if since is None else from_micros(since)),
            )
        ).scalar_one()
        first = find_oldest_sealed(connection, task_id, since, until)
        moments = [moment for moment in (None if oldest is None else to_micros(oldest), first) if moment is not None]
        if not moments:
            break
        found, since = found + 1, clock.window_start(min(moments)) + clock.window
    return found
