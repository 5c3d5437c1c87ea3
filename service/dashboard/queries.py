"""The dashboard's queries: a few small ones for every task; history, errors and rows for one task.

None of them asks the registry or a model. Counting rows may be slow, so it is a read of its own.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, Connection, func, select, text

from contracts.clock import MICROSECOND, format_moment, from_micros, to_micros
from contracts.spec_values import MAX_TEXT
from service.dashboard.heatmap import MAX_ORIGINS
from service.metrics import Metrics
from service.models.forecaster import Forecaster
from service.models.task_state import TaskState, read_task_state
from store.catalog import Schema, find_task, list_tasks
from store.cycles import Cycle, list_cycles
from store.database import rejected_events
from store.error_cells import Mark, read_marks
from store.events.columns import find_newest
from store.releases import Action, Release, list_releases

NUM_CYCLES = 12
MAX_RELEASES = 200
NUM_EVENT_WINDOWS = 40
NUM_REFUSED = 10
_SHOWN_ACTIONS: tuple[Action, ...] = ("release", "rollback", "close", "reopen", "override")
_YEAR_ONE = to_micros(datetime(1, 1, 1, tzinfo=UTC))
_COUNTED_ROUTES = ("/predict", "/events", "/events/{event_id}")


@dataclass(frozen=True)
class Overview:
    """One task of the list; `has_events` is None if a version answers, because only a task without one needs it."""

    schema: Schema
    task_state: TaskState
    has_events: bool | None
    newest: Cycle | None


@dataclass(frozen=True)
class Board(Overview):
    """One task by itself, releases newest first. `marks` belong to the recipe of the version that answers, else to
    the task's own."""

    recipe: str
    cycles: Sequence[Cycle]
    releases: Sequence[Release]
    marks: Sequence[Mark]


@dataclass(frozen=True)
class WindowCount:
    """Events whose present revision lies in a window, and whether the window has ended."""

    window: str
    num_events: int
    has_ended: bool


@dataclass(frozen=True)
class RefusedRow:
    """When a row was refused and why; the beginning of its id if it had one."""

    received: str
    event_id: str | None
    reason: str


@dataclass(frozen=True)
class Intake:
    """Rows of a task by window, oldest first; the number of rows refused in the last day, and the newest of them."""

    windows: Sequence[WindowCount]
    num_refused: int
    refused: Sequence[RefusedRow]


@dataclass(frozen=True)
class RequestCount:
    """Answers of one route by status: accepted 2xx, refused 4xx, failed 5xx."""

    route: str
    accepted: int
    refused: int
    failed: int


def read_overviews(connection: Connection, forecasters: Mapping[str, Forecaster], now: datetime) -> list[Overview]:
    """Every task, by name."""
    return [
        Overview(schema, *_read_state(connection, schema, forecasters.get(schema.task.name), now), cycle)
        for schema in list_tasks(connection)
        for cycle in [next(iter(list_cycles(connection, schema.task_id, 1)), None)]
    ]


def read_board(connection: Connection, name: str, forecaster: Forecaster | None, now: datetime) -> Board:
    """One task. Raises NotFound."""
    schema = find_task(connection, name)
    cycles = list_cycles(connection, schema.task_id, NUM_CYCLES)
    recipe = schema.task.recipe if forecaster is None else forecaster.manifest.recipe
    origins = [cycle.cutoff for cycle in cycles[:1]]
    if forecaster is not None:
        origins.append(forecaster.manifest.cutoff)
    since = max(origins, default=None)
    marks = [] if since is None else _read_marks(connection, schema, recipe, since)
    return Board(
        schema,
        *_read_state(connection, schema, forecaster, now),
        cycles[0] if cycles else None,
        recipe,
        cycles,
        list_releases(connection, schema.task_id, actions=_SHOWN_ACTIONS, limit=MAX_RELEASES, with_calibration=False),
        marks,
    )


def read_intake(connection: Connection, name: str, now: datetime) -> Intake:
    """The rows that came in. Raises NotFound."""
    schema = find_task(connection, name)
    clock, at = schema.task.clock, to_micros(now)
    newest = find_newest(connection, schema.task_id, before=at + clock.window)
    day_ago = now - timedelta(days=1)
    num_refused, refused = _count_refused(connection, schema, day_ago), _list_refused(connection, schema, day_ago)
    if newest is None:
        return Intake((), num_refused, refused)
    end = clock.window_start(newest)
    start = end - (NUM_EVENT_WINDOWS - 1) * clock.window
    counts = _count_windows(connection, schema, start, end + clock.window)
    first = min(counts)
    windows = tuple(
        WindowCount(format_moment(window), counts.get(window, 0), window + clock.window <= at)
        for window in range(first, end + 1, clock.window)
    )
    return Intake(windows, num_refused, refused)


def count_requests(metrics: Metrics) -> list[RequestCount]:
    """Answers of /predict and /events, by all workers of this API since it started."""
    counts: Counter[tuple[str, str]] = Counter()
    for family in metrics.registry.collect():
        for sample in family.samples:
            if sample.name == "morrow_requests_total":
                counts[sample.labels["route"], sample.labels["status"][:1]] += int(sample.value)
    return [RequestCount(route, *(counts[route, kind] for kind in "245")) for route in _COUNTED_ROUTES]


def _read_state(
    connection: Connection, schema: Schema, forecaster: Forecaster | None, now: datetime
) -> tuple[TaskState, bool | None]:
    task_state = read_task_state(connection, schema, forecaster)
    if forecaster is not None:
        return task_state, None
    return task_state, find_newest(connection, schema.task_id, before=to_micros(now)) is not None


def _read_marks(connection: Connection, schema: Schema, recipe: str, newest: int) -> list[Mark]:
    return read_marks(connection, schema.task_id, recipe, since=newest - MAX_ORIGINS * schema.task.clock.window)


def _count_windows(connection: Connection, schema: Schema, start: int, end: int) -> dict[int, int]:
    """The number of events by start of window, for windows from `start` to `end` that hold any (microseconds)."""
    clock = schema.task.clock
    earliest = clock.window_start(_YEAR_ONE) + clock.window
    rows = connection.execute(
        _COUNT_WINDOWS,
        {
            "task_id": schema.task_id,
            "window": clock.window * MICROSECOND,
            "start": from_micros(max(start, earliest)),
            "end": from_micros(end),
        },
    )
    return {to_micros(window): count for window, count in rows}


def _count_refused(connection: Connection, schema: Schema, since: datetime) -> int:
    count = select(func.count()).where(*_refused_since(schema, since))
    return connection.execute(count).scalar_one()


def _list_refused(connection: Connection, schema: Schema, since: datetime) -> list[RefusedRow]:
    columns = rejected_events.c
    # A refused id may be as long as a body.
    event_id = func.left(columns.event_id, MAX_TEXT)
    newest = select(columns.received_at, event_id, columns.reason).where(*_refused_since(schema, since))
    rows = connection.execute(newest.order_by(columns.received_at.desc(), columns.id.desc()).limit(NUM_REFUSED))
    return [RefusedRow(format_moment(to_micros(received)), event_id, reason) for received, event_id, reason in rows]


def _refused_since(schema: Schema, since: datetime) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return rejected_events.c.task_id == schema.task_id, rejected_events.c.received_at > since


_COUNT_WINDOWS = text("""
    SELECT date_bin(:window, at, :start) AS start, count(*)
    FROM events WHERE task_id = :task_id AND superseded_at IS NULL AND at >= :start AND at < :end
    GROUP BY 1
""")
