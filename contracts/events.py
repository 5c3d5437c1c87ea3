"""The event store: append labelled rows once, read what was known as of an origin.

Rows come in with their content checked (`service.rows`) and go out as arrays. Append-only: a correction closes a
revision and adds one, so a past training set can be rebuilt.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from sqlalchemy import Connection, text

from contracts.catalog import Schema
from contracts.clock import from_micros
from contracts.database import rejected_events
from contracts.task import Task

Outcome = Literal["created", "duplicate", "conflict"]

NUM_ROWS_PER_STATEMENT = 1000
WITHHELD_BYTES = 13  # of 256: the fixed 5 % of events that no fit ever uses
NEVER = np.iinfo(np.int64).max
_POSTGRES_EPOCH = 946_684_800_000_000


@dataclass(frozen=True)
class Event:
    """One checked row. Moments in microseconds; a missing number is NaN, a missing category is ""."""

    event_id: str
    at: int
    known_at: int
    numbers: tuple[float, ...]
    categories: tuple[str, ...]
    label: str


@dataclass(frozen=True)
class Rejection:
    """One refused row: why, and what was sent, so that its producer can mend and resend it."""

    event_id: str | None
    reason: str
    payload: str


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

    def select(self, rows: NDArray[np.bool_] | slice) -> "EventColumns":
        """The same columns for some of the rows; vocabularies and classes stay whole."""
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
        """SHA-256 over every value, so that two reads can be told apart."""
        sha = hashlib.sha256(repr((self.vocabularies, self.classes)).encode())
        for column in (self.at, self.known_at, self.numbers, self.categories, self.labels, self.withheld):
            sha.update(np.ascontiguousarray(column).tobytes())
        return sha.hexdigest()


def append_events(
    connection: Connection, schema: Schema, batch: Sequence[Event], received_at: datetime
) -> list[Outcome]:
    """Store rows that are new; say of each: `created`, `duplicate` of the same content, or `conflict`.

    Of two rows with one `event_id` in a batch the first counts.
    """
    first: dict[str, Event] = {}
    for event in batch:
        first.setdefault(event.event_id, event)
    # Every transaction takes its rows in the same order, so that two batches wait for each other but never cross.
    unique = [first[event_id] for event_id in sorted(first)]
    outcomes: dict[str, Outcome] = {}
    for start in range(0, len(unique), NUM_ROWS_PER_STATEMENT):
        outcomes |= _append_unique(connection, schema, unique[start : start + NUM_ROWS_PER_STATEMENT], received_at)
    seen: set[str] = set()
    result: list[Outcome] = []
    for event in batch:
        if event.event_id in seen:
            result.append("duplicate" if _same(event, first[event.event_id]) else "conflict")
        else:
            seen.add(event.event_id)
            result.append(outcomes[event.event_id])
    return result


def _same(one: Event, other: Event) -> bool:
    """Equality with NaN equal to NaN, as PostgreSQL compares."""
    return one == other or repr(one) == repr(other)


def _append_unique(
    connection: Connection, schema: Schema, batch: Sequence[Event], received_at: datetime
) -> dict[str, Outcome]:
    """One statement for a batch without repeated ids. A row that a concurrent insert won is asked for again."""
    rows = connection.execute(
        _APPEND,
        {
            "task_id": schema.task_id,
            "schema_id": schema.schema_id,
            "received_at": received_at,
            "ids": [event.event_id for event in batch],
            "ats": [from_micros(event.at) for event in batch],
            "known_ats": [from_micros(event.known_at) for event in batch],
            "labels": [event.label for event in batch],
            "numbers": list(chain.from_iterable(event.numbers for event in batch)),
            "categories": list(chain.from_iterable(event.categories for event in batch)),
            "num_numbers": len(schema.task.numbers),
            "num_categories": len(schema.task.categories),
        },
    ).all()
    outcomes: dict[str, Outcome] = {}
    lost: list[Event] = []
    for position, created, same in rows:
        event = batch[position - 1]
        if created:
            outcomes[event.event_id] = "created"
        elif same is None:
            lost.append(event)
        else:
            outcomes[event.event_id] = "duplicate" if same else "conflict"
    return outcomes | (_append_unique(connection, schema, lost, received_at) if lost else {})


_APPEND = text("""
    WITH input AS (
        SELECT n, event_id, at, known_at, label,
               (CAST(:numbers AS float8[]))[(n-1) * :num_numbers + 1 : n * :num_numbers] AS numbers,
               (CAST(:categories AS text[]))[(n-1) * :num_categories + 1 : n * :num_categories] AS categories
        FROM unnest(CAST(:ids AS text[]), CAST(:ats AS timestamptz[]), CAST(:known_ats AS timestamptz[]),
                    CAST(:labels AS text[])) WITH ORDINALITY AS given(event_id, at, known_at, label, n)
    ), created AS (
        INSERT INTO events
            (task_id, event_id, revision, at, known_at, received_at, schema_id, numbers, categories, label)
        SELECT :task_id, event_id, 1, at, known_at, :received_at, :schema_id, numbers, categories, label FROM input
        ORDER BY event_id COLLATE "C"
        ON CONFLICT DO NOTHING
        RETURNING event_id
    )
    SELECT input.n, created.event_id IS NOT NULL, stored.same
    FROM input
    LEFT JOIN created USING (event_id)
    LEFT JOIN LATERAL (
        SELECT bool_or(
            (events.at, events.known_at, events.numbers, events.categories, events.label)
            IS NOT DISTINCT FROM (input.at, input.known_at, input.numbers, input.categories, input.label)
        ) AS same
        FROM events WHERE events.task_id = :task_id AND events.event_id = input.event_id
    ) AS stored ON true
""")


def record_rejections(
    connection: Connection, task_id: int, rejections: Sequence[Rejection], received_at: datetime
) -> None:
    """Keep refused rows; what PostgreSQL's text cannot hold (NUL, lone surrogates) is escaped."""
    if rejections:
        connection.execute(
            rejected_events.insert(),
            [
                {
                    "task_id": task_id,
                    "received_at": received_at,
                    "event_id": None if rejection.event_id is None else _storable(rejection.event_id),
                    "reason": _storable(rejection.reason),
                    "payload": _storable(rejection.payload),
                }
                for rejection in rejections
            ],
        )


def _storable(words: str) -> str:
    return words.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def read_events(connection: Connection, task_id: int, task: Task, cutoff: int) -> EventColumns:
    """Every revision that happened before `cutoff` and was known by it, from one snapshot.

    The caller's transaction should be REPEATABLE READ. Rows come through COPY as fixed-width binary tuples, which
    NumPy reads in place: categories and classes travel as positions in vocabularies that are read first.
    """
    allowed = sql.SQL(
        "events.task_id = {task_id} AND at < {cutoff} AND known_at <= {cutoff} AND row_schema = {row_schema}"
    ).format(
        task_id=sql.Literal(task_id),
        cutoff=sql.Literal(from_micros(cutoff)),
        row_schema=sql.Literal(task.row_schema),
    )
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
