"""Which windows a task's rows fall into, and which of these windows have all of their labels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.clock import MICROSECOND, Clock
from contracts.task import Guard, Task
from contracts.verdict import EXTRA_WINDOWS
from store.events.reading.columns import EventColumns


def window_places(clock: Clock, at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The starts of the windows that hold these ascending moments, and the place of the first moment of each.

    Takes the memory of the windows, not of the moments.
    """
    starts: list[int] = []
    places: list[int] = []
    place = 0
    while place < len(at):
        start = clock.window_start(int(at[place]))
        starts.append(start)
        places.append(place)
        place += int(np.searchsorted(at[place:], start + clock.window))
    return np.array(starts, np.int64), np.array(places, np.int64)


def complete_until(task: Task, cutoff: int) -> int:
    """End of the newest window all of whose labels are due by the cutoff, microseconds."""
    return task.clock.window_start(cutoff - task.label_delay // MICROSECOND)


def num_empty_windows(task: Task, known: EventColumns, cutoff: int) -> int:
    """Complete windows before the cutoff that follow the newest window with known rows."""
    newest = task.clock.window_start(int(known.at[-1])) + task.clock.window
    return max(0, complete_until(task, cutoff) - newest) // task.clock.window


def target_windows(task: Task, rows: EventColumns, cutoff: int, count: int | None = None) -> list[int]:
    """Starts of the newest complete windows that have rows, oldest first: those that every age is compared on.

    `rows` are those known at the cutoff. `count` is the most windows; if None, as many as a cycle must look back on.
    """
    starts, _ = window_places(task.clock, rows.at)
    complete = starts[starts < complete_until(task, cutoff)]
    count = task.guard.min_pairs + EXTRA_WINDOWS if count is None else count
    return [int(start) for start in complete[-count:]]


def num_like_today(task: Task, rows: EventColumns, cutoff: int, least_share: float = 0.5) -> int:
    """The number of the newest target windows all of whose origins know at least this share of the rows.

    A fit on fewer rows says little about one on all rows: in a young task its error grows for want of rows, not of age.
    """
    earliest = int(rows.at[int(len(rows) * least_share)]) + (task.guard.max_age - 1) * task.clock.window
    return sum(start >= earliest for start in target_windows(task, rows, cutoff, len(rows)))


def pairs_to_score(task: Task, rows: EventColumns, cutoff: int, count: int) -> list[tuple[int, int]]:
    """(origin, target window) of every age, on the newest windows with rows: at most `count` windows for an age.

    An origin right after a window without rows knows what an earlier origin knows. It is left out, unless too few
    windows would remain for an age. Each target window has age 0 as well, which the other ages are compared with.
    """
    return pairs_of_windows(task, window_places(task.clock, rows.at)[0], cutoff, count)


def pairs_of_windows(task: Task, starts: NDArray[np.int64], cutoff: int, count: int) -> list[tuple[int, int]]:
    """`pairs_to_score`, from the starts of the windows with rows, oldest first."""
    window, guard = task.clock.window, task.guard
    fed = {int(start) + window for start in starts}
    newest = starts[starts < complete_until(task, cutoff)][::-1].tolist()
    pairs: set[tuple[int, int]] = set()
    for age in range(guard.max_age):
        sound = [start for start in newest if start in fed and start - age * window in fed][:count]
        for start in sound if len(sound) >= guard.min_pairs else newest[:count]:
            pairs |= {(start, start), (start - age * window, start)}
    return sorted(pairs, key=lambda pair: (pair[1], -pair[0]))


def oldest_origin(task: Task, starts: NDArray[np.int64], cutoff: int, count: int) -> int:
    """The oldest origin that a cycle of this cutoff can fit, if each age is scored on at most `count` windows.

    `starts` are those of all windows with rows, oldest first.
    """
    pairs = pairs_of_windows(task, starts, cutoff, count)
    return min([cutoff, complete_until(task, cutoff), *(origin for origin, _ in pairs)])


def history_start(task: Task, origin: int) -> int | None:
    """The moment from which on a fit of this origin reads rows; None if it reads all of them."""
    return None if task.training.history is None else origin - task.training.history * task.clock.window


def needed_pairs(windows: Sequence[int], clock: Clock, guard: Guard) -> list[tuple[int, int]]:
    """(origin, target window) of every age up to `max_age` on these windows."""
    return [(window - age * clock.window, window) for window in windows for age in range(guard.max_age)]


def in_window(rows: EventColumns, start: int, clock: Clock) -> EventColumns:
    """The rows of one window among rows known at a cutoff, which are sorted by `at`."""
    first, end = np.searchsorted(rows.at, [start, start + clock.window])
    return rows.select(slice(int(first), int(end)))


def newest_window(rows: EventColumns, clock: Clock) -> EventColumns:
    """The rows of the newest window that has rows, among rows that are sorted by `at`."""
    return in_window(rows, clock.window_start(int(rows.at[-1])), clock)
