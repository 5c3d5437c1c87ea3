"""The dashboard's queries about one task: its history, errors and rows.

None of them asks the registry or a model. Counting rows may be slow, so it is a read of its own.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import chain

from sqlalchemy import ColumnElement, Connection, TextClause, exists, func, not_, or_, select, text

from contracts.clock import MICROSECOND, format_moment, from_micros, to_micros
from contracts.quality.skill import Skill
from contracts.quality.trust import Trust
from contracts.spec.spec_values import MAX_TEXT
from contracts.task import Task
from contracts.verdict import COUNTED_WINDOWS
from service.advice.label_doubts import LabelDoubts, read_doubts
from service.advice.last_import import LastImport, read_last_import
from service.advice.row_warnings import RowWarnings, read_row_warnings
from service.metrics import NO_ROUTE, Metrics
from service.models.forecaster import Forecaster
from service.models.model_skills import find_part, read_skills
from service.models.task_states.stored_states import read_readable_state
from service.models.task_states.task_state import TaskState
from store.cycles.ledger import Cycle, list_readable_cycles
from store.database import FIRST_MOMENT, events, imports, rejected_events
from store.error_cells import Mark, find_newest_origin, read_marks
from store.events.reading.counts import find_newest
from store.events.sample import read_sample
from store.events.sealed.manifest import list_windows
from store.hooks.ledger import DeadLetters, list_dead_letters
from store.paired_errors import find_unreadable_cells
from store.predictions.answer_scores import ScoredAnswers, list_scored_answers
from store.releases import Action, Release, list_readable_releases
from store.tasks.catalog import Schema, find_task
from store.tasks.row_counts import RowCounts, count_rows

NUM_CYCLES = 12
MAX_RELEASES = 200
NUM_EVENT_WINDOWS = 40
NUM_REASONS = 10
# Events of the newest windows are counted up to this number: a page must not wait for millions.
MAX_COUNTED = 500_000
# The most refused rows that are compared with each other.
_MAX_COMPARED = 100_000
# How imports name a pipe, which holds something else each time.
PIPE = "stdin"
# The most categories of one feature that the form offers.
_MAX_CATEGORIES = 100
_SHOWN_ACTIONS: tuple[Action, ...] = ("release", "rollback", "close", "reopen", "override")
_YEAR_ONE = to_micros(datetime(1, 1, 1, tzinfo=UTC))
_COUNTED_ROUTES = ("/predict", "/events", "/events/{event_id}", NO_ROUTE)


@dataclass(frozen=True)
class Overview:
    """One task of the list; `recent` holds the newest windows that it was scored on, oldest first, with its errors."""

    schema: Schema
    task_state: TaskState
    skill: Skill | None
    trust: Trust
    recent: Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Board:
    """One task by itself, releases newest first. `marks` belong to the recipe of the version that answers, else to
    the task's own. `rows` are warned of only if the model is poor. `faults` says which rows cannot be read."""

    schema: Schema
    task_state: TaskState
    skill: Skill | None
    rows: RowWarnings
    cycles: Sequence[Cycle]
    releases: Sequence[Release]
    marks: Sequence[Mark]
    faults: Sequence[str]
    doubts: LabelDoubts
    last_import: LastImport | None
    dead_letters: Sequence[DeadLetters]
    answered: Sequence[ScoredAnswers]


@dataclass(frozen=True)
class WindowCount:
    """Events whose present revision lies in a window, rows refused during it, and whether the window has ended.

    Unless `is_counted`, it holds more events than are counted.
    """

    window: str
    num_events: int
    num_refused: int
    has_ended: bool
    is_counted: bool = True


@dataclass(frozen=True)
class RefusedRows:
    """Rows refused for one reason: how many, when the newest, and the beginning of its id if it had one."""

    reason: str
    num_rows: int
    received: str
    event_id: str | None


@dataclass(frozen=True)
class Intake:
    """Rows of a task by window, oldest first; the number of rows refused in the last day, and the commonest reasons.

    A row that is sent again counts again; `num_distinct` counts it once, and is None if too many rows were refused to
    compare. `num_settled` are others, which nobody need send again (`_is_settled`). `mistakes` are warnings about
    stored rows that look wrong. `halves` has the numbers of events without a label, and of labels without an event.
    """

    windows: Sequence[WindowCount]
    num_refused: int
    num_distinct: int | None
    num_settled: int
    refused: Sequence[RefusedRows]
    mistakes: Sequence[str] = ()
    halves: RowCounts = field(default_factory=RowCounts)


@dataclass(frozen=True)
class Filling:
    """Values by feature of the newest event, and the categories that the newest events have, most frequent first."""

    values: Mapping[str, float | str | None]
    categories: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class RequestCount:
    """Answers of one route by status: accepted 2xx, refused 4xx, unavailable 503, failed any other 5xx."""

    route: str
    accepted: int
    refused: int
    unavailable: int
    failed: int


def read_board(
    connection: Connection, name: str, forecaster: Forecaster | None, now: datetime, before: int | None = None
) -> Board:
    """One task. With `before` (microseconds) its matrix is read so far that it shows older windows. Raises NotFound."""
    schema = find_task(connection, name)
    cycles = list_readable_cycles(connection, schema.task_id, NUM_CYCLES)
    task_state, faults = read_readable_state(connection, schema, forecaster)
    part = find_part(schema, forecaster, task_state)
    newest = find_newest_origin(connection, schema.task_id, part.recipe)
    reach = COUNTED_WINDOWS * part.window
    since = None if newest is None else newest - reach
    if since is not None and before is not None:
        since = max(to_micros(FIRST_MOMENT), min(since, before - reach))
    marks = [] if since is None else read_marks(connection, schema.task_id, part.recipe, since=since)
    forecasters = {} if forecaster is None else {name: forecaster}
    skill = read_skills(connection, [schema], forecasters, {schema.task_id: task_state}).get(schema.task_id)
    is_poor = skill is not None and skill.is_poor
    rows = read_row_warnings(connection, schema, now) if is_poor else RowWarnings()
    releases = list_readable_releases(connection, schema.task_id, actions=_SHOWN_ACTIONS, limit=MAX_RELEASES)
    tables = (cycles.fault, releases.fault, find_unreadable_cells(connection, part))
    return Board(
        schema=schema,
        task_state=task_state,
        skill=skill,
        rows=rows,
        cycles=cycles.rows,
        releases=releases.rows,
        marks=marks,
        faults=list(dict.fromkeys(filter(None, (*tables, *faults)))),
        doubts=read_doubts(connection, schema, forecaster, task_state),
        last_import=read_last_import(connection, schema.task_id),
        dead_letters=list_dead_letters(connection, schema.task_id),
        answered=list_scored_answers(connection, schema.task_id),
    )


def read_filling(connection: Connection, name: str, task: Task) -> Filling | None:
    """What the newest events of a task offer for rows of this form; None if there is no event. Raises NotFound."""
    sample = read_sample(connection, replace(find_task(connection, name), task=task))
    if not sample.labels:
        return None
    numbers = zip(task.numbers, map(_or_none, sample.numbers[0]), strict=True)
    texts = zip(task.categories, (text or None for text in sample.categories[0]), strict=True)
    values: dict[str, float | str | None] = {one.name: value for one, value in chain(numbers, texts)}
    columns = zip(*sample.categories, strict=True)
    found = {
        one.name: [text for text, _ in Counter(filter(None, column)).most_common(_MAX_CATEGORIES)]
        for one, column in zip(task.categories, columns, strict=False)
    }
    return Filling(values, found)


def read_intake(connection: Connection, name: str, now: datetime) -> Intake:
    """The rows that came in. Raises NotFound."""
    schema = find_task(connection, name)
    clock, at = schema.task.clock, to_micros(now)
    newest = find_newest(connection, schema.task_id, before=at + clock.window)
    day_ago = now - timedelta(days=1)
    num_refused, num_distinct, num_settled = _count_refused(connection, schema, day_ago)
    refused = _list_refused(connection, schema, day_ago, with_settled=num_distinct is None)
    halves = count_rows(connection, schema.task_id)
    if newest is None:
        return Intake((), num_refused, num_distinct, num_settled, refused, halves=halves)
    rows = read_row_warnings(connection, schema, now)
    end = clock.window_start(newest)
    start = end - (NUM_EVENT_WINDOWS - 1) * clock.window
    counts = _count_events(connection, schema, start, end + clock.window)
    refusals = _count_windows(connection, _COUNT_REFUSALS, schema, start, end + clock.window)
    if has_more := sum(counts.values()) >= MAX_COUNTED and len(counts) > 1:
        del counts[min(counts)]  # only its newest rows were counted
    first = min(counts)
    is_counted = has_more or counts[first] < MAX_COUNTED
    windows = tuple(
        WindowCount(
            format_moment(window),
            counts.get(window, 0),
            refusals.get(window, 0),
            has_ended=window + clock.window <= at,
            is_counted=is_counted or window != first,
        )
        for window in range(first, end + 1, clock.window)
    )
    return Intake(windows, num_refused, num_distinct, num_settled, refused, [*rows.mistakes, *rows.far], halves)


def count_requests(metrics: Metrics) -> list[RequestCount]:
    """Answers of /predict and /events, and refusals of other paths, by all workers of this API since it started."""
    counts: Counter[tuple[str, str]] = Counter()
    for family in metrics.registry.collect():
        for sample in family.samples:
            if sample.name == "morrow_requests_total":
                status = sample.labels["status"]
                counts[sample.labels["route"], status if status == "503" else status[:1]] += int(sample.value)
    return [RequestCount(route, *(counts[route, kind] for kind in ("2", "4", "503", "5"))) for route in _COUNTED_ROUTES]


def _count_windows(
    connection: Connection, statement: TextClause, schema: Schema, start: int, end: int
) -> dict[int, int]:
    """The number of rows by start of window, for windows from `start` to `end` that hold any (microseconds)."""
    clock = schema.task.clock
    earliest = clock.window_start(_YEAR_ONE) + clock.window
    rows = connection.execute(
        statement,
        {
            "task_id": schema.task_id,
            "window": clock.window * MICROSECOND,
            "start": from_micros(max(start, earliest)),
            "end": from_micros(end),
            "most": MAX_COUNTED,
        },
    )
    return {to_micros(window): count for window, count in rows}


def _count_events(connection: Connection, schema: Schema, start: int, end: int) -> dict[int, int]:
    """The number of events by start of window; of many events, the newest count."""
    found = _count_windows(connection, _COUNT_EVENTS, schema, start, end)
    clock, left = schema.task.clock, MAX_COUNTED - sum(found.values())
    for window in reversed(list_windows(connection, schema.task_id)):
        if start <= window.first_at < end and left > 0:
            place, count = clock.window_start(window.first_at), min(left, window.num_rows)
            found[place], left = found.get(place, 0) + count, left - count
    return found


def _or_none(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _count_refused(connection: Connection, schema: Schema, since: datetime) -> tuple[int, int | None, int]:
    """Those that are not settled, those of them that differ, and the settled ones.

    If they are too many to compare, all of them, None and 0.
    """
    count = connection.execute(select(func.count()).where(*_refused_since(schema, since))).scalar_one()
    if count > _MAX_COMPARED:
        return count, None, 0
    digest = func.md5(rejected_events.c.payload)
    open_rows = select(func.count(), func.count(digest.distinct())).where(
        *_refused_since(schema, since), not_(_is_settled())
    )
    num_open, num_distinct = connection.execute(open_rows).one()
    return num_open, num_distinct, count - num_open


def _is_settled() -> ColumnElement[bool]:
    """Whether nobody need send a refused row again.

    Its event was stored since, its import was retracted, or a later import of a file of that name has taken its place:
    ids may be digests of rows, and a corrected row then has another one.
    """
    refused, later = rejected_events.c, imports.alias()
    stored = exists().where(
        events.c.task_id == refused.task_id,
        events.c.event_id == refused.event_id,
        events.c.received_at >= refused.received_at,
    )
    repeated = exists().where(
        later.c.task_id == imports.c.task_id,
        later.c.source == imports.c.source,
        later.c.id > imports.c.id,
        later.c.retracted_at.is_(None),
        imports.c.source != PIPE,
    )
    withdrawn = exists().where(
        imports.c.task_id == refused.task_id,
        imports.c.id == refused.import_id,
        or_(imports.c.retracted_at.is_not(None), repeated),
    )
    return or_(stored, withdrawn)


def _list_refused(connection: Connection, schema: Schema, since: datetime, *, with_settled: bool) -> list[RefusedRows]:
    columns = rejected_events.c
    count = func.count().label("num_rows")
    reasons = select(func.max(columns.id).label("id"), count).where(*_refused_since(schema, since))
    if not with_settled:
        reasons = reasons.where(not_(_is_settled()))
    commonest = reasons.group_by(columns.reason).order_by(count.desc(), columns.reason).limit(NUM_REASONS).subquery()
    # A refused id may be as long as a body.
    event_id = func.left(columns.event_id, MAX_TEXT)
    newest = select(columns.reason, commonest.c.num_rows, columns.received_at, event_id)
    rows = connection.execute(
        newest.join(commonest, commonest.c.id == columns.id).order_by(commonest.c.num_rows.desc(), columns.reason)
    )
    return [RefusedRows(reason, number, format_moment(to_micros(at)), event) for reason, number, at, event in rows]


def _refused_since(schema: Schema, since: datetime) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return rejected_events.c.task_id == schema.task_id, rejected_events.c.received_at > since


_COUNT_EVENTS = text("""
    SELECT date_bin(:window, at, :start) AS start, count(*)
    FROM (
        SELECT at FROM events WHERE task_id = :task_id AND superseded_at IS NULL AND at >= :start AND at < :end
        ORDER BY at DESC LIMIT :most
    ) AS newest
    GROUP BY 1
""")
# A refused row may have no moment, so the time of its arrival counts.
_COUNT_REFUSALS = text("""
    SELECT date_bin(:window, received_at, :start) AS start, count(*)
    FROM rejected_events WHERE task_id = :task_id AND received_at >= :start AND received_at < :end
    GROUP BY 1
""")
