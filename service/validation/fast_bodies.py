"""The quick way to accept questions: whole bodies decoded into structs of a task and laid out as columns.

A body is accepted here only where nothing about it is doubtful; in any doubt the answer is None, and
`service.validation.rules`
judges it value by value and finds the words. What is accepted here is accepted there with the same values. Events are
laid out in `service.validation.fast_events`, query strings read in `service.validation.fast_query`.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from contracts.task import Feature, Task
from service.validation.lossless_json import without_escapes
from service.validation.timestamps import parse_moments
from service.validation.values import EXACT_INTEGER, are_texts

# Where the moment of a row stands: in a query, in the row, or among the many of one row; by its place in a body.
AT_OF_QUERY, AT_OF_ROW, AT_OF_MANY = "at", "rows[{}].at", "at[{}]"
_Texts = TypeVar("_Texts", bound=Collection[str])


class Row(msgspec.Struct, frozen=True, gc=False):
    """What a graph is asked: numbers with NaN and categories with "" where missing; `at` is None for now."""

    at: int | None
    numbers: tuple[float, ...]
    categories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Questions:
    """Rows as columns: `at` `(n,)`, of use where `has_at`, numbers `(n, p)` and categories `(n, q)`.

    `at_field` is where the moment of a row stands in the request: one of the three above.
    """

    at: NDArray[np.int64]
    has_at: NDArray[np.bool_]
    numbers: NDArray[np.float64]
    categories: NDArray[np.object_]
    at_field: str

    def __len__(self) -> int:
        return len(self.at)


def lay_out_rows(rows: Sequence[Row], at_field: str) -> Questions:
    """Rows that were judged one by one, as columns."""
    return Questions(
        np.array([row.at or 0 for row in rows], np.int64),
        np.array([row.at is not None for row in rows], np.bool_),
        np.array([row.numbers for row in rows], np.float64),
        np.array([row.categories for row in rows], object),
        at_field,
    )


class Doubt(Exception):
    """Something that only the judge in `service.validation.rules` can decide."""


# What a decoder or a law says of a body about which there is doubt.
DOUBTFUL = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, Doubt)


@dataclass(frozen=True)
class RowStructs:
    """The decoder of one task's bodies, and what is needed to lay their structs out as columns."""

    num_numbers: int
    questions: msgspec.json.Decoder[Any]

    def accept_questions(self, body: bytes) -> Questions | None:
        """The questions of a body of /predict; None where the body must be judged."""
        try:
            questions, quotes = self._lay_out(self.questions.decode(body))
        except DOUBTFUL:
            return None
        return questions if quotes == count_quotes(body) else None

    def _lay_out(self, given: Any) -> tuple[Questions, int]:
        """The columns of a body, and how many quotation marks its names and texts take."""
        if given.rows is UNSET and given.features is not UNSET and given.at is not UNSET:
            at, has_at, quotes_of_at = lay_out_moments(given.at)
            numbers, categories, quotes = lay_out_features([given.features], self.num_numbers)
            # The body's two names; a moment has none of its own.
            quotes += 4 + quotes_of_at - 2 * len(at)
            numbers, table = numbers.repeat(len(at), 0), _as_table(categories, 1).repeat(len(at), 0)
            return Questions(at, has_at, numbers, table, AT_OF_MANY), quotes
        if given.rows is not UNSET and given.features is UNSET and given.at is UNSET:
            at, has_at, quotes_of_at = lay_out_moments([one.at for one in given.rows])
            numbers, categories, quotes = lay_out_features([one.features for one in given.rows], self.num_numbers)
            # The body's one name, and one of each row's features.
            quotes += 2 + 2 * len(at) + quotes_of_at
            return Questions(at, has_at, numbers, _as_table(categories, len(at)), AT_OF_ROW), quotes
        raise Doubt


def compile_structs(task: Task) -> RowStructs:
    """Structs and decoders for the rows of a task."""
    features = compile_features(task)
    row = msgspec.defstruct(
        "GivenRow",
        [("features", features), ("at", str | None | UnsetType, UNSET)],
        forbid_unknown_fields=True,
        gc=False,
    )
    question = msgspec.defstruct(
        "Question",
        [
            ("rows", list[row] | UnsetType, UNSET),  # type: ignore[valid-type]
            ("features", features | UnsetType, UNSET),
            ("at", list[str] | UnsetType, UNSET),
        ],
        forbid_unknown_fields=True,
        gc=False,
    )
    return RowStructs(len(task.numbers), msgspec.json.Decoder(question))


def compile_features(task: Task) -> type[msgspec.Struct]:
    """The struct of a row's features, numbers before categories; a feature's name need not be one that Python takes."""
    ordered = [*task.numbers, *task.categories]
    return msgspec.defstruct(
        "Features",
        [_field(f"f{place}", feature) for place, feature in enumerate(ordered)],
        rename={f"f{place}": feature.name for place, feature in enumerate(ordered)},
        forbid_unknown_fields=True,
        gc=False,
        kw_only=True,
    )


def _field(name: str, feature: Feature) -> tuple[str, Any] | tuple[str, Any, Any]:
    """A name, its type and, where it may be absent, what then stands for it: no JSON is NaN, so NaN was absent."""
    if feature.kind == "number":
        return (name, float | None, math.nan) if feature.optional else (name, float)
    return (name, str | None | UnsetType, UNSET) if feature.optional else (name, str)


def lay_out_moments(given: Sequence[str | UnsetType | None]) -> tuple[NDArray[np.int64], NDArray[np.bool_], int]:
    """Moments `(n,)`, 0 where none is given, which are given, and the quotation marks of their names and texts."""
    said = [moment for moment in given if isinstance(moment, str)]
    quotes = 2 * (len(given) - given.count(UNSET)) + 2 * len(said)
    if len(said) == len(given):
        return parse_moments(said), np.ones(len(given), np.bool_), quotes
    moments, says = np.zeros(len(given), np.int64), np.array([isinstance(moment, str) for moment in given])
    moments[says] = parse_moments(said)
    return moments, says, quotes


def lay_out_features(
    given: Sequence[msgspec.Struct], num_numbers: int
) -> tuple[NDArray[np.float64], Sequence[str], int]:
    """Numbers `(n, p)` with NaN and categories row after row with "" where missing, and the quotation marks of all."""
    values = [msgspec.structs.astuple(one) for one in given]
    numbers, num_names = _lay_out_numbers([one[:num_numbers] for one in values])
    categories, quotes = _lay_out_categories([one[num_numbers:] for one in values])
    return numbers, categories, 2 * num_names + quotes


def _as_table(categories: Sequence[str], num_rows: int) -> NDArray[np.object_]:
    return np.array(categories, object).reshape(num_rows, -1)


def _lay_out_numbers(rows: Sequence[Sequence[float | None]]) -> tuple[NDArray[np.float64], int]:
    """Numbers `(n, p)`, NaN where null or absent, and how many of them are named."""
    flat = list(chain.from_iterable(rows))
    numbers = require_exact(np.array(flat, np.float64)).reshape(len(rows), -1)
    num_missing = int(np.isnan(numbers).sum())
    return numbers, len(flat) - num_missing + (flat.count(None) if num_missing else 0)


def _lay_out_categories(rows: Sequence[Sequence[str | UnsetType | None]]) -> tuple[Sequence[str], int]:
    """Categories row after row, "" where null or absent, and the quotation marks of their names and texts."""
    flat = list(chain.from_iterable(rows))
    present = [text for text in flat if isinstance(text, str)]
    require_texts({*present})
    quotes = 2 * (len(flat) - flat.count(UNSET)) + 2 * len(present)
    return present if len(present) == len(flat) else [text if isinstance(text, str) else "" for text in flat], quotes


def require_texts(texts: _Texts) -> _Texts:
    """The same texts. Raises Doubt where one is none that a store can hold."""
    if not are_texts(texts):
        raise Doubt
    return texts


def require_exact(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers without minus zero. Raises Doubt for what may have been a large integer, rounded already."""
    if (np.abs(numbers) >= EXACT_INTEGER).any():
        raise Doubt
    return numbers + 0.0


def count_quotes(body: bytes) -> int:
    """How many quotation marks delimit names and texts: more than the values explain where a name is given twice."""
    return without_escapes(body).count(b'"')
