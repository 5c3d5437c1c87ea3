"""Which stored rows the fit of a version has read, and which versions' fits have read an event.

Nothing is kept for this: rows are never changed, so the cutoff of a cycle, the moment at which it read, and the task as
it was then say which rows it read. Erasures and retractions are the exception. An event that was erased later is shown
by its id alone; one that was retracted later is only counted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import nan
from typing import Any

import numpy as np
from psycopg import sql
from sqlalchemy import Connection, func, select, text

from contracts.clock import from_micros, to_micros
from contracts.errors import NotFound
from contracts.quality.far_values import count_far_off_ends, most_far_off
from store.cycles.trained_versions import COLUMNS, HAS_TRAINED, TrainedVersion, as_trained_version
from store.database import FIRST_MOMENT, cycles, erasures, imports
from store.events.lookups import OF_TASK, has_given_id, is_readable
from store.events.reading.unstored import is_withheld
from store.events.row_forms import Forms, find_forms
from store.events.sealed.manifest import list_files
from store.events.sealed.newest_rows import Outermost, read_outermost
from store.events.sealed.parquet_rows import StoredRow
from store.events.sealed.returning import find_row
from store.events.stored_event import Value, name_values, read_label
from store.tasks.catalog import Schema, find_revision_at

# Rows at either end are looked at to find those dated far from all others: at most this many.
_MOST_OUTERMOST = 1_000
_ONE_IN = 20


@dataclass(frozen=True)
class FittedRow:
    """A row as a fit has read it, with the features of the task as it was then. Moments in microseconds.

    An erased row was erased after that: its moments are those of the start of its window, and of the event only the
    id is known. The fit kept a withheld row apart, to measure errors on.
    """

    event_id: str
    at: int
    known_at: int
    received_at: int
    revision: int | None
    features: dict[str, Value] | None
    label: str | float | None
    withheld: bool

    @property
    def is_erased(self) -> bool:
        return self.revision is None


@dataclass(frozen=True)
class FittedRows:
    """A page of rows by `at` and id, and the id after which the next page begins; None after the last one."""

    rows: Sequence[FittedRow]
    next: str | None


@dataclass(frozen=True)
class EventInFit:
    """A version whose fit has read an event, in this revision; None if the event was erased after that."""

    trained: TrainedVersion
    revision: int | None


@dataclass(frozen=True)
class EventInFits:
    """Such versions, the newest cycle first, and the cycle after which the next page begins; None after the last."""

    fits: Sequence[EventInFit]
    next: int | None


def list_fitted_rows(
    connection: Connection, trained: TrainedVersion, task_id: int, *, after: str | None = None, limit: int
) -> FittedRows:
    """The rows that a version's fit has read, after the event `after`. Raises NotFound if the fit has not read that."""
    fit = _open_fit(connection, task_id, trained)
    place: sql.Composable = sql.SQL("true")
    one = None
    if after is not None:
        one = _read_one(connection, fit, after)
        if one is None:
            raise NotFound(f"Version {trained.version} has read no event with the id {after!r}.")
        at = sql.Literal(from_micros(one.at))
        # The first condition bounds the read of the index; the second is the place in the page's order.
        place = sql.SQL('at >= {at} AND (at, event_id COLLATE "C") > ({at}, {after} COLLATE "C")').format(
            at=at, after=sql.Literal(after)
        )
    found = list(_read(connection, fit, fit.source, place, limit + 1))
    reached = (fit.since, "") if one is None else (one.at, one.event_id)
    wanted = Outermost(limit + 1, newest=False, first=reached[0], end=fit.until + 1)
    sealed = read_outermost(
        connection,
        task_id,
        wanted,
        lambda row: fit.has_read(row) and (to_micros(row.at), row.event_id) > reached,
    )
    found = sorted([*found, *map(fit.describe, sealed)], key=lambda row: (row.at, row.event_id))
    shown = found[:limit]
    return FittedRows(shown, shown[-1].event_id if len(found) > limit else None)


def count_withdrawn(connection: Connection, task_id: int, since: datetime) -> tuple[int, int]:
    """How many events of a task were erased, and how many retracted, after this moment."""
    erased = select(func.coalesce(func.sum(erasures.c.num_events), 0)).where(
        erasures.c.task_id == task_id, erasures.c.at > since
    )
    retracted = select(func.coalesce(func.sum(imports.c.num_retracted), 0)).where(
        imports.c.task_id == task_id, imports.c.retracted_at > since
    )
    num_erased, num_retracted = connection.execute(erased).scalar_one(), connection.execute(retracted).scalar_one()
    return int(num_erased), int(num_retracted)


def list_fits_of_event(
    connection: Connection, task_id: int, event_id: str, *, after: int | None = None, limit: int
) -> EventInFits:
    """The versions whose fits have read an event, of cycles before `after`; at most `limit` cycles are looked at.

    Raises NotFound if no event of this id is or was stored.
    """
    key = {"task_id": task_id, "event_id": event_id}
    if not event_id.isprintable() or (
        connection.execute(_EXISTS, key).scalar_one_or_none() is None
        and find_row(connection, task_id, event_id) is None
    ):
        raise NotFound(f"There is no event with the id {event_id!r}.")
    query = select(*COLUMNS).where(cycles.c.task_id == task_id, *HAS_TRAINED).order_by(cycles.c.id.desc())
    if after is not None:
        query = query.where(cycles.c.id < after)
    found = [as_trained_version(row) for row in connection.execute(query.limit(limit + 1))]
    rows = ((one, _read_one(connection, _open_fit(connection, task_id, one), event_id)) for one in found[:limit])
    fits = [EventInFit(one, row.revision) for one, row in rows if row is not None]
    return EventInFits(fits, found[limit - 1].cycle_id if len(found) > limit else None)


@dataclass(frozen=True)
class _Fit:
    """What a fit has read: rows of this source that meet this condition, with the features of this task."""

    schema: Schema
    trained: TrainedVersion
    forms: Forms
    source: sql.Composable
    condition: sql.Composable
    since: int
    until: int

    def has_read(self, row: StoredRow) -> bool:
        """Whether a sealed row, which never changes, is among them."""
        at, trained, is_text = to_micros(row.at), self.trained, self.schema.task.is_classification
        return (
            self.since <= at <= self.until
            and to_micros(row.known_at) <= trained.cutoff
            and row.received_at <= trained.read_at
            and row.schema_id in self.forms.schema_ids
            and (not is_text or self.forms.classes is None or row.label in self.forms.classes)
            and (is_text or "+" <= row.label < ":")
        )

    def describe(self, row: StoredRow) -> FittedRow:
        """A sealed row as the fit has read it."""
        form = next(form for form in self.forms.forms if row.schema_id in form.schema_ids)
        numbers, categories = row.numbers, row.categories
        if not form.is_own:
            numbers = tuple(nan if place is None else row.numbers[place - 1] for place in form.numbers)
            categories = tuple("" if place is None else row.categories[place - 1] for place in form.categories)
        task = self.schema.task
        return FittedRow(
            event_id=row.event_id,
            at=to_micros(row.at),
            known_at=to_micros(row.known_at),
            received_at=to_micros(row.received_at),
            revision=1,
            features=name_values([(one.name, one.kind) for one in task.features], numbers, categories),
            label=row.label if task.is_classification else read_label(row.label),
            withheld=is_withheld(row.event_id),
        )


def _open_fit(connection: Connection, task_id: int, trained: TrainedVersion) -> _Fit:
    schema = find_revision_at(connection, task_id, trained.started_at, trained.ended_at)
    task, forms = schema.task, find_forms(connection, task_id, schema.task)
    history = task.training.history
    first = FIRST_MOMENT if history is None else from_micros(trained.cutoff - history * task.clock.window)
    given = {
        "task_id": sql.Literal(task_id),
        "cutoff": sql.Literal(from_micros(trained.cutoff)),
        "read_at": sql.Literal(trained.read_at),
        "counts": forms.condition(),
        "schema_ids": sql.Literal(forms.schema_ids),
        "is_number": sql.SQL("true" if task.is_classification else _IS_NUMBER),
    }
    known, erased = (part.format(**given, are_readable=_ARE_READABLE) for part in (_KNOWN, _ERASED))
    of_task = sql.SQL("task_id = {task_id} AND at < {cutoff}").format(**given)
    whole = _Fit(schema, trained, forms, forms.source(), known, to_micros(FIRST_MOMENT), trained.cutoff - 1)
    span = _find_span(connection, whole, sql.SQL("{} AND {}").format(of_task, known))
    since = first if span is None else max(first, span[0])
    until = from_micros(trained.cutoff - 1) if span is None else span[1]
    # The moment of an erased row is the start of its window.
    earliest = max(to_micros(FIRST_MOMENT), to_micros(since) - task.clock.window + 1)
    condition = sql.SQL("{} AND at >= {} AND at <= {} AND ((at >= {} AND {}) OR {})").format(
        of_task, sql.Literal(from_micros(earliest)), sql.Literal(until), sql.Literal(since), known, erased
    )
    return _Fit(schema, trained, forms, forms.source(), condition, to_micros(since), to_micros(until))


def _find_span(connection: Connection, fit: _Fit, known: sql.Composable) -> tuple[datetime, datetime] | None:
    """The first and the last moment of the rows that are not dated far from all others; None if all count.

    Fits leave those out (`contracts.quality.far_values`). Here no more than `_MOST_OUTERMOST` at either end are.
    """
    schema, num_rows = fit.schema, fit.trained.num_rows
    if num_rows < _MOST_OUTERMOST * _ONE_IN and not list_files(connection, schema.task_id, end=fit.trained.cutoff):
        # Far rows are no rows of the fit: there may have been a few more.
        query = sql.SQL("SELECT count(*) FROM (SELECT FROM {} WHERE {} ORDER BY at LIMIT {}) AS found")
        limit = sql.Literal(_MOST_OUTERMOST * _ONE_IN)
        num_rows = _fetch(connection, query.format(fit.source, known, limit))[0][0]
    most = min(most_far_off(num_rows), _MOST_OUTERMOST)
    query = sql.SQL("SELECT at FROM {} WHERE {} ORDER BY at {} LIMIT {}")
    ends = []
    for order, is_newest in (("ASC", False), ("DESC", True)):
        found = _fetch(connection, query.format(fit.source, known, sql.SQL(order), sql.Literal(most + 1)))
        wanted = Outermost(most + 1, newest=is_newest, end=fit.trained.cutoff)
        sealed = read_outermost(connection, schema.task_id, wanted, fit.has_read)
        moments = [*(to_micros(at) for (at,) in found), *(to_micros(row.at) for row in sealed)]
        ends.append(sorted(moments, reverse=is_newest)[: most + 1])
    oldest, newest = ends
    before, after = count_far_off_ends(
        np.array(oldest, np.int64),
        np.array(newest[::-1], np.int64),
        schema.task.clock.window,
        schema.task.guard.min_rows - 1,
    )
    if not (before or after):
        return None
    return from_micros(oldest[before]), from_micros(newest[after])


def _read_one(connection: Connection, fit: _Fit, event_id: str) -> FittedRow | None:
    """The row of one event, found by the primary key (`store.events.lookups`); None if the fit has not read it."""
    if not event_id.isprintable():
        return None
    one = sql.SQL(
        "(SELECT * FROM {} WHERE task_id = ANY(ARRAY(SELECT {}::integer)) AND event_id = {id} "
        "AND event_id BETWEEN {id} AND {id} OFFSET 0) AS events"
    ).format(fit.source, sql.Literal(fit.schema.task_id), id=sql.Literal(event_id))
    found = next(_read(connection, fit, one, sql.SQL("true"), 1), None)
    if found is not None:
        return found
    sealed = find_row(connection, fit.schema.task_id, event_id)
    return fit.describe(sealed) if sealed is not None and fit.has_read(sealed) else None


def _read(
    connection: Connection, fit: _Fit, source: sql.Composable, place: sql.Composable, limit: int
) -> Iterator[FittedRow]:
    query = sql.SQL(
        "SELECT event_id, at, known_at, received_at, CASE WHEN erasure_id IS NULL THEN revision END, numbers, "
        'categories, label FROM {} WHERE {} AND {} ORDER BY at, event_id COLLATE "C" LIMIT {}'
    )
    task = fit.schema.task
    kinds = [(feature.name, feature.kind) for feature in task.features]
    for event_id, at, known_at, received_at, revision, numbers, categories, label in _fetch(
        connection, query.format(source, fit.condition, place, sql.Literal(limit))
    ):
        is_erased = revision is None
        yield FittedRow(
            event_id=event_id,
            at=to_micros(at),
            known_at=to_micros(known_at),
            received_at=to_micros(received_at),
            revision=revision,
            features=None if is_erased else name_values(kinds, numbers, categories),
            label=None if is_erased else label if task.is_classification else read_label(label),
            withheld=is_withheld(event_id),
        )


def _fetch(connection: Connection, query: sql.Composed) -> list[tuple[Any, ...]]:
    driver = connection.connection.driver_connection
    assert driver is not None
    with driver.cursor() as cursor:
        return list(cursor.execute(query))


# As `EventColumns.as_of` and the snapshot of the cycle have it.
_KNOWN = sql.SQL(
    "(known_at <= {cutoff} AND (superseded_at IS NULL OR superseded_at > {cutoff}) AND received_at <= {read_at} "
    "AND {counts} AND {is_number} AND {are_readable})"
)
# Of an erased event only its first revision says when it came.
_ERASED = sql.SQL(
    "(revision = 1 AND known_at <= {cutoff} AND received_at <= {read_at} AND schema_id = ANY({schema_ids}) "
    "AND erasure_id IN (SELECT id FROM erasures WHERE task_id = {task_id} AND at > {read_at}) AND {are_readable})"
)
_ARE_READABLE = sql.SQL(" AND ".join(map(is_readable, ("at", "known_at", "received_at"))))
_IS_NUMBER = """label COLLATE "C" >= '+' AND label COLLATE "C" < ':'"""

_EXISTS = text(f"""
    SELECT true FROM events WHERE {has_given_id()} AND revision = 1
    UNION ALL
    SELECT true FROM incomplete_events WHERE task_id = {OF_TASK} AND event_id = :event_id AND label IS NULL
    LIMIT 1
""")  # noqa: S608 our own fragments
