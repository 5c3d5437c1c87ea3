"""The champion's quantiles follow the labels: one new calibration for each window that has become complete.

No state is kept between two calibrations: adaptive conformal inference starts again from the cells.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection

from contracts.calibration import Calibration
from contracts.clock import format_moment, from_micros, to_micros
from contracts.task import Task
from contracts.verdict import Recalibration
from store.error_cells import VARIANTS, read_cells
from store.releases import Release, read_overlay
from trainer.data.windows import complete_until
from trainer.evaluation.calibration import WALKED_WINDOWS, calibration_of
from trainer.evaluation.mixture import as_fit_of
from trainer.monitoring.promises import Change, Promise

_LEAST_DIFFERENCE = 1e-6


def recalibrate(
    connection: Connection,
    task_id: int,
    task: Task,
    promise: Promise,
    history: Sequence[Release],
    *,
    newest: int,
    now: datetime,
) -> Change | None:
    """New quantiles for the champion, once the window `newest` is complete and the present ones do not know it.

    `history` are the champion's rows, newest first. None if nothing changes noticeably, or if its bound has passed.
    """
    calibrated = [row.verdict.window for row in history if isinstance(row.verdict, Recalibration)]
    known = to_micros(calibrated[0]) if calibrated else complete_until(task, promise.cutoff) - task.clock.window
    overlay = read_overlay(connection, task_id, promise.version)
    if newest <= known or overlay is None or overlay.valid_until <= to_micros(now):
        return None
    former = overlay.calibration
    # The graph keeps its temperature; a release without calibration was exported without a temperature.
    temperature = 1.0 if former is None else former.temperature
    found = _calibrate(connection, task_id, task, cutoff=promise.cutoff, newest=newest, temperature=temperature)
    if former is not None and not differs(former, found):
        return None
    return Change(
        promise.version,
        "calibrate",
        overlay.valid_until,
        f"the labels of the window of {format_moment(newest)} have arrived",
        Recalibration(from_micros(newest)),
        found,
    )


def _calibrate(
    connection: Connection, task_id: int, task: Task, *, cutoff: int, newest: int, temperature: float
) -> Calibration:
    cells = read_cells(
        connection,
        task_id,
        task.recipe,
        since=newest - WALKED_WINDOWS * task.clock.window,
        until=newest + task.clock.window,
        methods=(task.training.method, *VARIANTS),
    )
    return calibration_of(task, as_fit_of(task, cells, cutoff), temperature)


def differs(one: Calibration, other: Calibration) -> bool:
    """Whether two calibrations give noticeably different quantiles, or quantiles for different levels or ages."""
    first, second = ({age.age: age.quantiles for age in calibration.ages} for calibration in (one, other))
    if {age: len(found) for age, found in first.items()} != {age: len(found) for age, found in second.items()}:
        return True
    return any(abs(a - b) > _LEAST_DIFFERENCE for age in first for a, b in zip(first[age], second[age], strict=True))
