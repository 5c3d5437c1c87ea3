"""Windows whose labels may be poisoned: drift and poison look alike until the next window has labels.

A window is odd if a fit that has not seen it has an error above its limit there. If the next window is odd for the same
fit, the world has changed, and both windows count. If it is ordinary, the odd window is set aside: it is then not used
to judge a model, to validate an age, or to estimate usual errors. Until that is decided, the odd window is suspect.
"""

import math
from collections.abc import Iterable, Mapping
from statistics import median

from contracts.clock import format_moment
from contracts.task import Task
from contracts.verdict import Decision
from store.error_cells import Cell, Mark, error_of
from trainer.evaluation.bands import predictive_limit

# window -> origin -> error of our method
Errors = Mapping[int, Mapping[int, float]]


def set_aside(task: Task, cells: Iterable[Cell]) -> set[int]:
    """The odd windows that no later window has confirmed."""
    errors = _errors(task, cells)
    aside: set[int] = set()
    for window, there in errors.items():
        youngest = max(there)
        if not _is_odd(task, errors, youngest, window, aside):
            continue
        later = next((one for one in errors if one > window and youngest in errors[one]), None)
        if later is None or not _is_odd(task, errors, youngest, later, aside):
            aside.add(window)
    return aside


def counted(task: Task, cells: Iterable[Cell]) -> list[Cell]:
    """The cells of the windows that are not set aside."""
    known = list(cells)
    aside = set_aside(task, known)
    return [cell for cell in known if cell.window not in aside]


def check_newest_window(task: Task, cells: Iterable[Cell], champion_cutoff: int | None) -> Decision:
    """Whether the newest window is ordinary for the champion, or explained by a younger fit that has seen the change.

    If the champion has no error there, the youngest fit takes its place. Nothing was promised for that fit, so the fit
    before it must find the window odd too; otherwise the youngest fit itself is odd. A fit explains a window if its
    error removes at least half of the excess over the limit.
    """
    errors = _errors(task, cells)
    if not errors:
        return Decision("newest_window", True, reason="no window has been scored yet")
    window, there = max(errors.items())
    reference = champion_cutoff if champion_cutoff is not None and champion_cutoff in there else max(there)
    aside = set_aside(task, cells)
    limit = _limit(task, errors, reference, window, aside)
    if limit is None:
        return Decision("newest_window", True, there[reference], reason="too few earlier windows to say what is usual")
    error, when = there[reference], format_moment(window)
    if error <= limit:
        return Decision("newest_window", True, error, limit)
    half = (error + limit) / 2
    explaining = [origin for origin in there if origin > reference and there[origin] <= half < math.inf]
    if explaining:
        fit = max(explaining)
        reason = f"the fit of {format_moment(fit)} confirms the window of {when}: its error is {there[fit]:.4g}"
        return Decision("newest_window", True, error, limit, reason)
    before = max((origin for origin in there if origin < reference), default=None)
    if reference != champion_cutoff and before is not None and _is_usual(task, errors, before, window, aside):
        reason = (
            f"the fit of {format_moment(before)} finds the window of {when} ordinary: its error is {there[before]:.4g}"
        )
        return Decision("newest_window", True, error, limit, reason)
    reason = (
        f"the window of {when} is suspect: the error {error:.4g} of the fit of {format_moment(reference)} is above its "
        f"limit {limit:.4g}; the next window or an override decides"
    )
    return Decision("newest_window", False, error, limit, reason)


def enough_rows(marks: Iterable[Mark | Cell]) -> float:
    """Half of the rows that a complete window usually has: with fewer, an incomplete window is not judged."""
    return median({mark.window: mark.num_rows for mark in marks if mark.is_complete}.values() or [0]) / 2


def _errors(task: Task, cells: Iterable[Cell]) -> Errors:
    """Our errors by window, oldest first; an incomplete window counts once it has enough rows."""
    ours = [cell for cell in cells if cell.method == task.training.method]
    enough = enough_rows(ours)
    errors: dict[int, dict[int, float]] = {}
    for cell in sorted(ours, key=lambda cell: cell.window):
        if cell.is_complete or cell.num_rows >= enough:
            errors.setdefault(cell.window, {})[cell.origin] = error_of(cell, task.error_name)
    return errors


def _is_odd(task: Task, errors: Errors, origin: int, window: int, aside: set[int]) -> bool:
    """Whether the fit's error is above its limit; an error that is not finite is left to the gates."""
    limit = _limit(task, errors, origin, window, aside)
    return limit is not None and limit < errors[window][origin] < math.inf


def _is_usual(task: Task, errors: Errors, origin: int, window: int, aside: set[int]) -> bool:
    """Whether the error is within the limit from all earlier windows of fits of that age; False if they are too few."""
    limit = _limit(task, errors, origin, window, aside, until=window)
    return limit is not None and errors[window][origin] <= limit


def _limit(
    task: Task, errors: Errors, origin: int, window: int, aside: set[int], *, until: int | None = None
) -> float | None:
    """The limit of a fit's error on a window, from the errors of fits of the same age on windows before `until`.

    `until` defaults to the fit's origin: with later windows, a change would widen its own limit. None if there are too
    few windows.
    """
    lead, until = window - origin, origin if until is None else until
    before = [
        there[earlier - lead]
        for earlier, there in errors.items()
        if earlier < until and earlier not in aside and math.isfinite(there.get(earlier - lead, math.nan))
    ]
    return predictive_limit(before) if len(before) >= task.guard.min_pairs else None
