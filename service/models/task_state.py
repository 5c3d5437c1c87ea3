"""The state of a task: its newest releases, last cycles and realised errors, and how its alias is followed.

One statement reads the states of any number of tasks. The follower keeps those of its last poll, so a scrape of the
metrics never queries the database. The status of a task is read again for each request.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
import structlog
from sqlalchemy import Connection, func, select

from contracts.clock import format_moment, from_micros, to_micros
from contracts.cutoffs import newest_cutoff, useful_cutoff
from contracts.errors import Unavailable
from contracts.task import Task
from contracts.verdict import Comparison, MatrixFigures, Verdict, decode_row, decode_verdict
from service.database import Store
from service.models.forecaster import Forecaster
from service.validation.values import is_in_calendar
from store.cycles.ledger import list_readable_cycles
from store.readable_rows import is_unreadable
from store.releases import Action, Overlay, Release, is_released_as, list_readable_releases, read_overlay
from store.tasks.catalog import Schema
from store.tasks.ledgers import (
    MAX_RECENT,
    AskedTask,
    AskedVersion,
    LedgerCell,
    LedgerDocuments,
    LedgerRelease,
    Ledgers,
    read_ledgers,
)

ENDED = ("released", "held", "skipped", "failed")
# What sentences say of a cycle that released nothing.
ENDINGS = {"held": "was held", "skipped": "was skipped", "failed": "failed"}
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

_UNREADABLE_EVENTS = (
    "Events with a moment before the year 1 or after 9999 were written past the API, and count for nothing: correct or "
    "delete those with at > '9999-12-31' or at < '0001-01-01'."
)

State = Literal["no_model", "valid", "closed", "expired"]

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
    released   the newest row of a release, without its figures
    bound      the newest row that set the end of this version's validity
    recent     attempts, newest cutoff first
    judged     the verdict of the newest attempt whose candidate was released or held
    realised   finite errors of this version, by age
    awaited    complete windows that are still needed for a first verdict, by a count; 0 once there is a verdict
    newest     timestamp of the newest event, future events included, in microseconds

    `num_retracted` are the events of imports that this version has read and that were retracted since, and `num_erased`
    those that were erased since.
    """

    defined_at: datetime
    champion: str | None
    version: str | None
    released: Release | None
    bound: Release | None
    recent: tuple[RecentAttempt, ...]
    judged: Verdict | None
    realised: tuple[RealisedError, ...]
    awaited: int = 0
    newest: int | None = None
    num_retracted: int = 0
    num_erased: int = 0

    @classmethod
    def unknown(cls, forecaster: Forecaster | None, now: datetime) -> "TaskState":
        """The state of a task of which nothing could be read; nothing is said to be missing or overdue."""
        version = None if forecaster is None else forecaster.version
        return cls(now, None, version, None, None, (), None, (), newest=to_micros(now))

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
        return MatrixFigures() if self.judged is None or self.judged.matrix is None else self.judged.matrix


@dataclass(frozen=True)
class StoredTask:
    """What the store says of a task at a poll: its state, and what `releases` adds to the version that answers here.

    `fault` says why some of its rows cannot be read; the others count.
    """

    state: TaskState | None
    overlay: Overlay | None
    fault: str | None


def read_task_state(connection: Connection, schema: Schema, forecaster: Forecaster | None) -> TaskState:
    """The state of a task; `forecaster` answers for it here."""
    (documents,) = _read_documents(connection, [schema], {schema.task.name: forecaster})
    return _decode_state(schema, documents, forecaster)


def read_readable_state(
    connection: Connection, schema: Schema, forecaster: Forecaster | None
) -> tuple[TaskState, list[str]]:
    """The state of a task as far as its rows can be read, and a sentence about those of each table that cannot."""
    (documents,) = _read_documents(connection, [schema], {schema.task.name: forecaster})
    return _read_state(connection, schema, documents, forecaster)


def read_task_states(
    connection: Connection, schemas: Sequence[Schema], forecasters: Mapping[str, Forecaster]
) -> dict[int, StoredTask]:
    """Task id -> what the store says of the task, by few statements whatever their number.

    A row that cannot be read is a fault of its own task, and hides neither another task nor the task's own bound.
    """
    by_id = {schema.task_id: schema for schema in schemas}
    found = {}
    for documents in _read_documents(connection, schemas, forecasters):
        schema = by_id[documents.task_id]
        forecaster = forecasters.get(schema.task.name)
        state, faults = _read_state(connection, schema, documents, forecaster)
        overlay = None
        if forecaster is not None:
            overlay, fault = _read_overlay_of(documents, forecaster)
            if fault is not None and not faults:
                faults = _name_unreadable(connection, schema, fault)
        if documents.has_unreadable_events:
            faults.append(_UNREADABLE_EVENTS)
        found[schema.task_id] = StoredTask(state, overlay, faults[0] if faults else None)
    return found


def _read_state(
    connection: Connection, schema: Schema, documents: LedgerDocuments, forecaster: Forecaster | None
) -> tuple[TaskState, list[str]]:
    """As `read_readable_state`."""
    try:
        return _decode_state(schema, documents, forecaster), []
    except Exception as error:
        if not is_unreadable(error):
            raise
        fault = error
    found = documents.read_readable_ledgers(connection.execute(select(func.now())).scalar_one())
    for name in ("judged", "released", "bound"):
        row = getattr(found, name)
        decode: Callable[[Any], object] = decode_verdict if name == "judged" else _release
        if row is not None and not _can_decode(decode, row):
            found = msgspec.structs.replace(found, **{name: None})
    state = replace(_build_state(schema, found, forecaster), awaited=0)
    return state, _name_unreadable(connection, schema, fault)


def _name_unreadable(connection: Connection, schema: Schema, fault: Exception) -> list[str]:
    """A sentence about the rows of each table that cannot be read, after one of them was at fault."""
    log.debug("task.unreadable", task=schema.task.name, exc_info=fault)
    tables = (
        list_readable_cycles(connection, schema.task_id, MAX_RECENT).fault,
        list_readable_releases(connection, schema.task_id, with_calibration=True).fault,
    )
    return [one for one in tables if one is not None] or [_say_unreadable(fault)]


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


def find_overlay(store: Store, task_id: int, forecaster: Forecaster) -> Overlay | None:
    """What `releases` says of a version; None if it says nothing, or if the database does not answer."""
    try:
        return store.transact(lambda connection: _read_overlay(connection, task_id, forecaster))
    except Unavailable:
        return None


def _read_documents(
    connection: Connection, schemas: Sequence[Schema], forecasters: Mapping[str, Forecaster | None]
) -> Iterable[LedgerDocuments]:
    now = connection.execute(select(func.now())).scalar_one()
    return read_ledgers(connection, [_ask(schema, forecasters.get(schema.task.name), now) for schema in schemas])


def _ask(schema: Schema, forecaster: Forecaster | None, now: datetime) -> AskedTask:
    clock = schema.task.clock
    return AskedTask(
        task_id=schema.task_id,
        clock=clock,
        until=clock.window_start(to_micros(now - schema.task.label_delay)),
        wanted=_count_wanted(schema),
        version=None
        if forecaster is None
        else AskedVersion(
            version=forecaster.version,
            trained_from=forecaster.manifest.trained_from,
            cutoff=forecaster.manifest.cutoff,
            read_at=forecaster.manifest.read_at,
            recipe=forecaster.manifest.recipe,
            method=forecaster.task.training.method,
            error_name=forecaster.manifest.error_name,
        ),
    )


def _count_wanted(schema: Schema) -> int:
    """The windows that a first verdict needs: one to learn from, and those after it that judge a horizon."""
    return schema.task.guard.min_pairs + 1


def _decode_state(schema: Schema, documents: LedgerDocuments, forecaster: Forecaster | None) -> TaskState:
    """Raises ValueError, OverflowError and others for rows that cannot be read."""
    return _build_state(schema, documents.read_ledgers(), forecaster)


def _build_state(schema: Schema, found: Ledgers, forecaster: Forecaster | None) -> TaskState:
    return TaskState(
        defined_at=found.defined_at,
        champion=found.champion,
        version=None if forecaster is None else forecaster.version,
        released=_release(found.released),
        bound=_release(found.bound),
        recent=tuple(
            RecentAttempt(to_micros(one.cutoff), one.state, one.reason, one.ended_at) for one in found.attempts
        ),
        judged=None if found.judged is None else decode_verdict(found.judged),
        realised=() if forecaster is None else tuple(_realised(one, forecaster) for one in found.realised),
        awaited=0 if found.judged is not None else _count_wanted(schema) - found.num_windows,
        newest=None if found.newest is None else to_micros(found.newest),
        num_retracted=found.num_retracted,
        num_erased=found.num_erased,
    )


def _release(row: LedgerRelease | None) -> Release | None:
    if row is None:
        return None
    figures = None if row.verdict is None else decode_row(row.action, row.verdict)
    action, bound = msgspec.convert(row.action, Action), to_micros(row.valid_until)
    return Release(row.id, row.version, action, bound, None, figures, row.actor, row.reason, row.at)


def _realised(cell: LedgerCell, forecaster: Forecaster) -> RealisedError:
    window = to_micros(cell.window)
    age = forecaster.task.clock.age(forecaster.manifest.cutoff, window)
    return RealisedError(age, window, cell.error, cell.num_rows, cell.is_complete)


def _read_overlay_of(documents: LedgerDocuments, forecaster: Forecaster) -> tuple[Overlay | None, Exception | None]:
    """What the rows of a version say, and why its calibration cannot be read, if so; its bound counts all the same.

    None if there are no rows, if those of its number belong to another model, or if not even the bound can be read.
    """
    fault: Exception | None = None
    try:
        found = documents.read_version()
    except msgspec.DecodeError as error:
        fault = error
        try:
            found = documents.read_bound()
        except msgspec.DecodeError:
            return None, fault
    if found.valid_until is None or found.cutoff not in (None, from_micros(forecaster.manifest.cutoff)):
        return None, fault
    return Overlay(to_micros(found.valid_until), found.calibration), fault


def _read_overlay(connection: Connection, task_id: int, forecaster: Forecaster) -> Overlay | None:
    """The same from the rows themselves."""
    if not is_released_as(connection, task_id, forecaster.version, forecaster.manifest.cutoff):
        return None
    return read_overlay(connection, task_id, forecaster.version)


def _can_decode(decode: Callable[[Any], object], row: object) -> bool:
    try:
        decode(row)
    except Exception as error:
        if not is_unreadable(error):
            raise
        return False
    return True


def _say_unreadable(error: Exception) -> str:
    return f"Rows of this task cannot be read ({type(error).__name__}): they were written past the API."


def say_missing(task: str, task_state: TaskState | None) -> str:
    """Why no version of a task answers, and what releases one."""
    last = None if task_state is None else task_state.last_ended
    ended = ""
    if last is not None and last.state in ENDINGS:
        reason = f": {last.reason}" if last.reason else ""
        ended = f" The cycle of {format_moment(last.cutoff)} {ENDINGS[last.state]}{reason}".rstrip(".") + "."
    return (
        f"No version of {task} had been released when this process looked last.{ended} `morrow cycle {task}` trains "
        f"one, and `morrow task show {task}` says what it lacks."
    )
