"""Signs that labels are wrong: an error far above its limit, or a version that expects far larger errors than before.

A model learns wrong labels as well as right ones, so these are checked before anyone retrains or trusts a new version.
"""

from dataclasses import dataclass

from sqlalchemy import Connection

from contracts.clock import format_moment, to_micros
from contracts.verdict import LimitCheck
from service.models.forecaster import Forecaster
from service.models.task_states.task_state import TaskState
from store.events.imports import find_newest_import
from store.releases import list_readable_releases
from store.tasks.catalog import Schema

# An error of as many times its limit is more likely one of the labels than one of the model.
FAR_ABOVE = 10.0
# A new version that expects as many times the error of the one before is warned of.
FAR_WORSE = 3.0
# Releases that are searched for the version before.
_NUM_RELEASES = 10


@dataclass(frozen=True)
class FormerPromise:
    """The mean error at age 0 that the version before expected at its release."""

    version: str
    error: float


@dataclass(frozen=True)
class LabelDoubts:
    """What was found for one task: the import that brought rows of the closing window, and the version before."""

    import_id: int | None = None
    former: FormerPromise | None = None


NO_DOUBTS = LabelDoubts()


def find_far_error(task_state: TaskState) -> LimitCheck | None:
    """The check that closed the horizon, if its error is far above its limit."""
    check = None if task_state.closing is None else task_state.closing.verdict
    if not isinstance(check, LimitCheck) or not check.value >= FAR_ABOVE * check.threshold:
        return None
    return check


def read_doubts(
    connection: Connection, schema: Schema, forecaster: Forecaster | None, task_state: TaskState
) -> LabelDoubts:
    """What the store knows about the labels behind a far error and behind the version that answers."""
    if forecaster is None:
        return NO_DOUBTS
    import_id = None
    if (check := find_far_error(task_state)) is not None:
        first = to_micros(check.window)
        import_id = find_newest_import(connection, schema.task_id, first, first + forecaster.manifest.window)
    return LabelDoubts(import_id, _find_former(connection, schema, forecaster))


def _find_former(connection: Connection, schema: Schema, forecaster: Forecaster) -> FormerPromise | None:
    """What the version released before the one that answers expected, if both are judged by the same error."""
    rows = list_readable_releases(connection, schema.task_id, actions=("release",), limit=_NUM_RELEASES).rows
    own = next((row.release_id for row in rows if row.version == forecaster.version), None)
    if own is None:
        return None
    former = next((row for row in rows if row.release_id < own), None)
    matrix = None if former is None else former.matrix
    if former is None or matrix is None or matrix.error_name != forecaster.manifest.error_name or not matrix.ages:
        return None
    error = matrix.ages[0].mean
    return None if error is None else FormerPromise(former.version, error)


def say_far_error(task: str, check: LimitCheck, import_id: int | None) -> str:
    """What to check before a task whose horizon was closed by a far error is retrained."""
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


def warn_of_jump(task: str, forecaster: Forecaster, former: FormerPromise | None) -> list[str]:
    """Warn of a version that expects several times the error of the version before."""
    ages = forecaster.manifest.ages
    if former is None or not ages or not former.error > 0 or not ages[0].mean >= FAR_WORSE * former.error:
        return []
    return [
        f"version {forecaster.version} expects an error of {ages[0].mean:.4g}, {ages[0].mean / former.error:.3g} times "
        f"the {former.error:.4g} of version {former.version}: check the newest labels, since a model learns wrong ones "
        f"too. If an import was wrong, `morrow events history {task}` lists it, and `morrow events retract {task} "
        "--import ID` takes it back"
    ]
