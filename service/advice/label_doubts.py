"""Signs that labels are wrong: an error far above its limit, or a version that expects far larger errors than before.

A model learns wrong labels as well as right ones, so these are checked before anyone retrains or trusts a new version.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from contracts.clock import to_micros
from contracts.quality.far_errors import is_far
from contracts.verdict import LimitCheck
from service.models.forecaster import Forecaster
from service.models.task_states.task_state import TaskState
from store.events.imports import find_newest_import, was_retracted_since
from store.releases import Release, list_readable_releases
from store.tasks.catalog import Schema

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
    """What was found for one task: the import that brought rows of the closing window, and the version before.

    `is_retracted` if an import was taken back after the horizon had been closed. `aside` are the windows that the
    release of the version that answers left out, since their errors were odd.
    """

    import_id: int | None = None
    is_retracted: bool = False
    former: FormerPromise | None = None
    aside: Sequence[datetime] = ()


NO_DOUBTS = LabelDoubts()


def find_far_error(task_state: TaskState) -> LimitCheck | None:
    """The check that closed the horizon, if its error is far above its limit."""
    check = None if task_state.closing is None else task_state.closing.verdict
    return check if isinstance(check, LimitCheck) and is_far(check) else None


def read_doubts(
    connection: Connection, schema: Schema, forecaster: Forecaster | None, task_state: TaskState
) -> LabelDoubts:
    """What the store knows about the labels behind a far error and behind the version that answers."""
    if forecaster is None:
        return NO_DOUBTS
    import_id, is_retracted = None, False
    if (check := find_far_error(task_state)) is not None:
        first = to_micros(check.window)
        import_id = find_newest_import(connection, schema.task_id, first, first + forecaster.manifest.window)
        is_retracted = task_state.closing is not None and was_retracted_since(
            connection, schema.task_id, task_state.closing.at
        )
    rows = list_readable_releases(connection, schema.task_id, actions=("release",), limit=_NUM_RELEASES).rows
    own = next((row for row in rows if row.version == forecaster.version), None)
    if own is None:
        return LabelDoubts(import_id, is_retracted)
    aside = () if own.matrix is None else own.matrix.aside
    return LabelDoubts(import_id, is_retracted, _find_former(forecaster, own, rows), aside)


def _find_former(forecaster: Forecaster, own: Release, rows: Sequence[Release]) -> FormerPromise | None:
    """What the version released before the one that answers expected, if both are judged by the same error."""
    former = next((row for row in rows if row.release_id < own.release_id), None)
    matrix = None if former is None else former.matrix
    if former is None or matrix is None or matrix.error_name != forecaster.manifest.error_name or not matrix.ages:
        return None
    error = matrix.ages[0].mean
    return None if error is None else FormerPromise(former.version, error)


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
