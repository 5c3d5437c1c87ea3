"""The picture of a horizon: every age that was scored, what naive would have done, and why an age was refused.

The verdict of a release names the ages up to the first refused one. The error matrix also holds later ages; their means
are drawn as well, so that the page shows what a longer horizon would cost.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from contracts.clock import format_moment
from contracts.manifest import AgeError
from contracts.task import Task
from contracts.verdict import MatrixFigures
from service.models.forecaster import Forecaster
from service.models.task_states.task_state import RealisedError
from store.error_cells import NAIVE, Mark, error_of


@dataclass(frozen=True, kw_only=True)
class AgePoint:
    """One age: its figures where they are known, and whether the horizon includes it; `reason` says why not."""

    age: int
    window: str | None
    expected: float | None
    low: float | None
    high: float | None
    limit: float | None
    naive: float | None
    num_windows: int
    is_valid: bool
    reason: str | None
    realised: float | None
    num_rows: int
    is_complete: bool

    @property
    def is_above_limit(self) -> bool:
        """Whether the realised error is one that closes the horizon."""
        return self.realised is not None and self.limit is not None and self.realised > self.limit


def list_ages(
    task: Task,
    forecaster: Forecaster | None,
    figures: MatrixFigures | None,
    marks: Sequence[Mark],
    realised: Sequence[RealisedError],
) -> list[AgePoint]:
    """The ages of the version that answers, or else of the newest candidate; youngest first.

    `figures` are those of that version's verdict, None if no verdict is known.
    """
    promised = {} if forecaster is None else {age.age: age for age in forecaster.manifest.ages}
    judged = {} if figures is None else {age.age: age for age in figures.ages}
    later = _means_of_later_ages(task, marks, figures)
    seen = {found.age: found for found in realised}
    cutoff = None if forecaster is None else forecaster.manifest.cutoff
    points = []
    for age in sorted({*promised, *judged, *later, *seen}):
        promise, verdict, found = promised.get(age), judged.get(age), seen.get(age)
        mean, naive, count = later.get(age, (None, None, 0))
        points.append(
            AgePoint(
                age=age,
                window=None if cutoff is None else format_moment(cutoff + age * task.clock.window),
                expected=promise.mean if promise else verdict.mean if verdict else mean,
                low=promise.low if promise else verdict.low if verdict else None,
                high=promise.high if promise else verdict.high if verdict else None,
                limit=promise.limit if promise else verdict.limit if verdict else None,
                naive=verdict.naive if verdict else naive,
                num_windows=promise.num_windows if promise else verdict.num_windows if verdict else count,
                is_valid=_is_answered(forecaster, age, promise)
                if forecaster
                else verdict is not None and not verdict.reason,
                reason=verdict.reason if verdict else None,
                realised=found.error if found else None,
                num_rows=found.num_rows if found else 0,
                is_complete=found.is_complete if found else False,
            )
        )
    return points


def _is_answered(forecaster: Forecaster, age: int, promise: AgeError | None) -> bool:
    """Whether moments of this age are answered: a horizon that is closed ends earlier than the release promised."""
    manifest = forecaster.manifest
    return promise is not None and manifest.cutoff + age * manifest.window < forecaster.valid_until


def _means_of_later_ages(
    task: Task, marks: Iterable[Mark], figures: MatrixFigures | None
) -> Mapping[int, tuple[float, float | None, int]]:
    """Age -> mean error, naive's on the same windows, and the number of windows, beyond the first refused age.

    Empty if the verdict refused no age: then there is none beyond, or its ages are counted from windows without events.
    """
    if figures is None or not figures.ages or figures.ages[-1].reason is None:
        return {}
    last = figures.ages[-1].age
    errors: dict[str, dict[tuple[int, int], float]] = {NAIVE: {}, task.training.method: {}}
    for mark in marks:
        error, age = error_of(mark, task.error_name), task.clock.age(mark.origin, mark.window)
        if mark.is_complete and mark.method in errors and age > last and math.isfinite(error):
            errors[mark.method][age, mark.window] = error
    ours, naive = errors[task.training.method], errors[NAIVE]
    found = {}
    for age in sorted({age for age, _ in ours}):
        own = [error for (at, _), error in ours.items() if at == age]
        theirs = [naive[at, window] for at, window in ours if at == age and (at, window) in naive]
        found[age] = fmean(own), fmean(theirs) if theirs else None, len(own)
    return found
