"""The cutoff of a cycle for which nobody has named one.

A stream may have ended long ago: a year of rows from an archive, or a sender that stopped. As of today such a task has
no horizon, because every window without events adds to the age of a model.
"""

from datetime import datetime

from contracts.clock import MICROSECOND, to_micros
from contracts.task import Task


def newest_cutoff(task: Task, now: datetime) -> int:
    """The newest window boundary that has been reached, microseconds."""
    return task.clock.window_start(to_micros(now))


def useful_cutoff(task: Task, now: datetime, newest_event: int | None) -> int:
    """The newest boundary as of which a horizon is possible; moments in microseconds.

    That is the newest boundary of all, unless the complete windows before it that hold no event are as many as the
    longest horizon. Then it is the first boundary at which all labels of the newest window with events were due.
    `newest_event` is the moment of the newest event before the newest boundary, None if there is none.
    """
    clock, newest = task.clock, newest_cutoff(task, now)
    delay = task.label_delay // MICROSECOND
    if newest_event is None:
        return newest
    end = clock.window_start(newest_event) + clock.window
    num_empty = (clock.window_start(newest - delay) - end) // clock.window
    if num_empty < task.guard.max_age:
        return newest
    return clock.window_start(end + delay + clock.window - 1)
