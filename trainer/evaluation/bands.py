"""Bounds of a mean, and of one future window's error, from the errors of earlier windows.

A window is one draw: its rows share the same conditions, so their number says nothing about the spread between windows.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.special import stdtr, stdtrit

from contracts.clock import Clock

BAND_COVERAGE = 0.90
# The discount of a band: the share of its weight that the level of errors keeps per window; 1 would keep all.
DISCOUNT = 0.6
# The step by which one window moves the share of errors that a band may miss, and the bounds of that share.
_BAND_STEP = 0.05
_LEAST_MISSED, _MAX_MISSED = 0.01, 0.5


def mean_upper_bound(values: Sequence[float], confidence: float = 0.95) -> float:
    """One-sided upper t-bound of the mean, `m + t · s / √n`."""
    n = len(values)
    return fmean(values) + float(stdtrit(n - 1, confidence)) * stdev(values) / math.sqrt(n)


def predictive_band(
    values: Sequence[float], coverage: float = BAND_COVERAGE, *, lead: int = 1, discount: float = DISCOUNT
) -> tuple[float, float]:
    """Two-sided predictive t-interval for the value `lead` windows later, by the steady model with a discount δ.

    In the steady model (West and Harrison, 1997, chapter 2) the level drifts: `m ← m + (y − m) / ω` with `ω ← δω + 1`,
    and a value L windows later has variance `s² (1 + (1 + L (1 − δ)/δ) / ω)`. With δ = 1 nothing drifts, and this is
    `m ± t · s · √(1 + 1/n)` of the plain mean.
    """
    level = _levels(values, discount)[-1]
    half = float(stdtrit(level.num_errors, (1 + coverage) / 2)) * level.deviation(lead, discount)
    return level.mean - half, level.mean + half


def predictive_limit(values: Sequence[float], confidence: float = 0.99) -> float:
    """One-sided upper predictive t-bound for one future value, `m + t · s · √(1 + 1/n)`."""
    n = len(values)
    return fmean(values) + float(stdtrit(n - 1, confidence)) * stdev(values) * math.sqrt(1 + 1 / n)


def adapted_coverage(errors: Mapping[int, Mapping[int, float]], clock: Clock, label_delay: int = 0) -> float:
    """The nominal coverage at which bands would have held 90 % of the errors so far; `errors` by age and target window.

    Adaptive conformal inference on whole windows: `α ← α + γ (0.1 − share of ages whose band missed)`. A t-interval
    assumes independent draws, but errors drift, are correlated, and can be extreme at first.
    """
    tails = {age: _tail_probabilities(found, clock, age, label_delay) for age, found in errors.items()}
    windows = sorted({window for found in tails.values() for window in found})
    missable = [1 - BAND_COVERAGE]
    for window in windows:
        missed = [
            found[window] < missable[bisect_right(windows, window - (age + 1) * clock.window - label_delay)]
            for age, found in tails.items()
            if window in found
        ]
        moved = missable[-1] + _BAND_STEP * (1 - BAND_COVERAGE - fmean(missed))
        missable.append(min(max(moved, _LEAST_MISSED), _MAX_MISSED))
    return 1 - missable[-1]


@dataclass(frozen=True)
class _Level:
    """The steady model after some values: their level m, its weight ω, and the scaled squares of one-step errors."""

    mean: float
    weight: float
    squares: float
    num_errors: int

    def deviation(self, lead: int, discount: float) -> float:
        """The standard deviation of a value `lead` windows later."""
        wandering = 1 + lead * (1 - discount) / discount
        return math.sqrt(self.squares / self.num_errors * (1 + wandering / self.weight))


def _levels(values: Sequence[float], discount: float) -> list[_Level]:
    """The state of the model after each of the values."""
    levels = [_Level(values[0], 1.0, 0.0, 0)]
    for value in values[1:]:
        last = levels[-1]
        error, weight = value - last.mean, discount * last.weight
        squares = last.squares + error**2 / (1 + 1 / weight)
        levels.append(_Level(last.mean + error / (weight + 1), weight + 1, squares, last.num_errors + 1))
    return levels


def _tail_probabilities(found: Mapping[int, float], clock: Clock, age: int, label_delay: int) -> dict[int, float]:
    """Target window -> two-sided tail probability (t) of its error, given the windows known at its origin.

    A band of coverage 1 − α misses the error if this is below α. Windows with fewer than two known before have none.
    """
    windows = sorted(found)
    levels = _levels([found[window] for window in windows], DISCOUNT) if windows else []
    tails = {}
    for window in windows:
        num_known = bisect_right(windows, window - (age + 1) * clock.window - label_delay)
        if num_known < 2:
            continue
        level = levels[num_known - 1]
        away, deviation = abs(found[window] - level.mean), level.deviation(age + 1, DISCOUNT)
        scaled = away / deviation if deviation else math.inf if away else 0.0
        tails[window] = 2 * float(stdtr(level.num_errors, -scaled))
    return tails
