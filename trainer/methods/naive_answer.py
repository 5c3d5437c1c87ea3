"""The yardstick without a fit: answer every row with what the newest known window says on average. No torch is needed.

The newest known window is the last one whose labels were known at the origin.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.task import Task
from store.events.reading.columns import EventColumns
from trainer.data.encoder import Encoded, class_positions
from trainer.data.windows import newest_window

_LEAST_SCALE = 0.01


def naive(rows: Encoded, num_outputs: int, is_classification: bool) -> NDArray[np.float32]:
    """The same outputs `(K,)` for every row: logits of the newest window's class shares, or (mean, scale).

    `rows` are those of one origin, so they hold only labels that it knew. Labels are standardised.
    """
    newest = rows.targets[rows.windows == rows.windows.max()]
    return _class_logits(newest, num_outputs) if is_classification else _mean_and_scale(newest)


def naive_answer(task: Task, known: EventColumns, classes: Sequence[str]) -> list[float]:
    """The same answer in the label's unit: a share for each class, or (mean, scale). All values are float32."""
    newest = newest_window(known, task.clock)
    if task.is_classification:
        positions = class_positions(classes, newest)
        logits = _class_logits(positions[positions >= 0], len(classes))
        shares: NDArray[np.float32] = np.exp(logits) / np.exp(logits).sum()
        return [float(share) for share in shares]
    # Labels are standardised first, as for `naive`; the newest window's own mean and deviation serve as the unit.
    mean, deviation = float(newest.labels.mean()), float(newest.labels.std()) or 1.0
    shift, scale = _mean_and_scale(((newest.labels - mean) / deviation).astype(np.float32))
    return [float(np.float32(mean + deviation * shift)), float(np.float32(deviation * scale))]


def _class_logits(positions: NDArray[np.generic], num_classes: int) -> NDArray[np.float32]:
    """Log shares `(C,)` of the classes; a class that is absent keeps half a row's share, so its loss stays finite."""
    counts = np.bincount(positions.astype(np.int64), minlength=num_classes) + 0.5
    shares: NDArray[np.float64] = counts / counts.sum()
    return np.log(shares).astype(np.float32)


def _mean_and_scale(standardised: NDArray[np.generic]) -> NDArray[np.float32]:
    return np.array([standardised.mean(), max(float(standardised.std()), _LEAST_SCALE)], np.float32)
