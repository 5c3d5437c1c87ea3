"""Which windows a task's rows fall into, and which of these windows have all of their labels."""

from collections.abc import Sequence

import numpy as np

from contracts.clock import MICROSECOND, Clock
from contracts.task import Guard, Task
from store.events.columns import EventColumns

# Target windows beyond `guard.min_pairs` that a cycle looks back on, so that one odd window does not stand for a third.
EXTRA_WINDOWS = 1


def complete_until(task: Task, cutoff: int) -> int:
    """End of the newest window all of whose labels are due by the cutoff, microseconds."""
    return task.clock.window_start(cutoff - task.label_delay // MICROSECOND)


def num_empty_windows(task: Task, known: EventColumns, cutoff: int) -> int:
    """Complete windows before the cutoff that follow the newest window with known rows."""
    newest = task.clock.window_start(int(known.at[-1])) + task.clock.window
    return max(0, complete_until(task, cutoff) - newest) // task.clock.window


def target_windows(task: Task, rows: EventColumns, cutoff: int) -> list[int]:
    """Starts of the newest complete windows that have rows, oldest first: those that every age is compared on.

    `rows` are those known at the cutoff.
    """
    starts = np.unique(task.clock.window_starts(rows.at))
    complete = starts[starts < complete_until(task, cutoff)]
    return [int(start) for start in complete[-(task.guard.min_pairs + EXTRA_WINDOWS) :]]


def needed_pairs(windows: Sequence[int], clock: Clock, guard: Guard) -> list[tuple[int, int]]:
    """(origin, target window) of every age up to `max_age` on these windows."""
    return [(window - age * clock.window, window) for window in windows for age in range(guard.max_age)]


def in_window(rows: EventColumns, start: int, clock: Clock) -> EventColumns:
    """The rows of one window among rows known at a cutoff, which are sorted by `at`."""
    first, end = np.searchsorted(rows.at, [start, start + clock.window])
    return rows.select(slice(int(first), int(end)))
