"""The levels of numbers: what each of them was on average in the time before a window, as known at its start.

Where numbers wander, such as a price or a load, a network reads a new value as one that it has hardly seen. Its
difference from its level stays where the fit has rows. A *view* names the time over which a level is taken, and the
members of a cohort may read different views (`training.views`), so that they err differently.

A level stands for a window. It is made of the rows that were known at the window's start, so no row reads what
happened in its own window or later. Moments from the cutoff on have the level of the cutoff, as they do when the
version answers. If no rows are known in the time of a level, it is the last known one, or else the mean of the fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.clock import MICROSECOND
from contracts.task import Task, View
from store.events.reading.columns import EventColumns
from trainer.data.numbers import DENSE_LIMIT, Number, fit_number

_DAY = 86_400_000_000
# Most entries of a table of levels, which is part of the released graph; rows before it have its first levels.
_MOST_ENTRIES = 1 << 20


@dataclass(frozen=True, eq=False)
class Levels:
    """The levels of one view, a row for each window from `first` (microseconds) to that of the cutoff.

    values       (w, p)  levels in the unit of each number
    differences  the constants of each number's difference from its level, `p` of them; a missing one is their median
    """

    first: int
    window: int
    values: NDArray[np.float64]
    differences: tuple[Number, ...]

    def places(self, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row `(n,)` of the table that counts at each of these moments."""
        return ((at - self.first) // self.window).clip(0, len(self.values) - 1)

    def encode(self, numbers: NDArray[np.float64], at: NDArray[np.int64], out: NDArray[np.float32]) -> None:
        """Write the inputs `(n, p)` of a network for numbers `(n, p)` at these moments."""
        places = self.places(at)
        for j, difference in enumerate(self.differences):
            out[:, j] = difference.encode(_minus(numbers[:, j], self.values[places, j]))


def fit_levels(
    task: Task,
    view: View,
    numbers: Sequence[Number],
    rows: EventColumns,
    *,
    cutoff: int,
    max_pieces: int,
) -> Levels:
    """The levels of a fit's rows; `numbers` are the constants of the same rows, and `max_pieces` is as for these."""
    window, delay, at, known_at = task.clock.window, task.label_delay // MICROSECOND, rows.at, rows.known_at
    last = task.clock.window_start(cutoff)
    oldest = task.clock.window_start(int(at[0])) if len(at) else last
    most = max(1, _MOST_ENTRIES // max(1, len(numbers)))
    first = max(min(oldest, last), last - (most - 1) * window)
    count = (last - first) // window + 1
    # A row counts for the windows from the first that starts after it and knows it, to the last one within the span.
    begins = np.maximum((at - first) // window + 1, -((first - known_at) // window)).clip(0, count)
    ends = ((at + delay + _span(view, window) - first) // window + 1).clip(0, count)
    counts = np.flatnonzero(begins < ends)
    begins, ends = begins[counts], ends[counts]
    values = np.empty((count, len(numbers)))
    differences = list[Number]()
    places = ((at - first) // window).clip(0, count - 1)
    for j, number in enumerate(numbers):
        whole = rows.number(j)
        values[:, j] = _running_levels(whole[counts], begins, ends, count, number)
        apart = _minus(whole, values[places, j])
        differences.append(fit_number(apart, False, task.training.number_form, max_pieces))
    return Levels(first, window, values, tuple(differences))


def _minus(values: NDArray[np.float64], levels: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):  # an overflow is clipped
        return values - levels


def _span(view: View, window: int) -> int:
    """The time over which a view takes its levels, microseconds."""
    return {"last_day": _DAY, "last_week": 7 * _DAY}.get(view, window)


def _running_levels(
    values: NDArray[np.float64], begins: NDArray[np.int64], ends: NDArray[np.int64], count: int, number: Number
) -> NDArray[np.float64]:
    """The mean `(count,)` of the values that count in each window: from `begins` up to `ends`.

    Values are standardised and clipped, so none outweighs all others.
    """
    known = np.isfinite(values)
    begins, ends = begins[known], ends[known]
    with np.errstate(over="ignore"):  # an overflow is clipped next
        amounts = ((values[known] - number.mean) / number.scale).clip(-DENSE_LIMIT, DENSE_LIMIT)
    sums = _running_sums(begins, ends, count, amounts)
    numbers = _running_sums(begins, ends, count, None)
    means = np.where(numbers > 0, sums / np.maximum(numbers, 1), np.nan)
    newest = np.maximum.accumulate(np.where(numbers > 0, np.arange(count), -1))
    filled = np.where(newest < 0, 0.0, means[newest.clip(0)])
    return filled * number.scale + number.mean


def _running_sums(
    begins: NDArray[np.int64], ends: NDArray[np.int64], count: int, weights: NDArray[np.float64] | None
) -> NDArray[np.float64]:
    added = np.bincount(begins, weights, count + 1)
    removed = np.bincount(ends, weights, count + 1)
    return np.cumsum(added - removed)[:count].astype(np.float64)
