"""The mixture of experts at an origin: how much the network weighs next to LightGBM, and whether both answer.

Both follow from errors of earlier origins on windows whose labels were due at this origin, so nothing later reaches a
weight. Weights are those of Hedge (Freund and Schapire, 1997): an expert whose mean error is a share r above the
other's weighs `exp(−η·r)` as much. They stay near one half while the experts are alike, and follow the better one if
they differ. No expert vanishes: after a change it may be the better one.

The matrix holds our cells as each fit answers. Next to each stands the cell of what that fit would have answered
otherwise. So the errors behind a promise can be those of one and the same procedure (`as_if`).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from statistics import fmean

import numpy as np
import structlog
from numpy.typing import NDArray

from contracts.errors import CycleError
from contracts.task import Task
from store.error_cells import ALONE, MIXTURE, Cell
from trainer.data.windows import complete_until
from trainer.evaluation.bands import mean_upper_bound
from trainer.evaluation.suspect_windows import counted
from trainer.methods.gbdt import GBDT

log = structlog.get_logger(__name__)

# η. On the first 60 % of nine streams, 10, 15, 20, 30 and 40 differ by less than half a percent.
LEARNING_RATE = 20.0
# The confidence with which the mixture must be better than the network alone. A wrong yes costs little.
CONFIDENCE = 0.8
LEAST_WEIGHT = 0.01
_DECIMALS = 3
# A share of more errors beyond which a weight is least anyway.
_LARGEST_SHARE = 100.0

# (origin, window) of a cell.
Pair = tuple[int, int]


@dataclass(frozen=True)
class Mixture:
    """The weight of the network, of which LightGBM has the rest, and whether the mixture answers."""

    weight: float
    is_answering: bool

    def weights(self, task: Task) -> dict[str, float]:
        """The weight of each expert in the answers; empty if the network answers alone."""
        return {task.training.method: self.weight, GBDT: round(1 - self.weight, _DECIMALS)} if self.is_answering else {}


def mix(task: Task, cells: Iterable[Cell], origin: int) -> Mixture | None:
    """The mixture of the fit of an origin, from the cells that it could know; None if the network is alone.

    Raises CycleError if a mixture is asked for that cannot be made.
    """
    if not has_experts(task):
        return None
    until = complete_until(task, origin)
    known = counted(task, [cell for cell in cells if cell.is_complete and cell.origin < origin and cell.window < until])
    alone, mixed, trees = (_errors(task, found) for found in _experts(task, known))
    pairs = sorted(alone.keys() & mixed.keys() & trees.keys())
    if not pairs:
        return Mixture(0.5, is_answering=task.training.experts != "auto")
    weight = _weigh(_best(alone, pairs).mean(), _best(trees, pairs).mean())
    return Mixture(weight, task.training.experts != "auto" or _is_better(task, alone, mixed, pairs))


def as_if(task: Task, cells: Sequence[Cell], *, is_mixed: bool) -> list[Cell]:
    """The cells as if every fit had answered with its mixture, or alone; fits without experts stay as they are."""
    method, wanted = task.training.method, MIXTURE if is_mixed else ALONE
    others = {(cell.origin, cell.window): cell for cell in cells if cell.method == wanted}
    return [
        replace(others[pair], method=method)
        if cell.method == method and (pair := (cell.origin, cell.window)) in others
        else cell
        for cell in cells
    ]


def as_answered(task: Task, cells: Sequence[Cell], mixture: Mixture | None) -> list[Cell]:
    """The cells as if every fit had answered as this one does."""
    return list(cells) if mixture is None else as_if(task, cells, is_mixed=mixture.is_answering)


def as_fit_of(task: Task, cells: Sequence[Cell], origin: int) -> list[Cell]:
    """The cells as if every fit had answered as that of this origin; as they are if it has no experts."""
    others = {cell.method for cell in cells if cell.origin == origin} & {MIXTURE, ALONE}
    return as_if(task, cells, is_mixed=ALONE in others) if others else list(cells)


def has_experts(task: Task) -> bool:
    """Whether LightGBM is fitted next to the network. Raises CycleError if it must be and is not installed."""
    return task.training.can_mix and _has_lightgbm(is_required=task.training.experts != "auto")


@cache
def _has_lightgbm(*, is_required: bool) -> bool:
    """Whether LightGBM is installed, which is logged once if not. Raises CycleError if it is required."""
    if find_spec("lightgbm") is not None:
        return True
    if is_required:
        raise CycleError(
            "LightGBM is not installed, and training.experts asks for gbdt: install morrow[gbdt], or set "
            'experts = ["gi"].'
        )
    log.warning("expert.left_out", expert=GBDT, reason="LightGBM is not installed", remedy="install morrow[gbdt]")
    return False


def _experts(task: Task, cells: Sequence[Cell]) -> tuple[list[Cell], list[Cell], list[Cell]]:
    """The cells of the network alone, of the mixture and of LightGBM, at the origins that have experts."""
    pairs = {(cell.origin, cell.window) for cell in cells if cell.method in (MIXTURE, ALONE)}
    found = [cell for cell in cells if (cell.origin, cell.window) in pairs]
    alone, mixed = (
        [cell for cell in as_if(task, found, is_mixed=is_mixed) if cell.method == task.training.method]
        for is_mixed in (False, True)
    )
    return alone, mixed, [cell for cell in found if cell.method == GBDT]


def _errors(task: Task, cells: Iterable[Cell]) -> dict[Pair, NDArray[np.float64]]:
    """The errors of each cell that has some: log-losses at each temperature, or one absolute error."""
    found = {
        (cell.origin, cell.window): np.array(cell.tempered if task.is_classification else [cell.metric])
        for cell in cells
    }
    return {pair: errors for pair, errors in found.items() if len(errors) and np.isfinite(errors).all()}


def _best(errors: dict[Pair, NDArray[np.float64]], pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """The error on each of the pairs, at the one temperature that is best for all of them."""
    table = np.array([errors[pair] for pair in pairs])
    best: NDArray[np.float64] = table[:, table.mean(axis=0).argmin()]
    return best


def _weigh(ours: float, theirs: float) -> float:
    """The network's weight, from both mean errors."""
    least = max(min(ours, theirs), float(np.finfo(np.float64).tiny))
    shares = (min(error / least - 1, _LARGEST_SHARE) for error in (ours, theirs))
    own, other = (math.exp(-LEARNING_RATE * share) for share in shares)
    return round(min(max(own / (own + other), LEAST_WEIGHT), 1 - LEAST_WEIGHT), _DECIMALS)


def _is_better(
    task: Task,
    alone: dict[Pair, NDArray[np.float64]],
    mixed: dict[Pair, NDArray[np.float64]],
    pairs: Sequence[Pair],
) -> bool:
    """Whether the bound of the mean difference of errors, window by window, is below 0."""
    differences: dict[int, list[float]] = {}
    for (_, window), more in zip(pairs, _best(mixed, pairs) - _best(alone, pairs), strict=True):
        differences.setdefault(window, []).append(float(more))
    if len(differences) < task.guard.min_pairs:
        return False
    return mean_upper_bound([fmean(found) for found in differences.values()], CONFIDENCE) < 0
