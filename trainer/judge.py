"""Whether a candidate may be released: the gates, and the verdict in the form that status pages and tags show.

Comparing the candidate with the champion comes later; a candidate that fails a gate is held, and its fit is kept all
the same, because its errors on later windows are cells that the matrix needs.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from contracts.columns import EventColumns
from contracts.manifest import AgeError
from contracts.matrix import AgeVerdict, Verdict
from contracts.task import Task


def reason_to_skip(task: Task, rows: EventColumns) -> str | None:
    """Why nothing can be fitted on these rows, or None."""
    if len(rows) < task.guard.min_rows:
        return f"too few rows ({len(rows)})"
    if task.is_classification and len(seen := np.unique(rows.labels)) < 2:
        return f"only one class ({rows.classes[int(seen[0])]})"
    return None


def reason_to_hold(verdict: Verdict) -> str | None:
    """Why a finite, verified candidate is not released, or None."""
    return (verdict.reason or "no age is validated") if verdict.horizon == 0 else None


def reason_overtaken(newest_released: int | None, cutoff: int) -> str | None:
    """A cycle never takes the alias from a newer cutoff; moments in microseconds."""
    return "a newer cutoff is released" if newest_released is not None and newest_released > cutoff else None


def validated_ages(verdict: Verdict) -> list[AgeError]:
    """Errors and bands of the ages inside the horizon, for the manifest."""
    return [
        AgeError(age.age, age.num_windows, mean=age.mean, low=age.low, high=age.high, limit=age.limit)
        for age in verdict.ages[: verdict.horizon]
    ]


def describe(task: Task, verdict: Verdict, reason: str | None) -> dict[str, Any]:
    """The verdict as JSON: what was asked of it, what it found, and why it holds where it does."""
    return {
        "passed": reason is None,
        "reason": reason,
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
            ("naive_error", age.naive),
            ("error_increase", age.increase),
        )
        if value is not None and math.isfinite(value)
    ]
