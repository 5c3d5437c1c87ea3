"""Events as COPY streams them: tuples of one width, which NumPy reads in place.

In PostgreSQL's binary format a tuple is a 16-bit count of fields, then per field a 32-bit length and its bytes. So rows
of fixed fields all have one size. Numbers travel as one array, which costs the server far less than single elements.
Texts have no fixed width, so they travel as 64-bit hashes. Vocabularies, which are read first, map hashes to texts. So
the server joins no rows, and Python looks into none.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import Cursor, sql

from contracts.task import Task
from store.events.row_forms import NUMBER

WITHHELD_BYTES = 13  # of 256: the fixed 5 % of events that no fit uses
_HEADER_BYTES = 19
_TRAILER = b"\xff\xff"
_ROWS_PER_PIECE = 8192
_ARRAY_HEAD = 5  # dimensions, whether any is null, type of an element, length, first index: 32 bits each


@dataclass(frozen=True)
class Vocabulary:
    """The texts of a column by code point. `hashes` are theirs, ascending; `places` holds the position of each text."""

    texts: tuple[str, ...]
    hashes: NDArray[np.int64]
    places: NDArray[np.int32]

    def positions(self, hashes: NDArray[Any]) -> NDArray[np.int32]:
        """The positions in `texts` of the texts of these hashes, `(n,)`."""
        native = hashes.astype(np.int64)
        found = np.searchsorted(self.hashes, native)
        assert (self.hashes[found] == native).all(), "a text was not there when the vocabulary was read"
        return self.places[found]


@dataclass(frozen=True)
class Survey:
    """The content of a COPY: its number of rows, and the vocabulary of each text column, all hashed with `seed`.

    all_known_at_once   whether every row was known when it happened
    any_superseded      whether any row was superseded
    """

    num_rows: int
    all_known_at_once: bool
    any_superseded: bool
    vocabularies: tuple[Vocabulary, ...]
    seed: int


def survey(cursor: Cursor[Any], task: Task, source: sql.Composable, allowed: sql.Composable) -> Survey:
    """Count the rows of a source that are allowed and find the texts that occur in them, in one scan."""
    columns = _text_columns(task)
    query = sql.SQL("SELECT {} FROM {} WHERE {} GROUP BY GROUPING SETS ({})").format(
        sql.SQL(", ").join(
            [sql.SQL("count(*), count(superseded_at), count(*) FILTER (WHERE known_at <> at)"), *columns]
        ),
        source,
        allowed,
        sql.SQL(", ").join([sql.SQL("()"), *(sql.SQL("({})").format(column) for column in columns)]),
    )
    num_rows = num_superseded = num_late = 0
    found: list[list[str]] = [[] for _ in columns]
    for *counts, texts in ((*row[:3], row[3:]) for row in cursor.execute(query)):
        # Texts are never null, so each group names its column; the group of all rows names none.
        column = next((j for j, text in enumerate(texts) if text is not None), None)
        if column is None:
            num_rows, num_superseded, num_late = counts
        else:
            found[column].append(texts[column])
    seed, hash_of = _hash_apart(cursor, sorted({text for texts in found for text in texts}))
    vocabularies = tuple(_vocabulary(sorted(texts), hash_of) for texts in found)
    return Survey(num_rows, num_late == 0, num_superseded > 0, vocabularies, seed)


class OddWidth(Exception):
    """Rows hold more or fewer numbers than their task has features of that kind: they were written past the API."""


def tuple_fields(task: Task, seed: int, *, has_odd_rows: bool = False) -> sql.Composed:
    """The fields that a COPY selects, in the order of `tuple_layout`.

    A label of a regression that is no number cannot be cast, and rows written past the API may hold more or fewer
    numbers than others. With `has_odd_rows`, such a label and a number that is not there are NaN, which takes longer.
    """
    fields: list[sql.Composable] = [
        sql.SQL("at, known_at, coalesce(superseded_at, 'infinity')"),
        sql.SQL("get_byte(sha256(convert_to(event_id, 'UTF8')), 0) < {}").format(sql.Literal(WITHHELD_BYTES)),
    ]
    if task.numbers:
        places = [sql.SQL("coalesce(numbers[{}], 'NaN')").format(j + 1) for j in range(len(task.numbers))]
        whole = sql.SQL("ARRAY[{}]::float8[]").format(sql.SQL(", ").join(places))
        fields.append(whole if has_odd_rows else sql.SQL("numbers"))
    fields += [sql.SQL("hashtextextended({}, {})").format(column, sql.Literal(seed)) for column in _text_columns(task)]
    if not task.is_classification:
        number = sql.SQL("CASE WHEN label ~ {} THEN label ELSE 'NaN' END::float8").format(sql.Literal(NUMBER))
        fields.append(number if has_odd_rows else sql.SQL("label::float8"))
    return sql.SQL(", ").join(fields)


def tuple_layout(task: Task) -> np.dtype[Any]:
    """One tuple: `at`, `known_at`, `superseded_at`, `withheld`, `numbers`, `hash0` …, and `label` of a regression."""
    columns: list[tuple[str, Any]] = [("at", ">i8"), ("known_at", ">i8"), ("superseded_at", ">i8"), ("withheld", "?")]
    if task.numbers:
        element = np.dtype([("length", ">i4"), ("value", ">f8")])
        columns.append(("numbers", [("head", ">i4", _ARRAY_HEAD), ("elements", element, len(task.numbers))]))
    columns += [(f"hash{j}", ">i8") for j in range(len(_text_columns(task)))]
    if not task.is_classification:
        columns.append(("label", ">f8"))
    dtype: list[tuple[str, Any]] = [("num_fields", ">i2")]
    for name, kind in columns:
        dtype += [(f"length_{name}", ">i4"), (name, kind)]
    return np.dtype(dtype)


def read_pieces(copy: Iterable[bytes | bytearray | memoryview], layout: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    """The tuples of a binary COPY, some thousands at a time. Raises OddWidth if one has another width.

    Each row is copied as it arrives. Thousands of rows held as the driver's objects make Python's garbage collector
    traverse the whole heap again and again. That costs nearly five times as much as the rest of reading.
    """
    stream = iter(copy)
    rest = b"".join(islice(stream, 1))[_HEADER_BYTES:]
    while first := b"".join(islice(stream, 1)):
        data = bytearray(rest + first)
        for row in islice(stream, _ROWS_PER_PIECE - 1):
            data += row
        num_tuples = len(data) // layout.itemsize
        piece = np.frombuffer(data, layout, num_tuples)
        _check_widths(piece, layout)
        yield piece
        rest = bytes(data[num_tuples * layout.itemsize :])
    if rest != _TRAILER:
        raise OddWidth


def _check_widths(piece: NDArray[Any], layout: np.dtype[Any]) -> None:
    names = [name for name in layout.names or () if f"length_{name}" in (layout.names or ())]
    are_whole = [piece["num_fields"] == len(names)]
    are_whole += [piece[f"length_{name}"] == layout[name].itemsize for name in names]
    if not np.all(are_whole):
        raise OddWidth


def _text_columns(task: Task) -> list[sql.Composable]:
    """Categories in the task's order, then the label of a classification."""
    columns: list[sql.Composable] = [
        sql.SQL("coalesce(categories[{}], '')").format(sql.Literal(j + 1)) for j in range(len(task.categories))
    ]
    return [*columns, sql.SQL("label")] if task.is_classification else columns


def _hash_apart(cursor: Cursor[Any], texts: Sequence[str]) -> tuple[int, dict[str, int]]:
    """The first seed with which no two of these texts have the same hash, and the hashes."""
    for seed in count():
        query = "SELECT text, hashtextextended(text, %s) FROM unnest(%s::text[]) AS given(text)"
        hash_of = dict(cursor.execute(query, (seed, list(texts))))
        if len(set(hash_of.values())) == len(texts):
            return seed, hash_of
    raise AssertionError("unreachable")


def _vocabulary(texts: Sequence[str], hash_of: dict[str, int]) -> Vocabulary:
    hashes = np.array([hash_of[text] for text in texts], np.int64)
    order = np.argsort(hashes)
    return Vocabulary(tuple(texts), hashes[order], order.astype(np.int32))
