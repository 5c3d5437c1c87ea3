"""Encode a number as an input of a network, with robust constants from one fit's rows.

The form `plain` standardises a number and keeps its distances, which suits effects that add up. The form `quantile`
reads a number by its rank among the fit's values and keeps only its order: crowded values are told apart, and a far
tail has no influence. Trees read numbers that way too; if that makes them better than a network, use `quantile`.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from contracts.task import NumberForm
from trainer.data.robust_stats import positions_within_tails, robust_centre, sorted_finite, tails

DENSE_LIMIT = 10.0
# Intervals between knots; each holds equally many of a fit's values. 16 and 64 do about as well on Elec2.
_NUM_INTERVALS = 32
# Bounds of knots: no difference of knots overflows, and none is so small that a score divided by it does.
_FARTHEST, _NEAREST = 1e300, 1e-290


@dataclass(frozen=True)
class Number:
    """The constants of one number; a missing value counts as the median.

    Without knots the input is `(value − mean) / scale`, clipped to ±10. With knots, which increase, it is interpolated
    between the scores of the neighbouring knots; beyond the outermost knots it is constant.
    """

    median: float
    mean: float
    scale: float
    is_optional: bool
    knots: tuple[float, ...] = ()
    scores: tuple[float, ...] = ()

    def encode(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The inputs of a network for these values, in the same shape."""
        filled = np.where(np.isnan(values), self.median, values)
        if self.knots:
            return np.interp(filled, self.knots, self.scores)
        with np.errstate(over="ignore"):  # an overflow is clipped next
            return ((filled - self.mean) / self.scale).clip(-DENSE_LIMIT, DENSE_LIMIT)


def fit_number(values: NDArray[np.float64], is_optional: bool, form: NumberForm) -> Number:
    """Fit the constants of a number on these values."""
    ordered = sorted_finite(values)
    median = float(ordered[(len(ordered) - 1) // 2]) if len(ordered) else 0.0
    mean, scale = robust_centre(ordered, *tails(ordered))
    knots, scores = _knots(ordered) if form == "quantile" else ((), ())
    return Number(median, mean, scale, is_optional, knots, scores)


def _knots(ordered: NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Quantiles of the fit's values at even shares, and the normal scores of these shares; equal values get the mean.

    If there are no values, every value has the score 0.
    """
    if len(ordered) == 0:
        return (0.0,), (0.0,)
    shares = np.linspace(0, 1, _NUM_INTERVALS + 1)
    values = ordered[positions_within_tails(len(ordered), shares)].clip(-_FARTHEST, _FARTHEST)
    values[np.abs(values) < _NEAREST] = 0
    knots, which = np.unique(values, return_inverse=True)
    mean_shares = np.bincount(which, shares) / np.bincount(which)
    least = 0.5 / _NUM_INTERVALS
    scores = [NormalDist().inv_cdf(share) for share in mean_shares.clip(least, 1 - least).tolist()]
    return tuple(knots.tolist()), tuple(scores)
