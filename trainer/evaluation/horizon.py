"""The error matrix: the error of a model of each origin on each later target window, its bands and the horizon rule.

Every figure of a model's quality, and of how long it lasts, comes from this one table.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from contracts.clock import MICROSECOND, Clock, count_windows
from contracts.task import Guard, Task
from contracts.verdict import COUNTED_WINDOWS, Comparison
from store.error_cells import NAIVE, Cell, error_of
from trainer.evaluation.bands import adapted_coverage, mean_upper_bound, predictive_band, predictive_limit

# The probability with which chance alone may make a rival look better.
_LUCK = 0.05

_NOT_FINITE = "an error that this age is judged by is not finite"


@dataclass(frozen=True)
class AgeVerdict:
    """What the matrix says of one age. `growth` is the mean paired increase over age 0, `increase` its upper 95 %
    bound.

    `low` and `high` bound the 90 % band of one future window, adapted to how often such bands have held. `limit` is the
    one-sided 99 % bound, which is never adapted; a realised error above it closes the horizon.
    """

    age: int
    num_windows: int
    mean: float
    low: float
    high: float
    limit: float
    naive: float
    num_pairs: int
    increase: float | None
    allowed: float | None
    reason: str | None
    growth: float | None = None

    @property
    def is_valid(self) -> bool:
        return self.reason is None


@dataclass(frozen=True)
class HorizonVerdict:
    """The horizon in windows, the figures behind it, and how many target windows are missing if there are too few.

    `num_known` counts the complete windows with rows, scored or not.
    """

    horizon: int
    ages: tuple[AgeVerdict, ...]
    missing_windows: int
    reason: str | None
    num_known: int = 0


@dataclass(frozen=True, kw_only=True)
class HorizonRule:
    """The figures and limits by which the ages of a method are judged; `label_delay` in microseconds."""

    method: str
    error_name: str
    clock: Clock
    guard: Guard
    label_delay: int = 0


def horizon_rule(task: Task) -> HorizonRule:
    """The rule for a task's own method."""
    return HorizonRule(
        method=task.training.method,
        error_name=task.error_name,
        clock=task.clock,
        guard=task.guard,
        label_delay=task.label_delay // MICROSECOND,
    )


def judge_horizon(cells: Sequence[Cell], rule: HorizonRule) -> HorizonVerdict:
    """The longest run of ages, from 0, whose errors stay close to the fresh error, below naive and below `max_error`.

    Ages are compared on the same target windows, so that a hard week is not taken for ageing.
    """
    judged, guard = judge_ages(cells, rule), rule.guard
    if missing := max(0, guard.min_pairs - judged[0].num_windows):
        needed = "window is" if missing == 1 else "windows are"
        return HorizonVerdict(0, (), missing, f"{missing} more complete {needed} needed")
    horizon = next((age.age for age in judged if not age.is_valid), guard.max_age)
    return HorizonVerdict(horizon, judged[: horizon + 1], 0, judged[0].reason)


def judge_ages(cells: Sequence[Cell], rule: HorizonRule) -> tuple[AgeVerdict, ...]:
    """The expected errors of every age up to `max_age`, also beyond the horizon."""
    ours = _errors_by_age(cells, rule.method, rule.error_name, rule.clock)
    naive = _errors_by_age(cells, NAIVE, rule.error_name, rule.clock)
    coverage = adapted_coverage(ours, rule.clock, rule.label_delay)
    errors = (_Errors(ours.get(age, {}), ours.get(0, {}), naive.get(age, {})) for age in range(rule.guard.max_age))
    return tuple(_judge_age(age, found, rule.guard, coverage) for age, found in enumerate(errors))


def compare_rivals(
    cells: Sequence[Cell],
    *,
    method: str,
    rivals: Sequence[str],
    error_name: str,
    clock: Clock,
    guard: Guard,
    horizon: int,
) -> list[Comparison]:
    """Every rival that has errors on `min_pairs` windows, inside the horizon (at age 0 without one).

    A target window counts once, by its mean over the ages at which both were scored on the same rows. Several rivals
    share the 5 %: the more are compared, the likelier is one of them better by chance.
    """
    ages = range(max(1, horizon))
    ours = _errors_by_age(cells, method, error_name, clock)
    known = _rows_by_pair(cells, method)
    found: list[Comparison] = []
    for rival in rivals:
        rows = _rows_by_pair(cells, rival)
        same = [cell for cell in cells if rows.get(pair := (cell.origin, cell.window)) == known.get(pair)]
        theirs = _errors_by_age(same, rival, error_name, clock)
        pairs: dict[int, list[tuple[float, float]]] = {}
        for age in ages:
            for window in ours.get(age, {}).keys() & theirs.get(age, {}).keys():
                pairs.setdefault(window, []).append((ours[age][window], theirs[age][window]))
        if len(pairs) < guard.min_pairs:
            continue
        differences = [fmean(other - own for own, other in pairs[window]) for window in sorted(pairs)]
        error = fmean(fmean(own for own, _ in pairs[window]) for window in sorted(pairs))
        upper = mean_upper_bound(differences, 1 - _LUCK / len(rivals))
        found.append(Comparison(rival, len(pairs), error, fmean(differences), upper))
    return found


def better_method(comparisons: Iterable[Comparison]) -> Comparison | None:
    """The best of the clearly better rivals, or None."""
    return min((one for one in comparisons if one.is_better), key=lambda one: one.difference, default=None)


def after_empty_windows(verdict: HorizonVerdict, count: int) -> HorizonVerdict:
    """The verdict for a cutoff that comes after `count` complete windows without events, each of which adds to the age.

    If that leaves no horizon, the ages stay as in the matrix, since the reason names them.
    """
    if count == 0 or verdict.horizon == 0:
        return verdict
    if count < verdict.horizon:
        ages = tuple(replace(age, age=age.age - count) for age in verdict.ages[count:])
        return HorizonVerdict(verdict.horizon - count, ages, verdict.missing_windows, None)
    reason = (
        f"no event of the newest {count_windows(count)} is known, and the validated horizon is "
        f"{count_windows(verdict.horizon)}"
    )
    return HorizonVerdict(0, verdict.ages, verdict.missing_windows, reason)


def _errors_by_age(cells: Sequence[Cell], method: str, error_name: str, clock: Clock) -> dict[int, dict[int, float]]:
    """age -> target window -> error, of the complete cells of the newest windows."""
    found = [cell for cell in cells if cell.method == method and cell.is_complete]
    counted = set(sorted({cell.window for cell in found})[-COUNTED_WINDOWS:])
    errors: dict[int, dict[int, float]] = {}
    for cell in found:
        if cell.window in counted:
            errors.setdefault(clock.age(cell.origin, cell.window), {})[cell.window] = error_of(cell, error_name)
    return errors


def _rows_by_pair(cells: Sequence[Cell], method: str) -> dict[tuple[int, int], tuple[int, int]]:
    """(origin, window) -> the rows and revisions that the method was scored on there."""
    return {(cell.origin, cell.window): (cell.num_rows, cell.num_revisions) for cell in cells if cell.method == method}


@dataclass(frozen=True)
class _Errors:
    """By target window: ours at one age, ours at age 0, and naive's at that age."""

    ours: Mapping[int, float]
    fresh: Mapping[int, float]
    naive: Mapping[int, float]


def _judge_age(age: int, found: _Errors, guard: Guard, coverage: float) -> AgeVerdict:
    errors, fresh, naive = found.ours, found.fresh, found.naive
    nan = float("nan")
    if len(errors) < 2:
        return AgeVerdict(age, len(errors), nan, nan, nan, nan, nan, 0, None, None, "too few windows at this age")
    if not all(map(math.isfinite, [*errors.values(), *fresh.values(), *naive.values()])):
        return AgeVerdict(age, len(errors), nan, nan, nan, nan, nan, 0, None, None, _NOT_FINITE)
    mean = fmean(errors.values())
    below, high = predictive_band([errors[window] for window in sorted(errors)], coverage, lead=age + 1)
    low = max(below, 0.0)  # no error is negative
    limit = predictive_limit(list(errors.values()))
    shared = sorted(errors.keys() & naive.keys())
    naive_mean = fmean(naive[window] for window in shared) if shared else nan
    growth = increase = allowed = None
    pairs = sorted(errors.keys() & fresh.keys())
    reason = None
    if age > 0:
        if len(pairs) < guard.min_pairs:
            reason = f"only {len(pairs)} of {guard.min_pairs} windows to compare on"
        else:
            increases = [errors[window] - fresh[window] for window in pairs]
            growth, increase = fmean(increases), mean_upper_bound(increases)
            allowed = guard.tolerance * fmean(fresh[window] for window in pairs)
            if increase > allowed:
                reason = f"the error may grow by {increase:.4g}, more than the tolerated {allowed:.4g}"
    if reason is None and not shared:
        reason = "naive has no errors to compare with at this age"
    if reason is None and not fmean(errors[window] for window in shared) < naive_mean:
        reason = f"the mean error {mean:.4g} does not beat naive {naive_mean:.4g}"
    if reason is None and guard.max_error is not None and mean > guard.max_error:
        reason = f"the mean error {mean:.4g} is above max_error {guard.max_error:.4g}"
    return AgeVerdict(
        age, len(errors), mean, low, high, limit, naive_mean, len(pairs), increase, allowed, reason, growth
    )
