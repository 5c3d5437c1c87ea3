"""What a cell spends: rows that its plan visits, and about how long that takes on one thread.

Every rival of a table trains with the same recipe, so each has its budget printed. Methods of a network have that of
their own plan, the others that of `gi`, whose epochs they take. Seconds are a guess for choosing what to run; the JSON
holds measured ones.
"""

from collections.abc import Mapping

import numpy as np

from benchmarks.paper.splits import Split
from benchmarks.paper.tables import Entry
from contracts.task import Training
from trainer.methods.plans import PLANS, Phase
from trainer.network.phase_schedule import row_range

# Multiply-adds of a forward pass of the paper's convolutional network on one image.
_IMAGE_PIXELS, _IMAGE_COST = 784, 1_000_000
_OPERATIONS_PER_SECOND = 2.5e10
_SECONDS_PER_STEP = 1e-3
# Plain training steps that one step of a rival costs.
_RIVALS: Mapping[str, float] = {
    "cdot": 1, "cida": 4, "adagraph": 2, "ordinal": 2, "generative": 3, "deep_ode": 8, "ftpl": 1, "ftrl": 1,
}  # fmt: skip


def row_visits(split: Split, training: Training, method: str) -> int:
    """Rows that a fit reads, counted as often as it reads them."""
    return sum(_visits(split, phase, training) for phase in _phases(split, training, method))


def budget(split: Split, training: Training, entry: Entry) -> str:
    """What one model of a cell spends, in words."""
    num_rows = f"{len(split.known.u):,} rows"
    own = {"gbdt": f"trees on {num_rows}, as many as their newest fifth likes", "extrapolated_linear": num_rows}
    if entry.config == "rule":
        return "no fit"
    if entry.method in own:
        return own[entry.method]
    visits = f"{row_visits(split, training, entry.method):,} row visits a model"
    return visits if entry.method in PLANS else f"the epochs of {visits}"


def expected_seconds(split: Split, training: Training, entry: Entry, num_models: int) -> float:
    """Roughly how long a cell takes on one thread."""
    if entry.config == "rule" or entry.method in ("gbdt", "extrapolated_linear"):
        return 1.0
    is_released = entry.config == "released" and entry.method in PLANS
    members = num_models * (training.num_seeds if is_released else 1)
    per_row = 6 * _multiply_adds(split, training) / _OPERATIONS_PER_SECOND
    batch_size = training.rows_per_minibatch(len(split.known.u))
    total = 0.0
    for phase in _phases(split, training, entry.method):
        visits = _visits(split, phase, training)
        steps = max(phase.epochs, visits / batch_size) * (num_models if is_released else 1)
        passes = _RIVALS.get(entry.method) or _passes(phase, training)
        total += passes * (members * visits * per_row + steps * _SECONDS_PER_STEP)
    return total


def _phases(split: Split, training: Training, method: str) -> tuple[Phase, ...]:
    plan = next((PLANS[name] for name in PLANS if name == method), PLANS["gi"])
    return plan(training).phases_of(len(np.unique(split.known.windows)))


def _visits(split: Split, phase: Phase, training: Training) -> int:
    first, end = row_range(split.known, phase.budget)
    return int(min(end - first, training.rows_per_epoch) * phase.epochs)


def _passes(phase: Phase, training: Training) -> float:
    """Plain training steps that one step of a phase costs."""
    if phase.objective == "erm":
        return 1.0
    searches = phase.objective in ("gi", "time_perturb") and training.delta_mode != "random"
    return 2.5 + 1.3 * training.delta_steps * searches


def _multiply_adds(split: Split, training: Training) -> int:
    num_inputs = (
        int(split.known.dense.shape[1]) + training.embedding * len(split.vocabulary_sizes) + training.time_width
    )
    if split.known.dense.shape[1] == _IMAGE_PIXELS:
        return _IMAGE_COST
    return num_inputs * training.width + (training.num_layers - 1) * training.width**2
