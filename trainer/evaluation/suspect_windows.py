"""Windows whose labels may be poisoned: drift and poison look alike until the next window has been seen.

A window is odd where a fit that has not seen it errs beyond its limit there. If the next window is odd to the same fit,
the world has changed, and both windows count. If it is ordinary, the odd one is set aside: it is no ground to judge a
model on, to validate an age, or to say how large errors usually are. Until then it is suspect.
"""

import math
from collections.abc import Iterable, Mapping
from statistics import median

from contracts.clock import format_moment
from contracts.task import Task
from contracts.verdict import Decision
from store.cells import Cell, Mark, error_of
from trainer.evaluation.bounds import predictive_limit

# window -> origin -> error of our method
Errors = Mapping[int, Mapping[int, float]]


def set_aside(task: Task, cells: Iterable[Cell]) -> set[int]:
    """Odd windows that no later window has confirmed."""
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
    """Whether the newest window is ordinary to the champion, or explained by a younger fit that has seen the change.

    Where the champion has no error there, the youngest fit stands for it; as nothing was promised of that one, the fit
    before it must find the window odd too, or it is the youngest fit that is odd. To explain is to take back half of
    what is beyond the limit, at least.
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
    """Half as many rows as a complete window usually has: of fewer, nothing is concluded in haste."""
    return median({mark.window: mark.num_rows for mark in marks if mark.is_complete}.values() or [0]) / 2


def _errors(task: Task, cells: Iterable[Cell]) -> Errors:
    """By window, oldest first; a window that is not complete counts once it has enough rows."""
    ours = [cell for cell in cells if cell.method == task.training.method]
    enough = enough_rows(ours)
    errors: dict[int, dict[int, float]] = {}
    for cell in sorted(ours, key=lambda cell: cell.window):
        if cell.is_complete or cell.num_rows >= enough:
            errors.setdefault(cell.window, {})[cell.origin] = error_of(cell, task.error_name)
    return errors


def _is_odd(task: Task, errors: Errors, origin: int, window: int, aside: set[int]) -> bool:
    """Whether it errs beyond its limit; an error that is not finite stays, for the gates to meet."""
    limit = _limit(task, errors, origin, window, aside)
    return limit is not None and limit < errors[window][origin] < math.inf


def _is_usual(task: Task, errors: Errors, origin: int, window: int, aside: set[int]) -> bool:
    """Whether a fit errs within what fits of its age did on all windows before; False where they are too few."""
    limit = _limit(task, errors, origin, window, aside, until=window)
    return limit is not None and errors[window][origin] <= limit


def _limit(
    task: Task, errors: Errors, origin: int, window: int, aside: set[int], *, until: int | None = None
) -> float | None:
    """Of a fit on a window, by the windows before `until` that fits of the same age have been scored on.

    That is the fit's origin where it is not given: later windows would let a change widen the limit that it is held to.
    None where there are too few.
    """
    lead, until = window - origin, origin if until is None else until
    before = [
        there[earlier - lead]
        for earlier, there in errors.items()
        if earlier < until and earlier not in aside and math.isfinite(there.get(earlier - lead, math.nan))
    ]
    return predictive_limit(before) if len(before) >= task.guard.min_pairs else None
