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
from psycopg import sql
from sqlalchemy import Connection, func, or_, select, true

from contracts.clock import EPOCH, Clock, from_micros, to_micros
from contracts.task import Task
from store.database import FIRST_MOMENT, LAST_MOMENT, events, is_readable
from store.events.copied_tuples import Survey, Vocabulary, read_pieces, survey, tuple_fields, tuple_layout
from store.events.row_forms import Forms, find_forms
from store.sql_arrays import POSTGRES_EPOCH

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class EventColumns:
    """Events as arrays, one row each, in the order of (at, event_id).

    at, known_at, superseded_at  (n,)   int64    microseconds; superseded_at is NEVER while current
    numbers     (n, p)  float64  NaN if missing
    categories  (n, q)  int32    positions in `vocabularies`
    labels      (n,)    float64 values, or int32 positions in `classes`
    withheld    (n,)    bool     True for rows that no fit may use
    """

    at: NDArray[np.int64]
    known_at: NDArray[np.int64]
    superseded_at: NDArray[np.int64]
    numbers: NDArray[np.float64]
    categories: NDArray[np.int32]
    vocabularies: tuple[tuple[str, ...], ...]
    labels: NDArray[np.float64] | NDArray[np.int32]
    classes: tuple[str, ...]
    withheld: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.at)

    def select(self, rows: NDArray[np.bool_] | NDArray[np.intp] | slice) -> "EventColumns":
        """The same columns for some rows, given as a mask, positions or a slice; vocabularies and classes stay whole.

        A mask of adjacent rows becomes a slice, which shares memory: columns are never written to.
        """
        if not isinstance(rows, slice) and rows.dtype == np.bool_:
            rows = _as_slice(rows)
        return replace(
            self,
            at=self.at[rows],
            known_at=self.known_at[rows],
            superseded_at=self.superseded_at[rows],
            numbers=self.numbers[rows],
            categories=self.categories[rows],
            labels=self.labels[rows],
            withheld=self.withheld[rows],
        )

    def as_of(self, origin: int) -> "EventColumns":
        """The rows that a model fitted at `origin` may use: before it, known by it, and not yet superseded at it."""
        return self.select((self.at < origin) & (self.known_at <= origin) & (self.superseded_at > origin))

    def in_window(self, start: int, end: int) -> "EventColumns":
        """The current events of `[start, end)`."""
        return self.select((self.at >= start) & (self.at < end) & (self.superseded_at == NEVER))

    @cached_property
    def digest(self) -> str:
        """SHA-256 over every value of these rows; it does not depend on other rows that were read with them."""
        coded = [_used(positions, known) for positions, known in zip(self.categories.T, self.vocabularies, strict=True)]
        if self.classes:
            coded.append(_used(self.labels.astype(np.int32), self.classes))
        sha = hashlib.sha256(repr([texts for _, texts in coded]).encode())
        values = [self.at, self.known_at, self.numbers, self.withheld, *(positions for positions, _ in coded)]
        for column in values if self.classes else [*values, self.labels]:
            sha.update(np.ascontiguousarray(column).reshape(-1).data)
        return sha.hexdigest()


def _as_slice(mask: NDArray[Any]) -> NDArray[Any] | slice:
    """The mask as a slice if all its rows are adjacent, else unchanged."""
    start, length = int(mask.argmax()) if len(mask) else 0, int(np.count_nonzero(mask))
    return slice(start, start + length) if mask[start : start + length].all() else mask


def _used(positions: NDArray[np.int32], known: Sequence[str]) -> tuple[NDArray[np.int64], list[str]]:
    """The texts that occur, and each row's position among them."""
    occurs = np.bincount(positions, minlength=len(known)) > 0
    return (np.cumsum(occurs) - 1)[positions], list(compress(known, occurs))


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
        columns = _empty(task, expected)
        query = sql.SQL(
            'COPY (SELECT {} FROM {} WHERE {} ORDER BY at, event_id COLLATE "C", revision) TO STDOUT (FORMAT BINARY)'
        ).format(tuple_fields(task, expected.seed), source, allowed)
        start = 0
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
    """Columns of the expected size, not yet filled."""
    n = expected.num_rows
    texts = tuple(vocabulary.texts for vocabulary in expected.vocabularies)
    labels: NDArray[Any] = np.empty(n, np.int32 if task.is_classification else np.float64)
    return EventColumns(
        at=np.empty(n, np.int64),
        known_at=np.empty(n, np.int64),
        superseded_at=np.empty(n, np.int64),
        numbers=np.empty((n, len(task.numbers)), np.float64),
        categories=np.empty((n, len(task.categories)), np.int32),
        vocabularies=texts[: len(task.categories)],
        labels=labels,
        classes=texts[-1] if task.is_classification else (),
        withheld=np.empty(n, np.bool_),
    )


def _decode(piece: NDArray[Any], vocabularies: Sequence[Vocabulary], into: EventColumns) -> None:
    """Write tuples into columns of the same length."""
    into.at[:] = piece["at"] + POSTGRES_EPOCH
    into.known_at[:] = piece["known_at"] + POSTGRES_EPOCH
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
        into.labels[:] = piece["label"]


def read_fingerprints(
    connection: Connection, task_id: int, task: Task, cutoff: int, *, since: int, until: int | None = None
) -> dict[int, tuple[int, int]]:
    """Window -> numbers of its current rows and of all their revisions, as known at `cutoff`.

    Windows begin with the one at `since`, and end before `until` if given. Any append, correction or erasure changes
    one of the two numbers, so they show whether a cell is still up to date.
    """
    window = func.date_bin(from_micros(task.clock.window) - EPOCH, events.c.at, from_micros(since))
    is_current = events.c.superseded_at.is_(None) | (events.c.superseded_at > from_micros(cutoff))
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
