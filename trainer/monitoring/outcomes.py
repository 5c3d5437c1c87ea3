"""What an origin expected of a window, and what came: of released versions here, of a walk in `trainer.replay.report`.

A cycle draws and tells of it too, and loads no walk for that.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from contracts.clock import parse_moment
from contracts.task import Task
from store.cells import Cell, error_of
from store.releases import Release


@dataclass(frozen=True)
class Outcome:
    """What an origin expected of a window at an age, and what came. `covered` is None where no quantile was kept."""

    origin: int
    age: int
    window: int
    is_inside_horizon: bool
    expected: float
    low: float
    high: float
    realised: float
    num_rows: int
    covered: float | None

    @property
    def is_inside_band(self) -> bool:
        return self.low <= self.realised <= self.high


def released_outcomes(task: Task, released: Iterable[Release], cells: Iterable[Cell]) -> list[Outcome]:
    """Of versions that have been released, by their rows: each window by the youngest that was valid in it.

    Only of the task's recipe, of which these cells are, and of windows whose labels have all come.
    """
    realised = {
        (cell.origin, cell.window): cell for cell in cells if cell.method == task.training.method and cell.is_complete
    }
    youngest: dict[int, Outcome] = {}
    for row in released:
        verdict = row.verdict or {}
        if verdict.get("recipe") != task.recipe:
            continue
        origin = parse_moment(verdict["cutoff"])
        for promise in verdict["ages"][: verdict["horizon"]]:
            window = origin + promise["age"] * task.clock.window
            cell = realised.get((origin, window))
            if cell is None or None in (promise["mean"], promise["low"], promise["high"]):
                continue
            if window not in youngest or youngest[window].origin <= origin:
                youngest[window] = Outcome(
                    origin=origin,
                    age=promise["age"],
                    window=window,
                    is_inside_horizon=True,
                    expected=promise["mean"],
                    low=promise["low"],
                    high=promise["high"],
                    realised=error_of(cell, task.error_name),
                    num_rows=cell.num_rows,
                    covered=None,
                )
    return [youngest[window] for window in sorted(youngest)]
