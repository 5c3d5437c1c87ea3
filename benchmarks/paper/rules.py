"""What costs no fit, beside every fit: a method that does not beat these has learned nothing of the future.

`naive` says for every row what the newest known window says on average, `constant` what all known rows do.
`previous_label` answers each row with the true label of the row before it, which no forecast of a window has: on Elec2
and Appliance labels repeat so often that this rule beats every published method of the paper.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.methods.house import naive_method
from benchmarks.paper.splits import Split, errors
from contracts.task import Training
from trainer.dataset import Encoded


def naive(split: Split) -> float:
    """Error of the newest known window's commonest class, or mean label."""
    return float(errors(split, naive_method(split, Training(), [0]))[0])


def constant(split: Split) -> float:
    """Error of the commonest class, or the median label, of all known rows."""
    answer = _commonest(split.known) if split.is_classification else float(np.median(split.known.targets))
    return _error(split, np.full(len(split.answers), answer))


def previous_label(split: Split) -> float:
    """Error of the label of the row before, in the order of time; the first row is told the last known one."""
    before = np.concatenate([split.known.targets[-1:], _targets(split)[:-1]])
    return _error(split, before)


def _commonest(rows: Encoded) -> float:
    return float(np.bincount(rows.targets.astype(np.int64)).argmax())


def _targets(split: Split) -> NDArray[np.float64]:
    """The answers as targets: class positions, or standardised labels."""
    unit = split.label_unit
    return (split.answers - unit.mean) / unit.scale


def _error(split: Split, targets: NDArray[np.float64]) -> float:
    """Percent of wrong classes, or mean absolute error in the label's unit, of answers given as targets."""
    apart = np.abs(targets - _targets(split))
    if split.is_classification:
        return float(100 * (apart > 0).mean())
    return float(split.label_unit.scale * apart.mean())


RULES: dict[str, Callable[[Split], float]] = {
    "naive": naive,
    "constant": constant,
    "previous_label": previous_label,
}
