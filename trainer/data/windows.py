"""Which windows a task's rows fall into, and which of these windows have all of their labels."""

import numpy as np

from contracts.clock import MICROSECOND, Clock
from contracts.task import Task
from store.columns import EventColumns


def complete_until(task: Task, cutoff: int) -> int:
    """End of the newest window all of whose labels are due by the cutoff, microseconds."""
    return task.clock.window_start(cutoff - task.label_delay // MICROSECOND)


def num_empty_windows(task: Task, known: EventColumns, cutoff: int) -> int:
    """Complete windows before the cutoff that follow the newest window with known rows."""
    newest = task.clock.window_start(int(known.at[-1])) + task.clock.window
    return max(0, complete_until(task, cutoff) - newest) // task.clock.window


def in_window(rows: EventColumns, start: int, clock: Clock) -> EventColumns:
    """The rows of one window among rows known at a cutoff, which are sorted by `at`."""
    first, end = np.searchsorted(rows.at, [start, start + clock.window])
    return rows.select(slice(int(first), int(end)))
