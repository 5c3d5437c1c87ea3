"""Mean and scale of a column after its tails are clipped, so no single value can distort them."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Share of the values at each end that is clipped, rounded up to whole values.
_TAIL = 0.001


def sorted_finite(values: NDArray[Any]) -> NDArray[np.float64]:
    """The finite values in ascending order."""
    numbers = values.astype(np.float64, copy=False)
    finite: NDArray[np.float64] = numbers[np.isfinite(numbers)]
    finite.sort()
    return finite


def tails(ordered: NDArray[np.float64]) -> tuple[float, float]:
    """The values next to the tail at each end, which has at least one value; (0, 0) if there are no values."""
    count = len(ordered)
    if count == 0:
        return 0.0, 0.0
    low, high = positions_within_tails(count, np.array([0.0, 1.0])).tolist()
    return float(ordered[low]), float(ordered[high])


def without_tails(ordered: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values, at least one, between the tails."""
    first, last = positions_within_tails(len(ordered), np.array([0.0, 1.0])).tolist()
    return ordered[first : last + 1]


def positions_within_tails(count: int, shares: NDArray[np.float64]) -> NDArray[np.intp]:
    """Positions, among `count` (at least one) ordered values, of the values at these shares; never in a tail."""
    tail = math.ceil(count * _TAIL)
    first, last = min(tail, (count - 1) // 2), max(count - 1 - tail, count // 2)
    return np.rint(shares * (count - 1)).astype(np.intp).clip(first, last)


def robust_centre(ordered: NDArray[np.float64], low: float, high: float) -> tuple[float, float]:
    """Mean and standard deviation of values clipped to these bounds; (0, 1) of none, and a scale of 1 if all are equal.

    Values are divided by the largest before they are summed, so nothing overflows and equal values have a deviation of
    exactly 0.
    """
    if len(ordered) == 0:
        return 0.0, 1.0
    unit = max(abs(low), abs(high)) or 1.0
    shares = ordered.clip(low, high)
    shares /= unit
    return float(shares.mean()) * unit, float(shares.std()) * unit or 1.0
