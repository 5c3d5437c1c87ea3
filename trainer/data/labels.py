"""What a fit learns of a regression's labels: the labels themselves or their logarithms, standardised.

Prices, counts and loads differ in proportion rather than by amounts: as logarithms, what features and time do to them
adds up. A fit on logarithms answers in the label's own unit all the same, so nothing but fits and graphs knows the
form. Constants are robust to poison: one absurd label neither changes the unit of the others nor ends a task's fits.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.errors import CycleError
from contracts.task import LabelForm, Task
from store.columns import EventColumns
from trainer.data.robust_stats import robust_centre, sorted_finite, tails

# In standard deviations. Wide enough for any honest tail, and one absurd label cannot end a task's fits for ever.
LABEL_LIMIT = 100.0
# Logarithms of answers stay within ±75: beyond any label, and with the largest scale still a number of 32 bits.
LOG_LIMIT = 75.0
_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class LabelUnit:
    """A target is `(label − mean) / scale` within ±100, or `(log max(label, floor) − mean) / scale` where floor is set.

    Labels below the floor, those that are not positive among them, count as it.
    """

    mean: float = 0.0
    scale: float = 1.0
    floor: float | None = None

    def targets(self, labels: NDArray[Any]) -> NDArray[np.float32]:
        """What a fit learns of labels, in the same shape."""
        with np.errstate(over="ignore"):  # what overflows is clipped next
            standardised = (_formed(labels, self.floor) - self.mean) / self.scale
        return standardised.clip(-LABEL_LIMIT, LABEL_LIMIT).astype(np.float32)

    def means(self, learned: NDArray[Any]) -> NDArray[np.float64]:
        """Labels of learned means, in the same shape."""
        values = learned.astype(np.float64) * self.scale + self.mean
        return values if self.floor is None else np.exp(values.clip(-LOG_LIMIT, LOG_LIMIT))

    def scales(self, learned: NDArray[Any], means: NDArray[np.float64]) -> NDArray[np.float64]:
        """Deviations of labels around these means; of logarithms `mean · scale`, which is close for small scales."""
        values: NDArray[np.float64] = learned.astype(np.float64) * self.scale
        return values if self.floor is None else values * means


# A unit that changes nothing but what is clipped.
PLAIN = LabelUnit()


def fit_label_unit(name: str, labels: NDArray[Any], form: LabelForm) -> LabelUnit:
    """Mean and scale of what is learned of these labels.

    Raises CycleError where the unit is beyond 32 bits, and where logarithms are asked for and no label is positive.
    """
    floor = _floor(name, labels) if form == "log" else None
    mean, scale = _centre(_formed(labels, floor))
    is_held = abs(mean) + LABEL_LIMIT * scale <= _LARGEST if floor is None else abs(mean) <= LOG_LIMIT
    if not is_held or scale < _SMALLEST:
        raise CycleError(f"{name} is too large or too small for answers of 32 bits: give it another unit.")
    return LabelUnit(mean, scale, floor)


def label_bounds(task: Task, known: EventColumns) -> tuple[float, float] | None:
    """The bounds that `clip_labels` draws in to, for fits on these rows; None for classification.

    No answer is beyond 32 bits, so no label counts as further: losses stay finite, whatever a share of labels says.
    """
    if task.is_classification:
        return None
    mean, scale = _centre(known.labels)
    with np.errstate(over="ignore"):  # what overflows is clipped next
        low, high = np.array([-1.0, 1.0]) * LABEL_LIMIT * scale + mean
    return max(float(low), -_LARGEST), min(float(high), _LARGEST)


def clip_labels(task: Task, rows: EventColumns, known: EventColumns) -> EventColumns:
    """Rows whose regression labels are drawn in to what a fit on `known` would read of them.

    Whoever scores rows draws them in, so that one absurd label cannot close every later horizon. The form of what is
    learned plays no part: recipes are scored on the same labels.
    """
    bounds = label_bounds(task, known)
    return rows if bounds is None else replace(rows, labels=rows.labels.clip(*bounds))


def _formed(labels: NDArray[Any], floor: float | None) -> NDArray[np.float64]:
    values = labels.astype(np.float64)
    return values if floor is None else np.log(np.maximum(values, floor))


def _floor(name: str, labels: NDArray[Any]) -> float:
    """The value next to the lower tail of the positive labels."""
    ordered = sorted_finite(labels)
    positive = ordered[ordered > 0]
    if len(positive) == 0:
        raise CycleError(f"No {name} is positive, so there are no logarithms to learn: its form is plain.")
    return max(tails(positive)[0], _SMALLEST)


def _centre(labels: NDArray[Any]) -> tuple[float, float]:
    """Mean and deviation of winsorised labels, or of all where only the tails differ, as where nearly all are 0."""
    ordered = sorted_finite(labels)
    low, high = tails(ordered)
    if len(ordered) and low == high:
        low, high = float(ordered[0]), float(ordered[-1])
    return robust_centre(ordered, low, high)
