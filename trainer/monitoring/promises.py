"""What released versions promised, read off the rows of `releases`, and what came of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from contracts.calibration import Calibration
from contracts.clock import MICROSECOND, to_micros
from contracts.task import Task
from contracts.verdict import LimitCheck, Recalibration
from store.error_cells import Cell, Mark, error_of
from store.releases import Action, Release


@dataclass(frozen=True)
class Promise:
    """What a release row promised, in microseconds. `limits`: start of a window inside the horizon -> (age, limit)."""

    version: str
    recipe: str
    cutoff: int
    valid_until: int
    error_name: str
    limits: Mapping[int, tuple[int, float]]

    def error(self, mark: Mark) -> float:
        """The realised error that the limits are of."""
        return error_of(mark, self.error_name)


@dataclass(frozen=True)
class Change:
    """A row that a version should get, and why."""

    version: str
    action: Action
    valid_until: int
    reason: str
    verdict: LimitCheck | Recalibration
    calibration: Calibration | None = None


@dataclass(frozen=True)
class Outcome:
    """What an origin expected of a window at an age, and what came. `covered` is None if no quantile was kept."""

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


def read_promise(row: Release) -> Promise | None:
    """The promise of a release row; None for any other row, and for a release that kept no figures."""
    matrix = row.matrix
    if row.action != "release" or matrix is None or matrix.cutoff is None or not matrix.horizon:
        return None
    cutoff = to_micros(matrix.cutoff)
    window = (row.valid_until - cutoff) // matrix.horizon
    limits = {
        cutoff + age.age * window: (age.age, age.limit)
        for age in matrix.ages
        if age.age < matrix.horizon and age.limit is not None
    }
    return Promise(row.version, matrix.recipe, cutoff, row.valid_until, matrix.error_name, limits)


def open_cutoffs(released: Iterable[Release], now: int, task: Task) -> set[int]:
    """The cutoffs of released versions whose labels may still arrive (microseconds): their fits are still scored.

    Labels count for one window longer than they are due.
    """
    waiting = now - task.label_delay // MICROSECOND - task.clock.window
    promises = (read_promise(row) for row in released)
    return {promise.cutoff for promise in promises if promise is not None and promise.valid_until > waiting}


def released_outcomes(task: Task, released: Iterable[Release], cells: Iterable[Cell]) -> list[Outcome]:
    """The outcome of each window that a released version was valid in: that of the youngest one.

    Only versions of the task's recipe count, of which these cells are, and windows whose labels have all come.
    """
    realised = {
        (cell.origin, cell.window): cell for cell in cells if cell.method == task.training.method and cell.is_complete
    }
    youngest: dict[int, Outcome] = {}
    for row in released:
        matrix = row.matrix
        if matrix is None or matrix.cutoff is None or matrix.recipe != task.recipe:
            continue
        origin = to_micros(matrix.cutoff)
        for age in matrix.ages[: matrix.horizon]:
            window = origin + age.age * task.clock.window
            cell = realised.get((origin, window))
            if cell is None or age.mean is None or age.low is None or age.high is None:
                continue
            if window not in youngest or youngest[window].origin <= origin:
                youngest[window] = Outcome(
                    origin=origin,
                    age=age.age,
                    window=window,
                    is_inside_horizon=True,
                    expected=age.mean,
                    low=age.low,
                    high=age.high,
                    realised=error_of(cell, task.error_name),
                    num_rows=cell.num_rows,
                    covered=None,
                )
    return [youngest[window] for window in sorted(youngest)]
