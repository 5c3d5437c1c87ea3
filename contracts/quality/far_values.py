"""Values far from all others: moments of a wrong year, and labels that stand for a missing value.

Other languages' zero values date an event to the year 1 or 1970. Sensors and old databases write -9999 or 999999 if
there is no value. A few of these would bend every scale of a fit, and stretch the time over which it claims validity.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A group of moments is far off if the gap to the others is longer than this many windows, and than half of the time
# that the middle nine tenths of all moments cover. One moment in 20 at either end can belong to such a group.
FAR_WINDOWS = 26
_ONE_IN = 20
# How many gaps are looked for. Of a stream that has paused, no side is longer than this many times the other.
_MAX_GAPS = 3
_LEAST_RATIO = 10
_YEAR = 366 * 86_400_000_000
# A label is far outside if it occurs this often, and if this many spreads of the other labels lie between. At most this
# share of all labels can be far outside.
_LEAST_REPEATED, _FAR_SPREADS, _LARGEST_SHARE = 3, 5.0, 0.25
_FEWEST_LABELS = 100


def count_far_off(at: NDArray[np.int64], window: int, most_newest: int) -> tuple[int, int]:
    """How many of the oldest and of the newest moments are far off; `at` `(n,)` ascending, all in microseconds.

    At most `most_newest` of the newest are: more are a stream that has begun again.
    """
    most = most_far_off(len(at))
    return count_far_off_ends(at[: most + 1], at[len(at) - most - 1 :], window, most_newest)


def most_far_off(count: int) -> int:
    """How many of this many moments can be far off at either end."""
    return count // _ONE_IN


def count_far_off_ends(
    oldest: NDArray[np.int64], newest: NDArray[np.int64], window: int, most_newest: int
) -> tuple[int, int]:
    """How many moments are far off at either end, found from the ends alone.

    `oldest` and `newest` ascend, and have one moment more than can be far off.
    """
    if len(oldest) < 2:
        return 0, 0
    least = max(FAR_WINDOWS * window, int(newest[0] - oldest[-1]) // 2)
    before = np.flatnonzero(np.diff(oldest) > least)
    last = newest[max(0, len(newest) - 1 - most_newest) :]
    after = np.flatnonzero(np.diff(last) > least)
    return (int(before[-1]) + 1 if len(before) else 0), (len(last) - 1 - int(after[0]) if len(after) else 0)


@dataclass(frozen=True)
class Gap:
    """A time without moments: after `last` and before `first`, in microseconds."""

    last: int
    first: int

    @property
    def length(self) -> int:
        return self.first - self.last


def find_gaps(at: NDArray[np.int64], window: int) -> tuple[Gap, ...]:
    """The long gaps between moments `(n,)`, ascending, all in microseconds, as `search_gaps` finds them."""

    def find_longest(begin: int, end: int) -> Gap:
        some = at[np.searchsorted(at, begin) : np.searchsorted(at, end, "right")]
        place = int(np.argmax(np.diff(some)))
        return Gap(int(some[place]), int(some[place + 1]))

    return search_gaps(int(at[0]), int(at[-1]), window, find_longest) if len(at) else ()


def search_gaps(oldest: int, newest: int, window: int, find_longest: Callable[[int, int], Gap]) -> tuple[Gap, ...]:
    """The long gaps between two moments, at most three, oldest first.

    A gap is long if it takes more than 26 windows, and more than a third of the time in which `find_longest` has found
    it. Then both sides are searched: a group of the year 1 hides no group of 1970.
    """
    gaps: list[Gap] = []
    times = [(oldest, newest)]
    while times and len(gaps) < _MAX_GAPS:
        begin, end = times.pop(0)
        if end - begin <= FAR_WINDOWS * window:
            continue
        gap = find_longest(begin, end)
        if gap.length > max(FAR_WINDOWS * window, (end - begin) // 3):
            gaps.append(gap)
            times += [(begin, gap.last), (gap.first, end)]
    return tuple(sorted(gaps, key=lambda gap: gap.last))


def part_by_gaps(oldest: int, newest: int, gaps: Sequence[Gap]) -> list[tuple[int, int]]:
    """First and last moments of the groups around those gaps that are no pause of a stream.

    A stream may have paused if both times around the gap last, compared with each other, and if the gap is no longer
    than they are or than a year.
    """
    begins, ends = [oldest, *(gap.first for gap in gaps)], [*(gap.last for gap in gaps), newest]
    lasting = [end - begin for begin, end in zip(begins, ends, strict=True)]
    groups = [(oldest, ends[0])]
    for gap, older, newer, end in zip(gaps, lasting, lasting[1:], ends[1:], strict=False):
        lasts = min(older, newer) * _LEAST_RATIO >= max(older, newer) > 0
        if lasts and gap.length <= max(older + newer, _YEAR):
            groups[-1] = (groups[-1][0], end)
        else:
            groups.append((gap.first, end))
    return groups


@dataclass(frozen=True)
class FarLabels:
    """Labels far outside: how many of how many, the values, most frequent first, and the range of all other labels."""

    num_far: int
    num_labels: int
    values: tuple[float, ...]
    low: float
    high: float


def find_far_labels(labels: NDArray[Any]) -> FarLabels | None:
    """The labels far outside the others, on either side; None if there are none.

    Only a value that occurs repeatedly counts: a single absurd label distorts nothing, and a long tail is no mistake.
    0 never counts, because it means nothing happened.
    """
    numbers = labels.astype(np.float64)
    values, counts = np.unique(numbers[np.isfinite(numbers)], return_counts=True)
    num_labels = int(counts.sum())
    if num_labels < _FEWEST_LABELS or len(values) < 3:
        return None
    gap = _FAR_SPREADS * _spread(values, counts)
    num_low = _count_outer(values, counts, gap)
    num_high = _count_outer(-values[::-1], counts[::-1], gap)
    is_far = np.zeros(len(values), np.bool_)
    is_far[:num_low] = True
    is_far[len(values) - num_high :] = True
    num_far = int(counts[is_far].sum())
    if num_far == 0 or num_far > _LARGEST_SHARE * num_labels:
        return None
    often = np.argsort(-counts[is_far], kind="stable")
    low, high = values[num_low], values[len(values) - num_high - 1]
    return FarLabels(num_far, num_labels, tuple(values[is_far][often].tolist()), float(low), float(high))


def _spread(values: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
    """The distance between the quartiles of all labels but the three most frequent: zeros, and what stands for none.

    Where these quartiles are equal, as those of classes in numbers, the smallest distance between two values.
    """
    is_usual = np.ones(len(values), np.bool_)
    is_usual[np.argsort(-counts, kind="stable")[:3]] = False
    rest, shares = values[is_usual], np.cumsum(counts[is_usual])
    with np.errstate(over="ignore"):
        least = float(np.diff(values).min())
        if len(rest) == 0:
            return least
        first, last = rest[np.searchsorted(shares, shares[-1] * np.array([0.25, 0.75]))].tolist()
        return float(last - first) or least


def _count_outer(values: NDArray[np.float64], counts: NDArray[np.int64], gap: float) -> int:
    """How many of the lowest values are far below the others; `values` ascending."""
    rare = np.flatnonzero((counts < _LEAST_REPEATED) | (values == 0))
    repeated = int(rare[0]) if len(rare) else len(values) - 1
    with np.errstate(over="ignore"):
        far = np.flatnonzero(np.diff(values[: repeated + 1]) > gap)
    return int(far[-1]) + 1 if len(far) else 0
