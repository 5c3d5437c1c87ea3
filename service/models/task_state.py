"""The state of a task: its newest releases, last cycles and realised errors, and how its alias is followed.

The follower reads a snapshot of the store at each poll, for all tasks at once and in a few small queries. So a scrape
of the metrics never queries the database. The status of a task is read again for each request.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeVar, TypeVarTuple

import structlog
from sqlalchemy import Connection, func, select

from contracts.clock import format_moment, to_micros
from contracts.cutoffs import newest_cutoff, useful_cutoff
from contracts.errors import Unavailable
from contracts.task import Task
from contracts.verdict import Comparison, MatrixFigures
from service.database import Store
from service.models.forecaster import Forecaster
from service.validation.values import is_in_calendar
from store.cycles import Cycle, find_judged
from store.database import cycles, tasks
from store.error_cells import error_of, read_marks
from store.events.columns import count_windows, find_newest, has_unreadable
from store.outages import name_outage
from store.releases import (
    BOUND_ACTIONS,
    CHAMPION_ACTIONS,
    Action,
    Overlay,
    Release,
    is_released_as,
    list_releases,
    read_overlay,
)
from store.tasks.catalog import Schema, list_tasks, list_unreadable
from store.tasks.changes import Departures, read_departures

ENDED = ("released", "held", "skipped", "failed")
# What sentences say of a cycle that released nothing.
ENDINGS = {"held": "was held", "skipped": "was skipped", "failed": "failed"}
# Attempts that are read to count failures in a row.
MAX_RECENT = 50
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

_UNREADABLE_EVENTS = (
    "Events with a moment before the year 1 or after 9999 were written past the API, and count for nothing: correct or "
    "delete those with at > '9999-12-31' or at < '0001-01-01'."
)

State = Literal["no_model", "valid", "closed", "expired"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class RegistryState:
    """How following a task's alias goes; `champion` is the version that the alias named last.

    With `is_refused`, that version is broken: no process could answer with it.
    """

    state: Literal["ok", "degraded"] = "ok"
    reason: str | None = None
    champion: str | None = None
    is_refused: bool = False


@dataclass(frozen=True)
class RecentAttempt:
    """An attempt without its verdict. `cutoff` in microseconds; `ended_at` is None before its end."""

    cutoff: int
    state: str
    reason: str | None
    ended_at: datetime | None = None


@dataclass(frozen=True)
class RealisedError:
    """Mean error of the answering version on the window of that age; `window` is its start in microseconds."""

    age: int
    window: int
    error: float
    num_rows: int
    is_complete: bool


@dataclass(frozen=True)
class TaskState:
    """What the database says about a task.

    champion   the version that the newest release or rollback made champion
    version    the version that answers here
    released   the newest row of a release
    bound      the newest row that set the end of this version's validity
    recent     attempts, newest cutoff first
    judged     the newest attempt whose candidate was released or held
    realised   finite errors of this version, by age
    awaited    complete windows that are still needed for a first verdict, by a count; 0 once there is a verdict
    newest     timestamp of the newest event, future events included, in microseconds
    """

    defined_at: datetime
    champion: str | None
    version: str | None
    released: Release | None
    bound: Release | None
    recent: tuple[RecentAttempt, ...]
    judged: Cycle | None
    realised: tuple[RealisedError, ...]
    awaited: int = 0
    newest: int | None = None

    @property
    def closing(self) -> Release | None:
        """The row that closed the version's horizon, unless it was reopened since."""
        return self.bound if self.bound is not None and self.bound.action == "close" else None

    @property
    def last_ended(self) -> RecentAttempt | None:
        """The attempt that ended last, whatever its cutoff: a release after a held cycle may have an older one."""
        ended = [attempt for attempt in self.recent if attempt.state in ENDED]
        return max(ended, key=lambda attempt: attempt.ended_at or _LONG_AGO, default=None)

    @property
    def num_failed(self) -> int:
        """Attempts in a row that failed, up to now."""
        ended = [attempt.state for attempt in self.recent if attempt.state in ENDED]
        return next((place for place, state in enumerate(ended) if state != "failed"), len(ended))

    @property
    def better_method(self) -> Comparison | None:
        """The rival that the newest verdict found clearly better."""
        return self._matrix.better_method

    @property
    def rivals(self) -> tuple[Comparison, ...]:
        """Every rival compared with our method in the newest verdict."""
        return self._matrix.rivals

    @property
    def override(self) -> Release | None:
        """The row by which an admin set the version's bound, unless a later row set it."""
        return self.bound if self.bound is not None and self.bound.action == "override" else None

    @property
    def missing_windows(self) -> int:
        """Complete windows that are still needed to judge a horizon: by the newest verdict, or by the count."""
        return self.awaited if self.judged is None else self._matrix.missing_windows

    @property
    def _matrix(self) -> MatrixFigures:
        verdict = None if self.judged is None else self.judged.verdict
        return MatrixFigures() if verdict is None or verdict.matrix is None else verdict.matrix


def read_task_state(connection: Connection, schema: Schema, forecaster: Forecaster | None) -> TaskState:
    """The state of a task; `forecaster` answers for it here."""
    task_id = schema.task_id
    champion = _newest(connection, task_id, CHAMPION_ACTIONS)
    judged = find_judged(connection, task_id)
    return TaskState(
        defined_at=connection.execute(select(tasks.c.created_at).where(tasks.c.id == task_id)).scalar_one(),
        champion=None if champion is None else champion.version,
        version=None if forecaster is None else forecaster.version,
        released=_newest(connection, task_id, ("release",)),
        bound=None if forecaster is None else _newest(connection, task_id, BOUND_ACTIONS, forecaster.version),
        recent=_read_recent(connection, task_id),
        judged=judged,
        realised=() if forecaster is None else _read_realised(connection, task_id, forecaster),
        awaited=0 if judged is not None else _count_awaited(connection, schema),
        newest=find_newest(connection, task_id),
    )


def state_of(forecaster: Forecaster | None, task_state: TaskState | None, now: int) -> State:
    """The state of a task in one word; `now` in microseconds."""
    if forecaster is None:
        return "no_model"
    if now <= forecaster.valid_until:
        return "valid"
    return "closed" if task_state is not None and task_state.closing is not None else "expired"


def seconds_since_release(task_state: TaskState, now: datetime) -> float | None:
    """Seconds since a cycle last released a version; None if none has."""
    return None if task_state.released is None else (now - task_state.released.at).total_seconds()


def next_cycle(task: Task, now: int) -> str | None:
    """The next window boundary; None if cycles run on request only."""
    if task.schedule == "manual":
        return None
    boundary = task.clock.window_start(now) + task.clock.window
    return format_moment(boundary) if is_in_calendar(boundary) else None


def why_stale(task: Task, task_state: TaskState, now: datetime, cycle_limit: timedelta) -> str | None:
    """Why a scheduled task got no new version for longer than a window and a cycle may take; None if it did.

    None as well for a task that is retrained on request only.
    """
    since = task_state.defined_at if task_state.released is None else task_state.released.at
    if task.schedule == "manual" or now - since <= task.window + cycle_limit:
        return None
    newest = task_state.recent[0] if task_state.recent else None
    last = task_state.last_ended
    if last is not None and last.state != "released":
        return f"the cycle of {format_moment(last.cutoff)} {ENDINGS[last.state]}: {last.reason}"
    if newest is None or newest.state in ENDED:
        return _why_no_cycle(task, task_state, now)
    return f"the cycle of {format_moment(newest.cutoff)} has not ended yet"


def _why_no_cycle(task: Task, task_state: TaskState, now: datetime) -> str:
    """Why no cycle was requested: a scheduled cycle waits for events."""
    if task_state.newest is None:
        return f"no event is stored: send labelled rows to POST /events?task={task.name}"
    if useful_cutoff(task, now, task_state.newest) < newest_cutoff(task, now):
        return (
            f"the newest event is of {format_moment(task_state.newest)}: the next cycle waits for newer events, sent "
            f"to POST /events?task={task.name}"
        )
    return "no cycle has been asked for since: is the trainer running?"


def _count_awaited(connection: Connection, schema: Schema) -> int:
    """The missing windows: one to learn from and those after it that judge a horizon, minus the complete ones."""
    wanted = schema.task.guard.min_pairs + 1
    now = connection.execute(select(func.now())).scalar_one()
    until = schema.task.clock.window_start(to_micros(now - schema.task.label_delay))
    return wanted - count_windows(connection, schema.task_id, schema.task.clock, until=until, most=wanted)


def _newest(
    connection: Connection, task_id: int, actions: Sequence[Action], version: str | None = None
) -> Release | None:
    rows = list_releases(connection, task_id, version=version, actions=actions, limit=1, with_calibration=False)
    return rows[0] if rows else None


def _read_recent(connection: Connection, task_id: int) -> tuple[RecentAttempt, ...]:
    rows = connection.execute(
        select(cycles.c.cutoff, cycles.c.state, cycles.c.reason, cycles.c.ended_at)
        .where(cycles.c.task_id == task_id)
        .order_by(cycles.c.cutoff.desc(), cycles.c.attempt.desc())
        .limit(MAX_RECENT)
    )
    return tuple(RecentAttempt(to_micros(cutoff), *rest) for cutoff, *rest in rows)


def _read_realised(connection: Connection, task_id: int, forecaster: Forecaster) -> tuple[RealisedError, ...]:
    manifest, task = forecaster.manifest, forecaster.task
    marks = read_marks(connection, task_id, manifest.recipe, since=manifest.cutoff)
    return tuple(
        RealisedError(
            task.clock.age(mark.origin, mark.window),
            mark.window,
            error_of(mark, manifest.error_name),
            mark.num_rows,
            mark.is_complete,
        )
        for mark in marks
        if mark.origin == manifest.cutoff
        and mark.method == task.training.method
        and math.isfinite(error_of(mark, manifest.error_name))
    )


@dataclass(frozen=True)
class Snapshot:
    """The store at one poll, by task; `overlays` of tasks whose version has rows of its own.

    `paused` are names of tasks that are not retrained for now, `renaming` those that still have their former name in
    MLflow. `faults` says of a task why some of its rows cannot be read.
    """

    task_ids: Mapping[str, int] = field(default_factory=dict)
    task_states: Mapping[str, TaskState] = field(default_factory=dict)
    overlays: Mapping[str, Overlay] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    paused: frozenset[str] = frozenset()
    renaming: frozenset[str] = frozenset()
    departures: Departures = field(default_factory=Departures)


def read_snapshot(connection: Connection, forecasters: Mapping[str, Forecaster], departures: Departures) -> Snapshot:
    """Everything that a follower with these versions needs, in a few small queries.

    A row that cannot be read is a fault of its own task, and hides neither another task nor the task's own bound.
    """
    schemas = list_tasks(connection)
    faults = {task: str(error) for task, error in list_unreadable(connection).items()}
    task_ids = {schema.task.name: schema.task_id for schema in schemas}
    task_states, overlays = {}, {}
    for schema in schemas:
        task, forecaster = schema.task.name, forecasters.get(schema.task.name)
        if forecaster is not None:
            overlay = _read_or_note(faults, task, _read_overlay, connection, schema.task_id, forecaster)
            if overlay is not None:
                overlays[task] = overlay
        state = _read_or_note(faults, task, read_task_state, connection, schema, forecaster)
        if state is not None:
            task_states[task] = state
        if has_unreadable(connection, schema.task_id):
            faults.setdefault(task, _UNREADABLE_EVENTS)
    return Snapshot(
        task_ids,
        task_states,
        overlays,
        faults,
        frozenset(schema.task.name for schema in schemas if schema.lifecycle == "paused"),
        frozenset(schema.task.name for schema in schemas if schema.registry_name is not None),
        read_departures(connection, departures),
    )


def _read_or_note(faults: dict[str, str], task: str, read: Callable[[*Ts], T], *given: *Ts) -> T | None:
    """What `read` returns; None if a row of the task cannot be read, which is noted. Raises outages as they are."""
    try:
        return read(*given)
    except Exception as error:
        # An error of the server has ended the transaction, so no other task could be read either.
        if getattr(getattr(error, "orig", None), "sqlstate", None) or name_outage(error) is not None:
            raise
        log.debug("task.unreadable", task=task, exc_info=error)
        faults[task] = f"Rows of this task cannot be read ({type(error).__name__}): they were written past the API."
        return None


def find_overlay(store: Store, task_id: int, forecaster: Forecaster) -> Overlay | None:
    """What `releases` says of a version; None if it says nothing, or if the database does not answer."""
    try:
        return store.transact(lambda connection: _read_overlay(connection, task_id, forecaster))
    except Unavailable:
        return None


def _read_overlay(connection: Connection, task_id: int, forecaster: Forecaster) -> Overlay | None:
    """None as well if the rows of its number belong to another model."""
    if not is_released_as(connection, task_id, forecaster.version, forecaster.manifest.cutoff):
        return None
    return read_overlay(connection, task_id, forecaster.version)
