"""Mean and scale of a column that no single value can shape: what lies in its tails is drawn in first."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Share of the values at each end that may not shape mean and scale, rounded up to whole values.
_TAIL = 0.001


def sorted_finite(values: NDArray[Any]) -> NDArray[np.float64]:
    """The values that are numbers, from the smallest to the largest."""
    numbers = values.astype(np.float64)
    return np.sort(numbers[np.isfinite(numbers)])


def tails(ordered: NDArray[np.float64]) -> tuple[float, float]:
    """The values next to each end's tail, which is at least one value; 0 of none."""
    count = len(ordered)
    if count == 0:
        return 0.0, 0.0
    low, high = positions_within_tails(count, np.array([0.0, 1.0])).tolist()
    return float(ordered[low]), float(ordered[high])


def positions_within_tails(count: int, shares: NDArray[np.float64]) -> NDArray[np.intp]:
    """Where the values at these shares of so many, at least one, stand in their order; never in a tail."""
    tail = math.ceil(count * _TAIL)
    first, last = min(tail, (count - 1) // 2), max(count - 1 - tail, count // 2)
    return np.rint(shares * (count - 1)).astype(np.intp).clip(first, last)


def robust_centre(ordered: NDArray[np.float64], low: float, high: float) -> tuple[float, float]:
    """Mean and standard deviation of values drawn in to these bounds; (0, 1) of none, a scale of 1 where all are equal.

    Sums are taken of shares of the largest value, so that nothing overflows and equal values have a deviation of
    exactly 0.
    """
    if len(ordered) == 0:
        return 0.0, 1.0
    unit = max(abs(low), abs(high)) or 1.0
    shares = ordered.clip(low, high) / unit
    return float(shares.mean()) * unit, float(shares.std()) * unit or 1.0
