"""A regression's targets: its labels or their logarithms, standardised.

Prices, counts and loads vary in proportion rather than by amounts, so the effects of features and time on their
logarithms add up. A fit on logarithms still answers in the label's own unit, so only fits and graphs know the form.
Constants are robust: one absurd label neither changes the unit of the others nor stops a task's fits.
"""

import math
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.errors import CycleError
from contracts.quality.far_values import find_far_labels
from contracts.task import LabelForm, Task
from store.events.reading.columns import EventColumns
from trainer.data.robust_stats import robust_centre, sorted_finite, tails

# In standard deviations: wide enough for any real tail, yet one absurd label cannot stop a task's fits for ever.
LABEL_LIMIT = 100.0
# Logarithms of answers stay within ±75: beyond any label, and still float32 with the largest scale.
LOG_LIMIT = 75.0
# Bins of a number among which labels are compared.
_NUM_BINS = 32
_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)

Range = tuple[float, float]


@dataclass(frozen=True)
class LabelUnit:
    """A target is `(label − mean) / scale` within ±100, or `(log max(label, floor) − mean) / scale` if floor is set.

    Labels below the floor, non-positive ones included, count as the floor. Labels outside the `usual` range count as
    its nearest end; None if there is no such range.
    """

    mean: float = 0.0
    scale: float = 1.0
    floor: float | None = None
    usual: tuple[float, float] | None = None

    def targets(self, labels: NDArray[Any]) -> NDArray[np.float32]:
        """The targets of labels, in the same shape."""
        with np.errstate(over="ignore"):  # an overflow is clipped next
            standardised = (_transformed(_within(labels, self.usual), self.floor) - self.mean) / self.scale
        return standardised.clip(-LABEL_LIMIT, LABEL_LIMIT).astype(np.float32)

    def means(self, learned: NDArray[Any]) -> NDArray[np.float64]:
        """Learned means in the label's unit, in the same shape."""
        values = learned.astype(np.float64) * self.scale + self.mean
        return values if self.floor is None else np.exp(values.clip(-LOG_LIMIT, LOG_LIMIT))

    def scales(self, learned: NDArray[Any], means: NDArray[np.float64]) -> NDArray[np.float64]:
        """Deviations of labels around these means; for logarithms `mean · scale`, which is close for small scales."""
        values: NDArray[np.float64] = learned.astype(np.float64) * self.scale
        return values if self.floor is None else values * means


# The unit that leaves labels as they are, apart from clipping.
PLAIN = LabelUnit()


def find_usual_range(task: Task, rows: EventColumns, which: NDArray[np.bool_] | None = None) -> Range | None:
    """The range of the labels of a regression, without those far outside that no feature foretells; None if all count.

    `which` masks the rows that count, all if None. Far labels are foretold if most of them are the majority among the
    rows with some value of one feature: those are no missing values, but a kind of row that a model can learn.
    """
    if task.is_classification:
        return None
    labels = rows.labels if which is None else rows.labels[which]
    far = find_far_labels(labels)
    if far is None or _are_foretold((labels < far.low) | (labels > far.high), rows, which):
        return None
    return far.low, far.high


def _are_foretold(is_far: NDArray[np.bool_], rows: EventColumns, which: NDArray[np.bool_] | None) -> bool:
    categories = (rows.category(place) for place in range(len(rows.vocabularies)))
    numbers = (_bins(rows.number(place)) for place in range(rows.num_numbers))
    for column in chain[NDArray[Any]](categories, numbers):
        codes = column if which is None else column[which]
        totals = np.bincount(codes)
        far = np.bincount(codes, is_far, len(totals))
        if 2 * far[2 * far > totals].sum() > far.sum():
            return True
    return False


def _bins(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """The position of each value among bins with about equally many values; missing ones have a bin of their own."""
    known = np.isfinite(values)
    if not known.any():
        return np.zeros(len(values), np.intp)
    edges = np.unique(np.quantile(values[known], np.linspace(0, 1, _NUM_BINS + 1)[1:-1]))
    return np.where(known, 1 + np.searchsorted(edges, np.where(known, values, 0.0), side="right"), 0)


def fit_label_unit(name: str, labels: NDArray[Any], form: LabelForm, usual: Range | None = None) -> LabelUnit:
    """Mean and scale of the targets of these labels; those outside the `usual` range count as its nearest end.

    Raises CycleError if the unit is beyond float32, or if the form is logarithms and no label is positive.
    """
    labels = _within(labels, usual)
    floor = _floor(name, labels) if form == "log" else None
    mean, scale = _centre(_transformed(labels, floor))
    is_held = abs(mean) + LABEL_LIMIT * scale <= _LARGEST if floor is None else abs(mean) <= LOG_LIMIT
    if not is_held or scale < _SMALLEST:
        raise CycleError(f"{name} is too large or too small for answers in float32: give it another unit.")
    return LabelUnit(mean, scale, floor, usual)


def label_bounds(task: Task, known: EventColumns) -> tuple[float, float] | None:
    """The bounds that `clip_labels` clips to, for fits on these rows; None for classification.

    Answers are float32, so labels are clipped to that range too: losses stay finite, whatever a share of labels is.
    """
    if task.is_classification:
        return None
    usual = find_usual_range(task, known)
    mean, scale = _centre(_within(known.labels, usual))
    with np.errstate(over="ignore"):  # an overflow is clipped next
        low, high = np.array([-1.0, 1.0]) * LABEL_LIMIT * scale + mean
    lowest, highest = (-math.inf, math.inf) if usual is None else usual
    return max(float(low), lowest, -_LARGEST), min(float(high), highest, _LARGEST)


def clip_labels(task: Task, rows: EventColumns, known: EventColumns) -> EventColumns:
    """The rows with regression labels clipped to the bounds of a fit on `known`.

    Rows are clipped before they are scored, so one absurd label cannot close every later horizon. The form of the
    targets does not matter here: all recipes are scored on the same labels.
    """
    bounds = label_bounds(task, known)
    return rows if bounds is None else replace(rows, labels=rows.labels.clip(*bounds))


def _within(labels: NDArray[Any], usual: Range | None) -> NDArray[Any]:
    return labels if usual is None else labels.clip(*usual)


def _transformed(labels: NDArray[Any], floor: float | None) -> NDArray[np.float64]:
    values = labels.astype(np.float64)
    return values if floor is None else np.log(np.maximum(values, floor))


def _floor(name: str, labels: NDArray[Any]) -> float:
    """The positive label next to the lower tail."""
    ordered = sorted_finite(labels)
    positive = ordered[ordered > 0]
    if len(positive) == 0:
        raise CycleError(f"No {name} is positive, so there are no logarithms to learn. Set label_form to plain.")
    return max(tails(positive)[0], _SMALLEST)


def _centre(labels: NDArray[Any]) -> tuple[float, float]:
    """Mean and deviation of winsorised labels; of all labels if only the tails differ, as when nearly all are 0."""
    ordered = sorted_finite(labels)
    low, high = tails(ordered)
    if len(ordered) and low == high:
        low, high = float(ordered[0]), float(ordered[-1])
    return robust_centre(ordered, low, high)
