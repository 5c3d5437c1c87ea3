"""Rules that cost no fit: a method that does not beat them has learned nothing about the future.

`naive` predicts for every row what the newest known window gives on average, `constant` what all known rows give.
`previous_label` predicts the true label of the row before, which no forecast of a window has. On Elec2 and Appliance
labels repeat so often that this rule beats every published method of the paper.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.methods.house import naive_method
from benchmarks.paper.splits import Split, errors
from contracts.task import Training
from trainer.data.encoder import Encoded


def naive(split: Split) -> float:
    """Error of the newest known window's commonest class, or mean label."""
    return float(errors(split, naive_method(split, Training(), [0]))[0])


def constant(split: Split) -> float:
    """Error of the commonest class, or the median label, of all known rows."""
    answer = _commonest(split.known) if split.is_classification else float(np.median(_labels(split)))
    return _error(split, np.full(len(split.answers), answer))


def previous_label(split: Split) -> float:
    """Error of the label of the row before, in the order of time; the first row gets the last known one."""
    return _error(split, np.concatenate([_labels(split)[-1:], split.answers[:-1]]))


def _commonest(rows: Encoded) -> float:
    return float(np.bincount(rows.targets.astype(np.int64)).argmax())


def _labels(split: Split) -> NDArray[np.float64]:
    """Class positions, or labels, of the known rows."""
    return split.label_unit.means(split.known.targets)


def _error(split: Split, answers: NDArray[np.float64]) -> float:
    """Percent of wrong classes, or mean absolute error in the label's unit, of answers given in either."""
    apart = np.abs(answers - split.answers)
    return float(100 * (apart > 0).mean()) if split.is_classification else float(apart.mean())


RULES: dict[str, Callable[[Split], float]] = {
    "naive": naive,
    "constant": constant,
    "previous_label": previous_label,
}
