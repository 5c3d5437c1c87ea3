"""Encode a number as an input of a network, with robust constants from one fit's rows.

The form `plain` standardises a number and keeps its distances, which suits effects that add up. The form `quantile`
reads a number by its rank among the fit's values and keeps only its order: crowded values are told apart, and a far
tail has no influence. The form `piecewise` cuts the range into pieces that hold equally many of the fit's values. A
network learns a slope for each piece, so one number may raise the answer here and lower it there, such as the hour of
a day; it is the piecewise linear encoding of Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep
Learning" (NeurIPS 2022). Trees cut numbers too; if that makes them better than a network, use `piecewise`.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from contracts.task import NumberForm
from trainer.data.robust_stats import positions_within_tails, robust_centre, sorted_finite, tails, without_tails

DENSE_LIMIT = 10.0
# Intervals between knots; each holds equally many of a fit's values. 16 and 64 do about as well on Elec2.
_NUM_INTERVALS = 32
# Most pieces of one number, and of all numbers together if that leaves each of them at least two.
_MAX_PIECES, _MAX_PIECES_OF_ALL, _MIN_PIECES = 24, 1024, 2
# Bounds of knots: no difference of knots overflows, and none is so small that a score divided by it does.
FARTHEST, _NEAREST = 1e300, 1e-290


@dataclass(frozen=True)
class Number:
    """The constants of one number; a missing value counts as the median.

    Without knots the input is `(value − mean) / scale`, clipped to ±10. With knots, which increase, it is interpolated
    between the scores of the neighbouring knots; beyond the outermost knots it is constant. The scores are normal ones,
    or in the form `piecewise` the knots' numbers from 0: the input is then a position among the pieces.
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


def num_pieces(num_numbers: int) -> int:
    """Pieces of each number of a task with this many numbers: bounded, so that many numbers keep the memory small."""
    return max(_MIN_PIECES, min(_MAX_PIECES, _MAX_PIECES_OF_ALL // max(1, num_numbers)))


def num_added(num_positions: int) -> int:
    """Columns that positions among pieces become in a network's first layer, beyond one for each."""
    return num_positions * (num_pieces(num_positions) - 1)


def fit_number(values: NDArray[np.float64], is_optional: bool, form: NumberForm, max_pieces: int = 0) -> Number:
    """Fit the constants of a number on these values; `max_pieces` is for the form `piecewise` alone."""
    ordered = sorted_finite(values)
    median = float(ordered[(len(ordered) - 1) // 2]) if len(ordered) else 0.0
    mean, scale = robust_centre(ordered, *tails(ordered))
    if form == "plain":
        return Number(median, mean, scale, is_optional)
    knots, scores = _knots(ordered) if form == "quantile" else _bounds(ordered, max_pieces)
    return Number(median, mean, scale, is_optional, knots, scores)


def _bounds(ordered: NDArray[np.float64], max_pieces: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Bounds of the pieces, which hold equally many of the fit's values, and the numbers of these bounds.

    If there are few values, each is a bound. If there are none, every value is at position 0.
    """
    if len(ordered) == 0:
        return (0.0,), (0.0,)
    values = np.unique(without_tails(ordered))
    if len(values) > max_pieces + 1:
        values = ordered[positions_within_tails(len(ordered), np.linspace(0, 1, max_pieces + 1))]
    bounds = np.unique(_tamed(values))
    return tuple(bounds.tolist()), tuple(np.arange(float(len(bounds))).tolist())


def _knots(ordered: NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Quantiles of the fit's values at even shares, and the normal scores of these shares; equal values get the mean.

    If there are no values, every value has the score 0.
    """
    if len(ordered) == 0:
        return (0.0,), (0.0,)
    shares = np.linspace(0, 1, _NUM_INTERVALS + 1)
    values = ordered[positions_within_tails(len(ordered), shares)]
    knots, which = np.unique(_tamed(values), return_inverse=True)
    mean_shares = np.bincount(which, shares) / np.bincount(which)
    least = 0.5 / _NUM_INTERVALS
    scores = [NormalDist().inv_cdf(share) for share in mean_shares.clip(least, 1 - least).tolist()]
    return tuple(knots.tolist()), tuple(scores)


def _tamed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values within the bounds of knots."""
    within = values.clip(-FARTHEST, FARTHEST)
    within[np.abs(within) < _NEAREST] = 0
    return within
