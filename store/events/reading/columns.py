"""Events as arrays: the rows of a fit, as they were known at an origin.

One read gets every revision that a cutoff may see; each origin is then cut from the same arrays.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Cursor, sql
from psycopg.errors import InvalidTextRepresentation, NumericValueOutOfRange
from sqlalchemy import Connection

from contracts.clock import from_micros
from contracts.task import Task
from store.database import FIRST_MOMENT
from store.events.reading.copied_tuples import (
    OddWidth,
    Survey,
    Vocabulary,
    read_pieces,
    survey,
    tuple_fields,
    tuple_layout,
)
from store.events.reading.sealed_columns import Coded, SealedRows, Span, find_rows, merged_places
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
                recent = _copy(cursor, query.format(tuple_fields(task, expected.seed), source, allowed), task, expected)
        except (InvalidTextRepresentation, NumericValueOutOfRange, OddWidth):
            fields = tuple_fields(task, expected.seed, has_odd_rows=True)
            recent = _copy(cursor, query.format(fields, source, allowed), task, expected)
        sealed = list(find_rows(connection, task_id, task, forms, Span(cutoff, since, until)))

        def read_ids(moments: list[int]) -> list[str]:
            named = sql.SQL(
                'SELECT event_id FROM {} WHERE {} AND at = ANY({}) ORDER BY at, event_id COLLATE "C", revision'
            ).format(source, allowed, sql.Literal([from_micros(moment) for moment in moments]))
            return [event_id for (event_id,) in cursor.execute(named)]

        return _merge(task, recent, sealed, read_ids) if sealed else recent


def _merge(
    task: Task, recent: EventColumns, sealed: list[SealedRows], read_ids: Callable[[list[int]], list[str]]
) -> EventColumns:
    """The rows of the table and of files together, as if the table held them all."""
    places, *of_parts = merged_places(recent.at, sealed, read_ids)
    held = [*recent.vocabularies, *([recent.classes] if task.is_classification else [])]
    coded = [[*part.categories, *([part.label] if isinstance(part.label, Coded) else [])] for part in sealed]
    texts = [
        tuple(sorted({*held[j], *(one[j].texts[place] for one in coded for place in np.unique(one[j].places))}))
        for j in range(len(held))
    ]
    known_at_once = recent.known_at is recent.at and all(part.known_at is part.at for part in sealed)
    columns = _empty(
        task,
        len(recent) + sum(len(part) for part in sealed),
        texts,
        all_known_at_once=known_at_once,
        any_superseded=recent.superseded_at.flags.writeable,
    )
    for name in ("at", "known_at", "superseded_at", "numbers", "withheld"):
        if getattr(columns, name).flags.writeable:
            getattr(columns, name)[places] = getattr(recent, name)
    targets = [*(columns.categories[:, j] for j in range(len(recent.vocabularies))), columns.labels]
    for j, known in enumerate(texts):
        own = recent.categories[:, j] if j < len(recent.vocabularies) else recent.labels
        targets[j][places] = _positions(held[j], known)[own]
    if not task.is_classification:
        columns.labels[places] = recent.labels
    for part, one, into in zip(sealed, coded, of_parts, strict=True):
        columns.at[into], columns.known_at[into], columns.withheld[into] = part.at, part.known_at, part.withheld
        if columns.superseded_at.flags.writeable:
            columns.superseded_at[into] = NEVER
        columns.numbers[into] = part.read_numbers()
        for j, codes in enumerate(one):
            targets[j][into] = _positions(codes.texts, texts[j])[codes.places]
        if not isinstance(part.label, Coded):
            columns.labels[into] = part.label
    return columns


def _positions(held: Sequence[str], known: Sequence[str]) -> NDArray[np.int64]:
    """The positions in a vocabulary of the texts of another, -1 for those that it lacks."""
    place_of = {text: place for place, text in enumerate(known)}
    return np.array([place_of.get(text, -1) for text in held], np.int64)


def _copy(cursor: Cursor[Any], query: sql.Composed, task: Task, expected: Survey) -> EventColumns:
    texts = [vocabulary.texts for vocabulary in expected.vocabularies]
    columns, start = (
        _empty(
            task,
            expected.num_rows,
            texts,
            all_known_at_once=expected.all_known_at_once,
            any_superseded=expected.any_superseded,
        ),
        0,
    )
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


def _empty(
    task: Task, n: int, texts: Sequence[tuple[str, ...]], *, all_known_at_once: bool, any_superseded: bool
) -> EventColumns:
    """Columns for n rows with these texts, not yet filled, each of the narrowest type that holds its values.

    Most rows are known when they happen, and few are superseded: then no memory is spent to say so.
    """
    at = np.empty(n, np.int64)
    vocabularies = tuple(texts[: len(task.categories)])
    labels: NDArray[Any] = np.empty(n, _narrowest(texts[-1:]) if task.is_classification else np.float64)
    return EventColumns(
        at=at,
        known_at=at if all_known_at_once else np.empty(n, np.int64),
        superseded_at=np.empty(n, np.int64) if any_superseded else np.broadcast_to(np.int64(NEVER), n),
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
