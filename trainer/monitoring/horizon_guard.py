"""Whether released versions keep their promises, as far as labels have arrived.

A version promised a limit for each age of its horizon. A complete window inside the horizon with a larger realised
error closes the horizon at the window's start; a correction that lowers the error reopens it. An override settles all
that was known by then: windows that were closed or scored before it do not close the version again. The champion's
quantiles follow the labels, at most one row for each window. Labels that are due may still arrive in bunches, so a
window counts once it holds half as many rows as usual, or once the next one is complete too.

Everything follows from the rows of `releases` and the cells of the error matrix, so a restart loses nothing. Rows are
written under the lock of the task's row, so that two trainers write them once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog
from sqlalchemy import Connection, Engine

from contracts.clock import format_moment, from_micros, to_micros
from contracts.quality.far_errors import is_far, say_far_error
from contracts.task import Task
from contracts.verdict import LimitCheck, to_json
from store.error_cells import Mark, read_marks
from store.events.imports import find_newest_import
from store.releases import CHAMPION_ACTIONS, Action, Release, list_releases, record_release
from store.tasks.catalog import lock_task
from trainer.data.windows import complete_until
from trainer.evaluation.suspect_windows import enough_rows
from trainer.monitoring.promises import Change, Promise, read_promise
from trainer.monitoring.recalibration import recalibrate

log = structlog.get_logger(__name__)

ACTOR = "trainer"
EVENTS: Mapping[Action, str] = {
    "close": "horizon.closed",
    "reopen": "horizon.reopened",
    "calibrate": "version.calibrated",
}


def find_change(history: Sequence[Release], marks: Mapping[int, Mark]) -> Change | None:
    """The next row that the realised errors of a version call for; None if its bound is right.

    `history` are the version's rows, newest first; `marks` its complete cells by target window.
    """
    promise = next((promise for row in history if (promise := read_promise(row))), None)
    if promise is None:
        return None
    bound = _read_bound(history)
    breaches = [
        window
        for window, (_, limit) in sorted(promise.limits.items())
        if window in marks and promise.error(marks[window]) > limit
    ]
    for window in breaches:
        is_new = window not in bound.accepted and marks[window].scored_at > bound.overridden_at
        if is_new and window < bound.valid_until:
            return _change(promise, "close", window, window, marks[window])
    last = bound.valid_until
    if last in bound.closed and last in promise.limits and last in marks and last not in breaches:
        rest = bound.closed - {last}
        return _change(promise, "reopen", last, min([bound.given, *rest]), marks[last])
    return None


@dataclass(frozen=True)
class _Bound:
    """The bound by a version's rows, in microseconds: `given` by its release or an override, minus `closed` windows."""

    given: int
    closed: frozenset[int]
    accepted: frozenset[int]
    overridden_at: int

    @property
    def valid_until(self) -> int:
        return min([self.given, *self.closed])


def _read_bound(history: Sequence[Release]) -> _Bound:
    given, overridden_at = 0, 0
    closed: set[int] = set()
    accepted: set[int] = set()
    for row in reversed(history):
        if row.action in ("release", "override"):
            given = row.valid_until
            if row.action == "override":
                accepted |= closed
                overridden_at = to_micros(row.at)
            closed.clear()
        elif row.action == "close":
            closed.add(_window_of(row))
        elif row.action == "reopen":
            closed.discard(_window_of(row))
    return _Bound(given, frozenset(closed), frozenset(accepted), overridden_at)


def _window_of(row: Release) -> int:
    """The window that a close or reopen row is about."""
    assert isinstance(row.verdict, LimitCheck)
    return to_micros(row.verdict.window)


def _change(promise: Promise, action: Action, window: int, valid_until: int, mark: Mark) -> Change:
    age, limit = promise.limits[window]
    value, side = promise.error(mark), "above" if action == "close" else "not above"
    return Change(
        promise.version,
        action,
        valid_until,
        f"the error {value:.4g} on the window of {format_moment(window)} is {side} its limit {limit:.4g}",
        LimitCheck(
            window=from_micros(window),
            age=age,
            error_name=promise.error_name,
            value=value,
            threshold=limit,
            num_rows=mark.num_rows,
        ),
    )


def find_settled(task: Task, marks: Iterable[Mark], now: int) -> list[Mark]:
    """The complete cells of the task's method on windows that count by `now` (microseconds)."""
    complete = [mark for mark in marks if mark.is_complete and mark.method == task.training.method]
    enough = enough_rows(complete)
    last = complete_until(task, now) - task.clock.window
    return [mark for mark in complete if mark.num_rows >= enough or mark.window < last]


def enforce(engine: Engine, task_id: int, task: Task, now: datetime, *, since: int) -> bool:
    """Write the rows that the cells call for, of a recipe's versions with a cutoff at `since` or later (microseconds).

    Returns whether all are written: False if another process holds the lock of the task's row, so that a later call
    must try again.
    """
    with engine.connect() as connection:
        if _find_next(connection, task_id, task, now, since) is None:
            return True
    written: list[Change] = []
    with engine.begin() as connection:
        if not lock_task(connection, task_id, wait=False):
            return False
        while change := _find_next(connection, task_id, task, now, since):
            record_release(
                connection,
                task_id,
                change.version,
                action=change.action,
                valid_until=change.valid_until,
                actor=ACTOR,
                reason=change.reason,
                now=now,
                calibration=change.calibration,
                verdict=change.verdict,
            )
            written.append(change)
    for change in written:
        say = log.warning if change.action == "close" else log.info
        figures = to_json(change.verdict)
        remedy = _find_remedy(engine, task_id, task, change) if change.action == "close" else ""
        say(
            EVENTS[change.action],
            task=task.name,
            version=change.version,
            valid_until=format_moment(change.valid_until),
            reason=change.reason,
            **{key: figures[key] for key in ("window", "age", "value", "threshold") if key in figures},
            **({"remedy": remedy} if change.action == "close" else {}),
        )
    return True


def _find_remedy(engine: Engine, task_id: int, task: Task, change: Change) -> str:
    """What to do about a closed horizon; an error far above its limit asks for a look at the labels first."""
    if not isinstance(change.verdict, LimitCheck) or not is_far(change.verdict):
        return f"morrow cycle {task.name}, or morrow override {task.name} --reason TEXT"
    first = to_micros(change.verdict.window)
    with engine.connect() as connection:
        import_id = find_newest_import(connection, task_id, first, first + task.clock.window)
    return say_far_error(task.name, change.verdict, import_id)


def _find_next(connection: Connection, task_id: int, task: Task, now: datetime, since: int) -> Change | None:
    rows = _of_present_models(list_releases(connection, task_id, with_calibration=False))
    marks = find_settled(task, read_marks(connection, task_id, task.recipe, since=since), to_micros(now))
    promises = [
        promise
        for row in rows
        if (promise := read_promise(row)) and promise.recipe == task.recipe and promise.cutoff >= since
    ]
    for promise in promises:
        history = [row for row in rows if row.version == promise.version]
        seen = {mark.window: mark for mark in marks if mark.origin == promise.cutoff}
        if change := find_change(history, seen):
            return change
    champion = next((row.version for row in rows if row.action in CHAMPION_ACTIONS), None)
    for promise in promises:
        if promise.version == champion and marks:
            history = [row for row in rows if row.version == champion]
            newest = max(mark.window for mark in marks)
            return recalibrate(connection, task_id, task, promise, history, newest=newest, now=now)
    return None


def _of_present_models(rows: Sequence[Release]) -> list[Release]:
    """Newest first, without rows of former models of the same number: a new registry counts versions from 1 again."""
    released, found = set[str](), list[Release]()
    for row in rows:
        if row.version not in released:
            found.append(row)
        if row.action == "release":
            released.add(row.version)
    return found
