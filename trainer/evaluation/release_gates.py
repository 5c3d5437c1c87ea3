"""Whether a candidate may be released: the rules, and the figures of the error matrix for its verdict.

Gates come first: rows, classes, windows, a horizon. Then whether the newest window is suspect
(`trainer.evaluation.suspect_windows`), and last the candidate compared with the champion on withheld rows that neither
was fitted on. A held candidate's fit is kept as well, because the matrix needs its errors on later windows.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from contracts.clock import from_micros
from contracts.manifest import AgeError
from contracts.task import Task
from contracts.verdict import AgeFigures, Comparison, Decision, MatrixFigures, finite, first_failure
from store.events.reading.columns import EventColumns
from trainer.evaluation.bands import mean_upper_bound
from trainer.evaluation.horizon import AgeVerdict, HorizonVerdict, better_method

# Withheld rows below which candidate and champion are not compared.
MIN_COMPARED_ROWS = 30


def check_rows(task: Task, rows: EventColumns) -> list[Decision]:
    """Whether these rows can be fitted: enough of them, and more than one class."""
    needed = task.guard.min_rows
    enough = len(rows) >= needed
    reason = None if enough else f"too few rows ({len(rows)} of {needed})"
    decisions = [Decision("min_rows", enough, len(rows), needed, reason)]
    if task.is_classification and enough:
        seen = np.unique(rows.labels)
        reason = None if len(seen) > 1 else f"only one class ({rows.classes[int(seen[0])]})"
        decisions.append(Decision("classes", len(seen) > 1, len(seen), 2, reason))
    return decisions


def reason_to_skip(task: Task, rows: EventColumns) -> str | None:
    """Why nothing can be fitted on these rows, or None."""
    failure = first_failure(check_rows(task, rows))
    return None if failure is None else failure.reason


def check_horizon(task: Task, verdict: HorizonVerdict) -> list[Decision]:
    """Whether the matrix has enough windows and validates at least the first age."""
    needed, missing = task.guard.min_pairs, verdict.missing_windows
    if missing:
        return [Decision("min_pairs", False, needed - missing, needed, verdict.reason)]
    reason = None if verdict.horizon else verdict.reason or "no age is validated"
    return [
        Decision("min_pairs", True, needed, needed),
        Decision("horizon", verdict.horizon > 0, verdict.horizon, 1, reason),
    ]


def check_overtaken(newest_released: int | None, cutoff: int) -> Decision:
    """A cycle never takes the alias from a newer cutoff; moments in microseconds."""
    is_newest = newest_released is None or newest_released <= cutoff
    return Decision("newest_cutoff", is_newest, reason=None if is_newest else "a newer cutoff is released")


def check_withheld(candidate: NDArray[np.float64], champion: NDArray[np.float64]) -> Decision:
    """Whether the candidate is not clearly worse than the champion on the same withheld rows; errors `(n,)` of each.

    Clearly worse is a mean difference whose lower 95 % t-bound is above 0.
    """
    if len(champion) < MIN_COMPARED_ROWS:
        rows = "row" if len(champion) == 1 else "rows"
        return Decision("withheld_rows", True, reason=f"only {len(champion)} withheld {rows} to compare on")
    lower = -mean_upper_bound((champion - candidate).tolist())
    reason = None
    if lower > 0:
        reason = (
            f"its error on {len(champion)} withheld rows is larger than the champion's: {candidate.mean():.4g} "
            f"compared with {champion.mean():.4g}"
        )
    return Decision("withheld_rows", lower <= 0, lower, 0.0, reason)


def validated_ages(verdict: HorizonVerdict) -> list[AgeError]:
    """Errors and bands of the ages inside the horizon, for the manifest."""
    return [
        AgeError(age.age, age.num_windows, mean=age.mean, low=age.low, high=age.high, limit=age.limit)
        for age in verdict.ages[: verdict.horizon]
    ]


def describe_matrix(
    task: Task, cutoff: int, verdict: HorizonVerdict, rivals: Sequence[Comparison], aside: Iterable[int] = ()
) -> MatrixFigures:
    """What the error matrix says: the horizon, what was asked of it, the figures of ages and rivals.

    `aside` are the windows that were set aside, in microseconds.
    """
    return MatrixFigures(
        cutoff=from_micros(cutoff),
        recipe=task.recipe,
        better_method=better_method(rivals),
        rivals=tuple(rival for rival in rivals if math.isfinite(rival.difference)),
        horizon=verdict.horizon,
        missing_windows=verdict.missing_windows,
        error_name=task.error_name,
        tolerance=task.guard.tolerance,
        min_pairs=task.guard.min_pairs,
        max_error=task.guard.max_error,
        ages=tuple(_describe_age(age) for age in verdict.ages),
        aside=tuple(from_micros(window) for window in sorted(aside)),
    )


def _describe_age(age: AgeVerdict) -> AgeFigures:
    return AgeFigures(
        age=age.age,
        num_windows=age.num_windows,
        mean=finite(age.mean),
        low=finite(age.low),
        high=finite(age.high),
        limit=finite(age.limit),
        naive=finite(age.naive),
        num_pairs=age.num_pairs,
        increase=finite(age.increase),
        growth=finite(age.growth),
        allowed=finite(age.allowed),
        reason=age.reason,
    )


def age_metrics(ages: Sequence[AgeVerdict]) -> list[tuple[str, float, int]]:
    """(key, value, step = age) of every finite figure of the verdict, for the run."""
    return [
        (key, value, age.age)
        for age in ages
        for key, value in (
            ("error", age.mean),
            ("error_low", age.low),
            ("error_high", age.high),
            ("error_limit", age.limit),
            ("naive_error", age.naive),
            ("error_increase", age.increase),
        )
        if value is not None and math.isfinite(value)
    ]
