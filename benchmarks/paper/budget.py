"""What a cell spends: rows that its plan visits, and about how long that takes on one thread.

Every rival of a table trains with the same recipe, so a budget is printed beside each: methods of a network by their
own plan, the others by that of `gi`, whose epochs they take. Seconds are a guess for choosing what to run; the JSON
holds measured ones.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.splits import Split
from benchmarks.paper.tables import Entry
from contracts.task import Training
from trainer.methods import METHODS as NETWORKS
from trainer.methods import Oldest, Phase, Rows

# Multiply-adds of a forward pass of the paper's convolutional network on one image.
_IMAGE_PIXELS, _IMAGE_COST = 784, 1_000_000
_OPERATIONS_PER_SECOND = 4e9
_SECONDS_PER_STEP = 1e-3
# How many forward and backward passes of its network a rival spends where `gi` pre-trains with one.
_RIVALS: Mapping[str, float] = {"cida": 4, "adagraph": 2, "ordinal": 2, "generative": 3, "deep_ode": 8, "ftpl": 4}


def row_visits(split: Split, training: Training, method: str) -> int:
    """Rows that a fit reads, counted as often as it reads them."""
    return sum(_visits(split, phase, training) for phase in _phases(split, training, method))


def seconds(split: Split, training: Training, entry: Entry, num_models: int) -> float:
    """About how long a cell takes on one thread."""
    if entry.config == "rule" or entry.method in ("gbdt", "extrapolated_linear"):
        return 1.0
    is_released = entry.config == "released" and entry.method in NETWORKS
    members = num_models * (training.num_seeds if is_released else 1)
    per_row = 6 * _multiply_adds(split, training) / _OPERATIONS_PER_SECOND
    total = 0.0
    for phase in _phases(split, training, entry.method):
        visits = _visits(split, phase, training)
        steps = max(phase.epochs, visits / training.batch_size) * (num_models if is_released else 1)
        total += _passes(phase, training) * (members * visits * per_row + steps * _SECONDS_PER_STEP)
    return total * _RIVALS.get(entry.method, 1.0)


def _phases(split: Split, training: Training, method: str) -> tuple[Phase, ...]:
    plan = next((NETWORKS[name] for name in NETWORKS if name == method), NETWORKS["gi"])
    phases = plan(training).phases_of(len(np.unique(split.known.windows)))
    return tuple(phase for phase in phases if not isinstance(phase.budget, int) or phase.budget <= split.origin)


def _visits(split: Split, phase: Phase, training: Training) -> int:
    counts = np.unique(split.known.windows, return_counts=True)[1]
    return min(_count(counts, phase.budget), training.rows_per_epoch) * phase.epochs


def _count(counts: NDArray[np.intp], rows: Rows) -> int:
    if isinstance(rows, int):
        return int(counts[-rows]) if rows <= len(counts) else 0
    if isinstance(rows, Oldest):
        return int(counts[rows.number - 1]) if rows.number <= len(counts) else 0
    return int(counts.sum())


def _passes(phase: Phase, training: Training) -> float:
    """Passes of a step, in plain ones."""
    if phase.objective == "erm":
        return 1.0
    searches = phase.objective in ("gi", "time_perturb") and training.delta_mode != "random"
    return 3.0 + 2.0 * training.delta_steps * searches


def _multiply_adds(split: Split, training: Training) -> int:
    num_inputs = split.known.dense.shape[1] + training.embedding * len(split.vocabulary_sizes) + training.time_width
    if split.known.dense.shape[1] == _IMAGE_PIXELS:
        return _IMAGE_COST
    return num_inputs * training.width + (training.num_layers - 1) * training.width**2
