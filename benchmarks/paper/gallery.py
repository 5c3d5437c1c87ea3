"""The pictures that a run of the tables draws: the paper's figures, from the same fits and cells.

Boundaries and weights are fitted for the picture, in seconds. The two curves show cells of the tables. A curve is left
out if one of its cells was not run yet, or if its data are missing.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.paper.boolean import KNOWN, NUM_FEATURES, TARGET, learn, learned
from benchmarks.paper.cells import Cell, Kept
from benchmarks.paper.methods import METHODS
from benchmarks.paper.pictures import decision_boundaries, error_by_snapshots, error_by_trelu, weights_over_time
from benchmarks.paper.plane import Asked, survey
from benchmarks.paper.published import METRICS
from benchmarks.paper.recipes import find_recipe
from benchmarks.paper.sets import PaperSet
from benchmarks.paper.tables import TABLES
from contracts.task import Training

_DOMAINS = (6, 7, 8, 9, 10)
_MOONS = {"baseline": "plain loss, no time", "inc_finetune": "incremental", "grad_reg": "GradReg", "gi": "GI"}
# The Boolean set's recipe: the paper gives none. Times are snapshots, and GI's δ reaches over all of them.
_BOOLEAN = Training(
    calendar=(),
    batch_size=300,
    pretrain_epochs=30,
    pretrain_rate=1e-2,
    finetune_windows=0,
    finetune_epochs=0,
    weight_decay=0,
    averaged=0,
    gi_weight=1,
    gi_pretrain=True,
    delta_max=3,
    delta_mode="grid",
    delta_steps=5,
)
_BOOLEAN_CHANGES: Mapping[str, Mapping[str, object]] = {
    "plain loss": {"gi_weight": 0},
    "GradReg": {"method": "grad_reg"},
    "GI": {},
}
_CURVE_POINTS = 61


def boundaries(moons: PaperSet, num_models: int) -> Figure:
    """What each method predicts everywhere on 2-Moons, on the last known domains and the unseen ones."""
    asked = {
        title: Asked(METHODS[name], find_recipe("moons", name, "paper").training) for name, title in _MOONS.items()
    }
    plane = survey(moons, asked, _DOMAINS, range(num_models))
    return decision_boundaries(
        plane, f"2-Moons, mean of {num_models} networks fitted on domains 0 to {plane.origin - 1}"
    )


def weights(num_models: int) -> Figure:
    """What each method learns of the Boolean set's weights over time."""
    times = np.linspace(KNOWN[0], TARGET, _CURVE_POINTS)
    curves = {
        name: learned(learn(_BOOLEAN.model_copy(update=dict(changes)), range(num_models)), times.tolist())
        for name, changes in _BOOLEAN_CHANGES.items()
    }
    names = [f"w{number}" for number in range(1, NUM_FEATURES + 1)] + ["w0"]
    return weights_over_time(times, curves, names, known=KNOWN, target=TARGET)


def curves(kept: Kept) -> dict[str, Figure]:
    """Error against TReLU layers and against training snapshots, by table and set, for the cells that are there."""
    return {
        f"{table}_{name}": draw(counts, errors, unit)
        for table, draw in (("trelu", error_by_trelu), ("snapshots", error_by_snapshots))
        for name, (counts, errors, unit) in _read(table, kept).items()
    }


def _read(table: str, kept: Kept) -> dict[str, tuple[list[int], dict[str, NDArray[np.float64]], str]]:
    """By set: the counts, the errors of each method whose cells are all there, and their unit."""
    cells: dict[str, dict[str, dict[int, Cell | None]]] = {}
    for entry in TABLES[table].entries:
        ((_, count),) = entry.changes
        cells.setdefault(entry.set, {}).setdefault(entry.method, {})[count] = kept.find(entry)
    found = {}
    for name, methods in cells.items():
        counts = list(next(iter(methods.values())))
        errors = {method: both for method, points in methods.items() if (both := _errors(list(points.values())))}
        unit = "MAE" if METRICS[name] == "mae" else "percent"
        if errors:
            found[name] = (counts, {method: np.array(both) for method, both in errors.items()}, unit)
    return found


def _errors(cells: Sequence[Cell | None]) -> list[tuple[float, float]]:
    """Two values for each cell, mean less and plus deviation; nothing if a cell has no figure."""
    both = []
    for cell in cells:
        if cell is None or cell["mean"] is None:
            return []
        deviation = cell["std"] or 0.0
        both.append((cell["mean"] - deviation, cell["mean"] + deviation))
    return both
