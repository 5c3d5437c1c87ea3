"""Errors so far above their limit that labels are wrong more likely than the model: what the status and logs advise."""

from contracts.clock import format_moment, to_micros
from contracts.verdict import LimitCheck

# An error of as many times its limit is more likely one of the labels than one of the model.
FAR_ABOVE = 10.0


def is_far(check: LimitCheck) -> bool:
    """Whether the error that closed a horizon is far above its limit."""
    return check.value >= FAR_ABOVE * check.threshold


def say_far_error(task: str, check: LimitCheck, import_id: int | None) -> str:
    """What to check before a task whose horizon was closed by a far error is retrained.

    `import_id` is the newest import with rows of that window.
    """
    times = f"{check.value / check.threshold:,.0f} times " if check.threshold > 0 else "far above "
    wrong = "If they are wrong, send the rows again under the same ids."
    if import_id is not None:
        wrong = (
            f"Import {import_id} brought rows of that window: if they are wrong, run "
            f"`morrow events retract {task} --import {import_id}`."
        )
    return (
        f"Check the newest labels first: the error {check.value:.4g} on the window of "
        f"{format_moment(to_micros(check.window))} is {times}its limit {check.threshold:.4g}. {wrong} "
        f"If they are right, retrain: `morrow cycle {task}`."
    )
