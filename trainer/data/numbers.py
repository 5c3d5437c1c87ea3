"""How a number becomes an input of a network, with constants of one fit's rows that no absurd value can shape.

Standardised, a number keeps its distances, which is right where amounts add up. Read by its place among the fit's
values it keeps its order alone: what crowds together is told apart, and a far tail bends nothing. So do trees read
numbers, and where they do better for it than a network, `quantile` makes up for it.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from contracts.task import NumberForm
from trainer.data.robust_stats import positions_within_tails, robust_centre, sorted_finite, tails

DENSE_LIMIT = 10.0
# Stretches that hold equally many of a fit's values each. 16 and 64 do about as well on Elec2.
_NUM_STRETCHES = 32
# So that no difference of knots overflows, and none is so small that a score over it does.
_FARTHEST, _NEAREST = 1e300, 1e-290


@dataclass(frozen=True)
class Number:
    """The constants of one number; a missing one counts as the median.

    Without knots it is `(value − mean) / scale`, clipped to ±10. With knots, which increase, it is the score between
    those of the knots beside it, and at most those of the outermost.
    """

    median: float
    mean: float
    scale: float
    is_optional: bool
    knots: tuple[float, ...] = ()
    scores: tuple[float, ...] = ()

    def encode(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """What a network reads of values, in the same shape."""
        filled = np.where(np.isnan(values), self.median, values)
        if self.knots:
            return np.interp(filled, self.knots, self.scores)
        with np.errstate(over="ignore"):  # what overflows is clipped next
            return ((filled - self.mean) / self.scale).clip(-DENSE_LIMIT, DENSE_LIMIT)


def fit_number(values: NDArray[np.float64], is_optional: bool, form: NumberForm) -> Number:
    """The constants that these values give."""
    ordered = sorted_finite(values)
    median = float(ordered[(len(ordered) - 1) // 2]) if len(ordered) else 0.0
    mean, scale = robust_centre(ordered, *tails(ordered))
    knots, scores = _knots(ordered) if form == "quantile" else ((), ())
    return Number(median, mean, scale, is_optional, knots, scores)


def _knots(ordered: NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Values at even shares of the fit's, and the normal scores of these shares; equal values have their mean share.

    Where there are no values all have the score 0.
    """
    if len(ordered) == 0:
        return (0.0,), (0.0,)
    shares = np.linspace(0, 1, _NUM_STRETCHES + 1)
    values = ordered[positions_within_tails(len(ordered), shares)].clip(-_FARTHEST, _FARTHEST)
    values[np.abs(values) < _NEAREST] = 0
    knots, which = np.unique(values, return_inverse=True)
    mean_shares = np.bincount(which, shares) / np.bincount(which)
    least = 0.5 / _NUM_STRETCHES
    scores = [NormalDist().inv_cdf(share) for share in mean_shares.clip(least, 1 - least).tolist()]
    return tuple(knots.tolist()), tuple(scores)
