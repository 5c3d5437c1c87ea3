"""Events as arrays: what a fit reads, as it was known at an origin.

One read brings every revision that a cutoff may see; each origin is then cut from the same arrays.
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
from sqlalchemy import Connection, func, select

from contracts.clock import EPOCH, from_micros, to_micros
from contracts.database import events, schemas
from contracts.task import Task

WITHHELD_BYTES = 13  # of 256: the fixed 5 % of events that no fit ever uses
NEVER = np.iinfo(np.int64).max
_POSTGRES_EPOCH = 946_684_800_000_000


@dataclass(frozen=True)
class EventColumns:
    """Events as arrays, one row each, in the order of (at, event_id).

    at, known_at, superseded_at  (n,)   int64    microseconds; superseded_at is NEVER while current
    numbers     (n, p)  float64  NaN where missing
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
        """The same columns for some of the rows, or positions of rows; vocabularies and classes stay whole."""
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
        """What a model fitted at `origin` may use: happened before it, known by it, not yet superseded at it."""
        return self.select((self.at < origin) & (self.known_at <= origin) & (self.superseded_at > origin))

    def in_window(self, start: int, end: int) -> "EventColumns":
        """The current events of `[start, end)`."""
        return self.select((self.at >= start) & (self.at < end) & (self.superseded_at == NEVER))

    @cached_property
    def digest(self) -> str:
        """SHA-256 over every value of these rows: the same whatever else was read with them."""
        coded = [_used(positions, known) for positions, known in zip(self.categories.T, self.vocabularies, strict=True)]
        if self.classes:
            coded.append(_used(self.labels.astype(np.int32), self.classes))
        sha = hashlib.sha256(repr([texts for _, texts in coded]).encode())
        values = [self.at, self.known_at, self.numbers, self.withheld, *(positions for positions, _ in coded)]
        for column in values if self.classes else [*values, self.labels]:
            sha.update(np.ascontiguousarray(column).tobytes())
        return sha.hexdigest()


def _used(positions: NDArray[np.int32], known: Sequence[str]) -> tuple[NDArray[np.int64], list[str]]:
    """The texts that occur, and each row's position among them."""
    occurs = np.bincount(positions, minlength=len(known)) > 0
    return (np.cumsum(occurs) - 1)[positions], list(compress(known, occurs))


def read_events(
    connection: Connection, task_id: int, task: Task, cutoff: int, *, since: int | None = None, until: int | None = None
) -> EventColumns:
    """Every revision that happened before `cutoff` and was known by it, from one snapshot.

    With `since` and `until` only those that happened in `[since, until)`; moments in microseconds. The caller's
    transaction should be REPEATABLE READ. Rows come through COPY as fixed-width binary tuples, which NumPy reads in
    place: categories and classes travel as positions in vocabularies that are read first.
    """
    allowed = sql.SQL(
        "events.task_id = {task_id} AND at < {cutoff} AND known_at <= {cutoff} AND row_schema = {row_schema}"
    ).format(
        task_id=sql.Literal(task_id),
        cutoff=sql.Literal(from_micros(cutoff)),
        row_schema=sql.Literal(task.row_schema),
    )
    if since is not None:
        allowed += sql.SQL(" AND at >= {}").format(sql.Literal(from_micros(since)))
    if until is not None:
        allowed += sql.SQL(" AND at < {}").format(sql.Literal(from_micros(until)))
    source = sql.SQL("events JOIN schemas ON schemas.id = events.schema_id")
    texts: list[sql.Composable] = [
        sql.SQL("categories[{}]").format(sql.Literal(j + 1)) for j in range(len(task.categories))
    ]
    if task.is_classification:
        texts.append(sql.SQL("label"))
    driver = connection.connection.driver_connection
    assert driver is not None
    with driver.cursor() as cursor:
        vocabularies = [
            tuple(
                row[0]
                for row in cursor.execute(
                    sql.SQL('SELECT DISTINCT {} COLLATE "C" FROM {} WHERE {} ORDER BY 1').format(
                        column, source, allowed
                    )
                )
            )
            for column in texts
        ]
        layout, fields, joins = _copy_layout(task, texts, vocabularies)
        query = sql.SQL(
            'COPY (SELECT {} FROM {} {} WHERE {} ORDER BY at, event_id COLLATE "C", events.revision)'
            " TO STDOUT (FORMAT BINARY)"
        ).format(sql.SQL(", ").join(fields), source, sql.SQL(" ").join(joins), allowed)
        with cursor.copy(query) as copy:
            stream = b"".join(copy)
    return _parse_copy(task, stream, layout, vocabularies)


def read_fingerprints(
    connection: Connection, task_id: int, task: Task, cutoff: int, *, since: int
) -> dict[int, tuple[int, int]]:
    """Window -> its current rows and all their revisions, as known at `cutoff`, of windows from `since` on.

    Any append or correction changes one of the two, so they tell whether a cell still stands on what is known.
    """
    window = func.date_bin(from_micros(task.clock.window) - EPOCH, events.c.at, from_micros(since))
    is_current = events.c.superseded_at.is_(None) | (events.c.superseded_at > from_micros(cutoff))
    rows = connection.execute(
        select(window, func.count().filter(is_current), func.count())
        .join(schemas, schemas.c.id == events.c.schema_id)
        .where(
            events.c.task_id == task_id,
            events.c.at >= from_micros(since),
            events.c.at < from_micros(cutoff),
            events.c.known_at <= from_micros(cutoff),
            schemas.c.row_schema == task.row_schema,
        )
        .group_by(window)
    )
    return {to_micros(start): (num_rows, num_revisions) for start, num_rows, num_revisions in rows}


def _copy_layout(
    task: Task, texts: Sequence[sql.Composable], vocabularies: Sequence[tuple[str, ...]]
) -> tuple[np.dtype[Any], list[sql.Composable], list[sql.Composable]]:
    """The tuple's dtype (a 16-bit field count, then per field a 32-bit length and its bytes), its fields and joins."""
    columns: list[tuple[str, str, sql.Composable]] = [
        ("at", ">i8", sql.SQL("at")),
        ("known_at", ">i8", sql.SQL("known_at")),
        ("superseded_at", ">i8", sql.SQL("coalesce(superseded_at, 'infinity')")),
        (
            "withheld",
            "?",
            sql.SQL("get_byte(sha256(convert_to(event_id, 'UTF8')), 0) < {}").format(sql.Literal(WITHHELD_BYTES)),
        ),
    ]
    columns += [
        (f"number{j}", ">f8", sql.SQL("numbers[{}]").format(sql.Literal(j + 1))) for j in range(len(task.numbers))
    ]
    joins: list[sql.Composable] = []
    for j, (column, vocabulary) in enumerate(zip(texts, vocabularies, strict=True)):
        name = sql.Identifier(f"vocabulary{j}")
        columns.append((f"text{j}", ">i8", sql.SQL("{}.position").format(name)))
        joins.append(
            sql.SQL("JOIN unnest({}::text[]) WITH ORDINALITY AS {}(value, position) ON {}.value = {}").format(
                sql.Literal(list(vocabulary)), name, name, column
            )
        )
    if not task.is_classification:
        columns.append(("label", ">f8", sql.SQL("label::float8")))
    dtype: list[tuple[str, str]] = [("num_fields", ">i2")]
    for name_, kind, _ in columns:
        dtype += [(f"length_{name_}", ">i4"), (name_, kind)]
    return np.dtype(dtype), [field for _, _, field in columns], joins


def _parse_copy(
    task: Task, stream: bytes, layout: np.dtype[Any], vocabularies: Sequence[tuple[str, ...]]
) -> EventColumns:
    header, trailer = 19, 2
    count = (len(stream) - header - trailer) // layout.itemsize
    rows = np.frombuffer(stream, dtype=layout, count=count, offset=header)
    num_categories = len(task.categories)

    def moments(name: str) -> NDArray[np.int64]:
        micros = rows[name].astype(np.int64)
        return np.where(micros == NEVER, micros, micros + _POSTGRES_EPOCH)

    def stack(names: list[str], dtype: type[Any]) -> NDArray[Any]:
        columns = np.empty((count, len(names)), dtype)
        for j, name in enumerate(names):
            columns[:, j] = rows[name]
        return columns

    if task.is_classification:
        classes = vocabularies[num_categories]
        labels: NDArray[Any] = rows[f"text{num_categories}"].astype(np.int32) - 1
    else:
        classes, labels = (), rows["label"].astype(np.float64)
    return EventColumns(
        at=moments("at"),
        known_at=moments("known_at"),
        superseded_at=moments("superseded_at"),
        numbers=stack([f"number{j}" for j in range(len(task.numbers))], np.float64),
        categories=stack([f"text{j}" for j in range(num_categories)], np.int32) - 1,
        vocabularies=tuple(vocabularies[:num_categories]),
        labels=labels,
        classes=classes,
        withheld=rows["withheld"].astype(np.bool_),
    )


def find_newest(connection: Connection, task_id: int, *, before: int) -> int | None:
    """When the newest event before a moment happened, both in microseconds; None where there is none."""
    newest = connection.execute(
        select(func.max(events.c.at)).where(
            events.c.task_id == task_id, events.c.superseded_at.is_(None), events.c.at < from_micros(before)
        )
    ).scalar_one()
    return None if newest is None else to_micros(newest)
