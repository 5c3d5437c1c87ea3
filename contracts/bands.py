"""Bounds of a mean and of one future window's error, from the errors of windows before it.

A window is one draw: its rows share a week's luck, so their number says nothing of how far the next window may stray.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from contracts.clock import Clock

BAND_COVERAGE = 0.90
# How far one window moves the share of errors that a band may miss, and the bounds of that share.
_BAND_STEP = 0.05
_LEAST_MISSED, _MOST_MISSED = 0.01, 0.5


def mean_upper_bound(values: Sequence[float], confidence: float = 0.95) -> float:
    """One-sided upper t-bound of the mean, `m + t · s / √n`."""
    n = len(values)
    return fmean(values) + float(stdtrit(n - 1, confidence)) * stdev(values) / math.sqrt(n)


def predictive_band(values: Sequence[float], coverage: float = BAND_COVERAGE) -> tuple[float, float]:
    """Two-sided predictive t-interval for one future value, `m ± t · s · √(1 + 1/n)`."""
    n = len(values)
    half = float(stdtrit(n - 1, (1 + coverage) / 2)) * stdev(values) * math.sqrt(1 + 1 / n)
    return fmean(values) - half, fmean(values) + half


def predictive_limit(values: Sequence[float], confidence: float = 0.99) -> float:
    """One-sided upper predictive t-bound for one future value, `m + t · s · √(1 + 1/n)`."""
    n = len(values)
    return fmean(values) + float(stdtrit(n - 1, confidence)) * stdev(values) * math.sqrt(1 + 1 / n)


def adapted_coverage(errors: Mapping[int, Mapping[int, float]], clock: Clock, label_delay: int = 0) -> float:
    """The nominal coverage at which bands would have held 90 % of the errors so far; `errors` by age and target window.

    Adaptive conformal inference on whole windows, `α ← α + γ (0.1 − share of ages whose band missed)`: errors that
    drift, follow each other or were wild at first are not the independent draws that a t-interval takes them for.
    """
    tails = {age: _tail_probabilities(found, (age + 1) * clock.window + label_delay) for age, found in errors.items()}
    windows = sorted({window for found in tails.values() for window in found})
    missable = [1 - BAND_COVERAGE]
    for window in windows:
        missed = [
            found[window] < missable[bisect_right(windows, window - (age + 1) * clock.window - label_delay)]
            for age, found in tails.items()
            if window in found
        ]
        moved = missable[-1] + _BAND_STEP * (1 - BAND_COVERAGE - fmean(missed))
        missable.append(min(max(moved, _LEAST_MISSED), _MOST_MISSED))
    return 1 - missable[-1]


def _tail_probabilities(found: Mapping[int, float], reach: int) -> dict[int, float]:
    """Target window -> how likely an error as far from the mean was (two-sided t), by windows `reach` or more earlier.

    A band of coverage 1 − α misses the error where this is below α. Windows with fewer than two before have none.
    """
    windows = np.array(sorted(found), np.int64)
    values = np.array([found[window] for window in windows.tolist()])
    centred = values - values.mean() if len(values) else values
    n = np.searchsorted(windows, windows - reach, side="right")
    is_known = n >= 2
    n = n[is_known]
    sums, squares = (np.concatenate([[0.0], np.cumsum(power)])[n] for power in (centred, centred**2))
    deviation: NDArray[np.float64] = np.sqrt(np.maximum(squares - sums**2 / n, 0.0) / (n - 1) * (1 + 1 / n))
    away = np.abs(centred[is_known] - sums / n)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.where(away > 0, away / deviation, 0.0)
    return dict(zip(windows[is_known].tolist(), (2 * stdtr(n - 1, -scaled)).tolist(), strict=True))
