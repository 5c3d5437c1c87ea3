"""Whether a candidate may be released: the rules, and the verdict in the form that ledger, status and tags show.

Gates come first: rows, classes, windows, a horizon. Then the newest window: where the champion's error on it is beyond
its limit, the world has changed or the labels are poisoned, and the two look alike. Such a window is suspect, and its
candidate is held until a fit that has seen it explains the window after it. Last, candidate and champion are compared
on withheld rows that neither was fitted on.

A held candidate's fit is kept all the same, because its errors on later windows are cells that the matrix needs.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.cells import Cell
from contracts.clock import format_moment
from contracts.columns import EventColumns
from contracts.manifest import AgeError
from contracts.matrix import AgeVerdict, BetterMethod, Verdict, mean_upper_bound, predictive_limit
from contracts.task import Task

# Withheld rows below which candidate and champion are not compared.
MIN_COMPARED_ROWS = 30


@dataclass(frozen=True)
class Decision:
    """One rule as it was applied: what was found, what it was held to, and in words where there is more to say."""

    rule: str
    passed: bool
    value: float | None = None
    threshold: float | None = None
    reason: str | None = None


def first_failure(decisions: Iterable[Decision]) -> Decision | None:
    """The first rule that was broken."""
    return next((decision for decision in decisions if not decision.passed), None)


def check_rows(task: Task, rows: EventColumns) -> list[Decision]:
    """Whether these rows can be fitted: enough of them, and more than one class."""
    enough = len(rows) >= task.guard.min_rows
    reason = None if enough else f"too few rows ({len(rows)})"
    decisions = [Decision("min_rows", enough, len(rows), task.guard.min_rows, reason)]
    if task.is_classification and enough:
        seen = np.unique(rows.labels)
        reason = None if len(seen) > 1 else f"only one class ({rows.classes[int(seen[0])]})"
        decisions.append(Decision("classes", len(seen) > 1, len(seen), 2, reason))
    return decisions


def reason_to_skip(task: Task, rows: EventColumns) -> str | None:
    """Why nothing can be fitted on these rows, or None."""
    failure = first_failure(check_rows(task, rows))
    return None if failure is None else failure.reason


def check_horizon(task: Task, verdict: Verdict) -> list[Decision]:
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


def check_newest_window(task: Task, cells: Iterable[Cell], champion_cutoff: int | None) -> Decision:
    """Whether the newest window is one that fits which have not seen it explain; see the module's docstring.

    Labels need not be complete: a window counts once half as many rows are known as in a usual one.
    """
    ours = [cell for cell in cells if cell.method == task.training.method]
    usual = median([cell.num_rows for cell in ours if cell.is_complete] or [0])
    windows = [cell.window for cell in ours if cell.num_rows >= usual / 2]
    if not windows:
        return Decision("newest_window", True, reason="no window has been scored yet")
    return _check_window(task, ours, max(windows), champion_cutoff)


def unexplained_windows(task: Task, cells: Iterable[Cell], champion_cutoff: int) -> set[int]:
    """Windows after the champion's cutoff that no fit explains: no ground to compare on."""
    ours = [cell for cell in cells if cell.method == task.training.method]
    windows = {cell.window for cell in ours if cell.window >= champion_cutoff}
    return {window for window in windows if not _check_window(task, ours, window, champion_cutoff).passed}


def _check_window(task: Task, ours: Sequence[Cell], window: int, champion_cutoff: int | None) -> Decision:
    """The champion's error there, or that of the youngest fit where the champion has none, against its limit.

    The limit is of windows before that fit's origin, as its manifest promises: a suspect window must not widen it.
    """
    there = {cell.origin: cell for cell in ours if cell.window == window}
    reference = there[champion_cutoff if champion_cutoff in there else max(there)]
    age = task.clock.age(reference.origin, window)
    before = [
        _error(task, cell)
        for cell in ours
        if cell.is_complete and cell.window < reference.origin and task.clock.age(cell.origin, cell.window) == age
    ]
    if len(before) < task.guard.min_pairs:
        return Decision("newest_window", True, reason=f"only {len(before)} earlier windows at age {age}")
    error, limit = _error(task, reference), predictive_limit(before)
    if error <= limit:
        return Decision("newest_window", True, error, limit)
    # A younger fit has seen what changed. It explains the window if it takes back half of the excess at least.
    explained = [
        cell for cell in there.values() if cell.origin > reference.origin and _error(task, cell) <= (error + limit) / 2
    ]
    when = format_moment(window)
    if explained:
        youngest = max(explained, key=lambda cell: cell.origin)
        fit, better = format_moment(youngest.origin), _error(task, youngest)
        return Decision(
            "newest_window", True, error, limit, f"the fit of {fit} confirms the window of {when}: {better:.4g}"
        )
    return Decision(
        "newest_window",
        False,
        error,
        limit,
        f"the window of {when} is suspect: the error {error:.4g} of the fit of {format_moment(reference.origin)} on it "
        f"is above its limit {limit:.4g}; the next window or an override decides",
    )


def _error(task: Task, cell: Cell) -> float:
    return cell.loss if task.error_name == "log_loss" else cell.metric


def check_withheld(candidate: NDArray[np.float64], champion: NDArray[np.float64]) -> Decision:
    """Whether the candidate is not clearly worse than the champion on the same withheld rows; errors `(n,)` of each.

    Clearly worse is a mean difference whose lower 95 % t-bound is above 0.
    """
    if len(champion) < MIN_COMPARED_ROWS:
        return Decision("withheld_rows", True, reason=f"only {len(champion)} withheld rows to compare on")
    lower = -mean_upper_bound((champion - candidate).tolist())
    reason = None
    if lower > 0:
        reason = (
            f"it errs more than the champion on {len(champion)} withheld rows: {candidate.mean():.4g} against "
            f"{champion.mean():.4g}"
        )
    return Decision("withheld_rows", lower <= 0, lower, 0.0, reason)


def validated_ages(verdict: Verdict) -> list[AgeError]:
    """Errors and bands of the ages inside the horizon, for the manifest."""
    return [
        AgeError(age.age, age.num_windows, mean=age.mean, low=age.low, high=age.high, limit=age.limit)
        for age in verdict.ages[: verdict.horizon]
    ]


def describe_decisions(decisions: Sequence[Decision]) -> dict[str, Any]:
    """How a cycle ended, as JSON: whether it passed, why not, and every rule with its figures."""
    failure = first_failure(decisions)
    return {
        "passed": failure is None,
        "reason": None if failure is None else failure.reason,
        "decisions": [
            asdict(decision) | {"value": _finite(decision.value), "threshold": _finite(decision.threshold)}
            for decision in decisions
        ],
    }


def describe(
    task: Task, cutoff: int, verdict: Verdict, decisions: Sequence[Decision], better: BetterMethod | None
) -> dict[str, Any]:
    """The same with what the error matrix says: the horizon, what was asked of it, and the figures of each age."""
    return {
        **describe_decisions(decisions),
        "cutoff": format_moment(cutoff),
        "recipe": task.recipe,
        "better_method": None if better is None else asdict(better),
        "horizon": verdict.horizon,
        "missing_windows": verdict.missing_windows,
        "error_name": task.error_name,
        "tolerance": task.guard.tolerance,
        "min_pairs": task.guard.min_pairs,
        "max_error": task.guard.max_error,
        "ages": [_describe_age(age) for age in verdict.ages],
    }


def _describe_age(age: AgeVerdict) -> dict[str, Any]:
    return {
        "age": age.age,
        "num_windows": age.num_windows,
        "mean": _finite(age.mean),
        "low": _finite(age.low),
        "high": _finite(age.high),
        "limit": _finite(age.limit),
        "naive": _finite(age.naive),
        "num_pairs": age.num_pairs,
        "increase": _finite(age.increase),
        "allowed": _finite(age.allowed),
        "reason": age.reason,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


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
