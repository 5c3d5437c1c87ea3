"""Events as arrays: the rows of a fit, as they were known at an origin.

One read gets every revision that a cutoff may see; each origin is then cut from the same arrays.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Cursor, sql
from psycopg.errors import InvalidTextRepresentation, NumericValueOutOfRange
from sqlalchemy import Connection, collate, func, or_, select, true

from contracts.clock import EPOCH, Clock, from_micros, to_micros
from contracts.task import Task
from store.database import FIRST_MOMENT, LAST_MOMENT, events, is_readable
from store.events.reading.copied_tuples import (
    OddWidth,
    Survey,
    Vocabulary,
    read_pieces,
    survey,
    tuple_fields,
    tuple_layout,
)
from store.events.row_forms import Forms, find_forms
from store.sql_arrays import POSTGRES_EPOCH

NEVER = np.iinfo(np.int64).max
COLUMNS = ("at", "known_at", "superseded_at", "numbers", "categories", "labels", "withheld")
_ROWS_PER_BLOCK = 65_536


@dataclass(frozen=True)
class EventColumns:
    """Events as arrays, one row each, in the order of (at, event_id).

    at, known_at, superseded_at  (n,)   int64    microseconds; superseded_at is NEVER while current
    numbers     (n, p)  float64  NaN if missing
    categories  (n, q)  integer  positions in `vocabularies`
    labels      (n,)    float64 values, or integer positions in `classes`
    withheld    (n,)    bool     True for rows that no fit may use
    """

    at: NDArray[np.int64]
    known_at: NDArray[np.int64]
    superseded_at: NDArray[np.int64]
    numbers: NDArray[np.float64]
    categories: NDArray[Any]
    vocabularies: tuple[tuple[str, ...], ...]
    labels: NDArray[np.float64] | NDArray[np.integer[Any]]
    classes: tuple[str, ...]
    withheld: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.at)

    def select(self, rows: NDArray[np.bool_] | NDArray[np.integer[Any]] | slice) -> "EventColumns":
        """The same columns for some rows, given as a mask, positions or a slice; vocabularies and classes stay whole.

        Columns are never written to, so the rows share memory where they can: a slice or a mask of adjacent rows is a
        view, and many others are `PickedColumns`.
        """
        if not isinstance(rows, slice) and rows.dtype == np.bool_:
            rows = _as_slice(rows)
        if isinstance(rows, slice):
            return self.copied(rows)
        positions: NDArray[Any] = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return PickedColumns.of(self, positions)

    def copied(self, rows: NDArray[np.integer[Any]] | slice) -> "EventColumns":
        """The same columns for the rows at these positions as arrays of their own, or for a slice as views."""
        return replace(self, **{name: getattr(self, name)[rows] for name in COLUMNS})

    def as_of(self, origin: int) -> "EventColumns":
        """The rows that a model fitted at `origin` may use: before it, known by it, and not yet superseded at it."""
        return self._usable((self.at < origin) & (self.known_at <= origin) & (self.superseded_at > origin))

    def in_window(self, start: int, end: int) -> "EventColumns":
        """The current events of `[start, end)`."""
        return self._usable((self.at >= start) & (self.at < end) & (self.superseded_at == NEVER))

    def _usable(self, rows: NDArray[np.bool_]) -> "EventColumns":
        """These rows without those whose label is no number."""
        return self.select(rows if self.odd_labels is None else rows & ~self.odd_labels)

    @cached_property
    def odd_labels(self) -> NDArray[np.bool_] | None:
        """The rows whose label is no number, as of blank rows and of those written past the API; None if all are."""
        labels = self.part("labels", slice(None))
        odd = np.isnan(labels) if labels.dtype.kind == "f" else None
        return odd if odd is not None and odd.any() else None

    @property
    def num_numbers(self) -> int:
        """The number of columns of numbers."""
        return int(self.part("numbers", slice(0, 0)).shape[1])

    def number(self, place: int) -> NDArray[np.float64]:
        """One column of numbers, `(n,)`."""
        return self.part("numbers", (slice(None), place))

    def category(self, place: int) -> NDArray[np.integer[Any]]:
        """One column of categories, `(n,)`."""
        return self.part("categories", (slice(None), place))

    def part(self, name: str, index: slice | tuple[slice, int]) -> NDArray[Any]:
        """Some rows of a column, or one of the columns of numbers or categories."""
        column: NDArray[Any] = getattr(self, name)
        return column[index]

    @cached_property
    def digest(self) -> str:
        """SHA-256 over every value of these rows; it does not depend on other rows that were read with them.

        Columns are hashed block by block, so that nothing is copied as a whole.
        """
        blocks = [slice(start, start + _ROWS_PER_BLOCK) for start in range(0, max(1, len(self)), _ROWS_PER_BLOCK)]
        coded = [self._find_codes("categories", place, blocks) for place in range(len(self.vocabularies))]
        if self.classes:
            coded.append(self._find_codes("labels", None, blocks))
        sha = hashlib.sha256(repr([codes.texts for codes in coded]).encode())
        for name in ("at", "known_at", "numbers", "withheld"):
            for block in blocks:
                sha.update(np.ascontiguousarray(self.part(name, block)).reshape(-1).data)
        for codes in coded:
            for block in blocks:
                sha.update(codes.places[self._codes(codes.name, codes.place, block)].data)
        if not self.classes:
            for block in blocks:
                sha.update(np.ascontiguousarray(self.part("labels", block)).data)
        return sha.hexdigest()

    def _codes(self, name: str, place: int | None, block: slice) -> NDArray[Any]:
        return self.part(name, block if place is None else (block, place))

    def _find_codes(self, name: str, place: int | None, blocks: Sequence[slice]) -> "_Codes":
        known = self.classes if place is None else self.vocabularies[place]
        occurs = np.zeros(len(known), np.bool_)
        for block in blocks:
            occurs[self._codes(name, place, block)] = True
        return _Codes(name, place, list(compress(known, occurs)), np.cumsum(occurs) - 1)


@dataclass(frozen=True)
class _Codes:
    """The texts of a column that occur in some rows, and the place among them of each text of its vocabulary."""

    name: str
    place: int | None
    texts: list[str]
    places: NDArray[np.int64]


class PickedColumns(EventColumns):
    """Rows picked from others by position, without their memory: a column is copied each time that it is asked for.

    A fit leaves out one row in twenty, so without this its rows would be a second copy of nearly the whole reading.
    `dataclasses.replace` returns plain columns.
    """

    _base: EventColumns
    _positions: NDArray[np.int32]

    def __new__(cls, **columns: Any) -> EventColumns:  # type: ignore[misc] # called by `replace` alone
        return EventColumns(**columns)

    @staticmethod
    def of(base: EventColumns, positions: NDArray[np.integer[Any]]) -> EventColumns:
        """These rows of plain columns; copied if they are few."""
        if len(positions) <= _ROWS_PER_BLOCK:
            return base.copied(positions)
        picked = object.__new__(PickedColumns)
        vars(picked).update(
            _base=base,
            _positions=positions.astype(np.int32, copy=False),
            vocabularies=base.vocabularies,
            classes=base.classes,
        )
        return picked

    def __getattr__(self, name: str) -> NDArray[Any]:
        if name not in COLUMNS:
            raise AttributeError(name)
        return self.part(name, slice(None))

    def __len__(self) -> int:
        return len(self._positions)

    def select(self, rows: NDArray[np.bool_] | NDArray[np.integer[Any]] | slice) -> EventColumns:
        """As of plain columns."""
        if not isinstance(rows, slice) and rows.dtype == np.bool_:
            rows = _as_slice(rows)
        return PickedColumns.of(self._base, self._positions[rows])

    def part(self, name: str, index: slice | tuple[slice, int]) -> NDArray[Any]:
        """As of plain columns, but a copy."""
        column: NDArray[Any] = getattr(self._base, name)
        if isinstance(index, slice):
            return column[self._positions[index]]
        rows, place = index
        picked: NDArray[Any] = column[self._positions[rows], place]
        return picked


def _as_slice(mask: NDArray[Any]) -> NDArray[Any] | slice:
    """The mask as a slice if all its rows are adjacent, else unchanged."""
    start, length = int(mask.argmax()) if len(mask) else 0, int(np.count_nonzero(mask))
    return slice(start, start + length) if mask[start : start + length].all() else mask


def read_events(
    connection: Connection, task_id: int, task: Task, cutoff: int, *, since: int | None = None, until: int | None = None
) -> EventColumns:
    """Every revision that happened before `cutoff` and was known by it, from one snapshot, in the task's own form.

    `store.events.row_forms` decides which rows of other schemas count, and which of their values are missing. With
    `since` and
    `until` only those that happened in `[since, until)`; moments in microseconds. The caller's transaction must be
    REPEATABLE READ: one scan finds the vocabularies and the number of rows. The second, a COPY of fixed-width tuples,
    is decoded piece by piece into arrays of that size, so nothing else takes memory.
    """
    forms = find_forms(connection, task_id, task)
    allowed, source = _allowed(task_id, forms, cutoff, since, until), forms.source()
    driver = connection.connection.driver_connection
    assert driver is not None
    with driver.cursor() as cursor:
        # A task with a large share of the table would be read by a scan of all tasks' events.
        cursor.execute("SET LOCAL enable_seqscan = off")
        expected = survey(cursor, task, source, allowed)
        query = sql.SQL(
            'COPY (SELECT {} FROM {} WHERE {} ORDER BY at, event_id COLLATE "C", revision) TO STDOUT (FORMAT BINARY)'
        )
        try:
            with driver.transaction():
                return _copy(cursor, query.format(tuple_fields(task, expected.seed), source, allowed), task, expected)
        except (InvalidTextRepresentation, NumericValueOutOfRange, OddWidth):
            fields = tuple_fields(task, expected.seed, has_odd_rows=True)
            return _copy(cursor, query.format(fields, source, allowed), task, expected)


def _copy(cursor: Cursor[Any], query: sql.Composed, task: Task, expected: Survey) -> EventColumns:
    columns, start = _empty(task, expected), 0
    with cursor.copy(query) as copy:
        for piece in read_pieces(copy, tuple_layout(task)):
            _decode(piece, expected.vocabularies, columns.select(slice(start, start + len(piece))))
            start += len(piece)
    assert start == len(columns), "rows came or went while they were read: the transaction must be REPEATABLE READ"
    return columns


def _allowed(task_id: int, forms: Forms, cutoff: int, since: int | None, until: int | None) -> sql.Composed:
    """The condition of `read_events`."""
    allowed = sql.SQL("task_id = {task_id} AND at < {cutoff} AND known_at <= {cutoff} AND {counts}").format(
        task_id=sql.Literal(task_id), cutoff=sql.Literal(from_micros(cutoff)), counts=forms.condition()
    )
    allowed += sql.SQL(" AND at >= {}").format(sql.Literal(FIRST_MOMENT if since is None else from_micros(since)))
    if until is not None:
        allowed += sql.SQL(" AND at < {}").format(sql.Literal(from_micros(until)))
    return allowed


def _empty(task: Task, expected: Survey) -> EventColumns:
    """Columns of the expected size, not yet filled, each of the narrowest type that holds its values.

    Most rows are known when they happen, and few are superseded: then no memory is spent to say so.
    """
    n = expected.num_rows
    texts = tuple(vocabulary.texts for vocabulary in expected.vocabularies)
    at = np.empty(n, np.int64)
    vocabularies = texts[: len(task.categories)]
    labels: NDArray[Any] = np.empty(n, _narrowest(texts[-1:]) if task.is_classification else np.float64)
    return EventColumns(
        at=at,
        known_at=at if expected.all_known_at_once else np.empty(n, np.int64),
        superseded_at=np.empty(n, np.int64) if expected.any_superseded else np.broadcast_to(np.int64(NEVER), n),
        numbers=np.empty((n, len(task.numbers)), np.float64),
        categories=np.empty((n, len(task.categories)), _narrowest(vocabularies)),
        vocabularies=vocabularies,
        labels=labels,
        classes=texts[-1] if task.is_classification else (),
        withheld=np.empty(n, np.bool_),
    )


def _narrowest(vocabularies: Sequence[Sequence[str]]) -> type[np.integer[Any]]:
    """The narrowest type of positions in all of these vocabularies."""
    most = max(map(len, vocabularies), default=0)
    return next((kind for kind in (np.uint8, np.uint16) if most <= np.iinfo(kind).max), np.int32)


def _decode(piece: NDArray[Any], vocabularies: Sequence[Vocabulary], into: EventColumns) -> None:
    """Write tuples into columns of the same length."""
    into.at[:] = piece["at"] + POSTGRES_EPOCH
    into.known_at[:] = piece["known_at"] + POSTGRES_EPOCH
    if into.superseded_at.flags.writeable:
        until = piece["superseded_at"]
        into.superseded_at[:] = np.where(until == NEVER, NEVER, until + POSTGRES_EPOCH)
    into.withheld[:] = piece["withheld"]
    if into.numbers.shape[1]:
        into.numbers[:] = piece["numbers"]["elements"]["value"]
    num_categories = into.categories.shape[1]
    for j, vocabulary in enumerate(vocabularies):
        target = into.categories[:, j] if j < num_categories else into.labels
        target[:] = vocabulary.positions(piece[f"hash{j}"])
    if "label" in (piece.dtype.names or ()):
        into.labels[:] = np.where(np.isfinite(piece["label"]), piece["label"], np.nan)


def read_fingerprints(
    connection: Connection, task_id: int, task: Task, cutoff: int, *, since: int, until: int | None = None
) -> dict[int, tuple[int, int]]:
    """Window -> numbers of its current rows and of all their revisions, as known at `cutoff`.

    Windows begin with the one at `since`, and end before `until` if given. Any append, correction or erasure changes
    one of the two numbers, so they show whether a cell is still up to date. Of a regression, a row whose label does not
    begin like a number counts as a revision only.
    """
    window = func.date_bin(from_micros(task.clock.window) - EPOCH, events.c.at, from_micros(since))
    is_current = events.c.superseded_at.is_(None) | (events.c.superseded_at > from_micros(cutoff))
    if not task.is_classification:
        first = collate(events.c.label, "C")
        is_current = is_current & (first >= "+") & (first < ":")
    forms = find_forms(connection, task_id, task)
    rows = connection.execute(
        select(window, func.count().filter(is_current), func.count())
        .where(
            events.c.task_id == task_id,
            events.c.at >= from_micros(since),
            events.c.at < from_micros(cutoff if until is None else min(cutoff, until)),
            events.c.known_at <= from_micros(cutoff),
            events.c.schema_id.in_(forms.schema_ids),
            true() if forms.classes is None else events.c.label.in_(forms.labels),
        )
        .group_by(window)
    )
    return {to_micros(start): (num_rows, num_revisions) for start, num_rows, num_revisions in rows}


def find_newest(connection: Connection, task_id: int, *, before: int | None = None) -> int | None:
    """When the newest event, or the newest before a moment, happened (microseconds); None if there is none.

    An event with a moment that has no microseconds, such as `infinity`, is passed over: `has_unreadable` finds it.
    """
    newest = connection.execute(
        select(func.max(events.c.at)).where(
            events.c.task_id == task_id,
            events.c.superseded_at.is_(None),
            is_readable(events.c.at),
            true() if before is None else events.c.at < from_micros(before),
        )
    ).scalar_one()
    return None if newest is None else to_micros(newest)


def has_unreadable(connection: Connection, task_id: int) -> bool:
    """Whether the task has events with a moment that has no microseconds, from a time when the table took them."""
    at = events.c.at
    # The outermost moments: a search for any row outside the calendar may be planned as a scan of the whole table.
    ends = [
        select(side).where(events.c.task_id == task_id).order_by(order).limit(1).scalar_subquery()
        for side, order in ((at < FIRST_MOMENT, at), (at > LAST_MOMENT, at.desc()))
    ]
    return connection.execute(select(func.coalesce(or_(*ends), False))).scalar_one()


def count_windows(connection: Connection, task_id: int, clock: Clock, *, until: int, most: int) -> int:
    """The number of windows before `until` (microseconds) that hold an event; counting stops at `most`."""
    found, since = 0, None
    while found < most:
        oldest = connection.execute(
            select(func.min(events.c.at)).where(
                events.c.task_id == task_id,
                events.c.superseded_at.is_(None),
                events.c.at < from_micros(until),
                events.c.at >= (FIRST_MOMENT if since is None else from_micros(since)),
            )
        ).scalar_one()
        if oldest is None:
            break
        found, since = found + 1, clock.window_start(to_micros(oldest)) + clock.window
    return found
