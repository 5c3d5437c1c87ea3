"""Bodies of POST /predict: decoded into structs that are compiled from a task, and laid out as columns.

Nothing else accepts questions of a body. `service.validation.explainer` says what is wrong with a refused body.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from contracts.task import Task
from service.validation.columns import REFUSALS, FeatureLayout, compile_features, lay_out_moments, require_strings

# The field of a row's moment: the only one, that of one of many rows, or one in the list that goes with one row.
AT_OF_QUERY, AT_OF_ROW, AT_OF_MANY = "at", "rows[{}].at", "at[{}]"


class Row(msgspec.Struct, frozen=True, gc=False):
    """The input of a graph. A missing number is NaN, a missing category is ""; `at` is None for now."""

    at: int | None
    numbers: tuple[float, ...]
    categories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Questions:
    """Rows as columns: `at` `(n,)`, valid where `has_at`, numbers `(n, p)` and categories `(n, q)`.

    `at_field` is the field of a row's moment in the request: one of the three above.
    """

    at: NDArray[np.int64]
    has_at: NDArray[np.bool_]
    numbers: NDArray[np.float64]
    categories: NDArray[np.object_]
    at_field: str

    def __len__(self) -> int:
        return len(self.at)

    def moments(self, now: int) -> NDArray[np.int64]:
        """The moment of each row `(n,)`: now where it has none."""
        return np.where(self.has_at, self.at, now)


def lay_out_rows(rows: Sequence[Row], at_field: str) -> Questions:
    """Single rows as columns."""
    return Questions(
        np.array([row.at or 0 for row in rows], np.int64),
        np.array([row.at is not None for row in rows], np.bool_),
        np.array([row.numbers for row in rows], np.float64),
        np.array([row.categories for row in rows], object),
        at_field,
    )


@dataclass(frozen=True)
class QuestionDecoder:
    """Decodes bodies of one task's questions."""

    features: FeatureLayout
    json: msgspec.json.Decoder[Any]

    def decode(self, body: bytes) -> Questions | None:
        """The questions of a body; None if it breaks a rule."""
        try:
            questions, num_strings = self._lay_out(self.json.decode(body))
            require_strings([body], num_strings)
        except REFUSALS:
            return None
        return questions

    def _lay_out(self, given: Any) -> tuple[Questions, int]:
        """The columns of a body, and the number of its names and texts in JSON."""
        if given.rows is UNSET and given.features is not UNSET:
            if isinstance(given.at, list):
                return self._lay_out_moments(given.features, given.at)
            return self._lay_out_one_row(given.features, given.at)
        if given.rows is not UNSET and given.features is UNSET and given.at is UNSET:
            return self._lay_out_rows(given.rows)
        raise ValueError

    def _lay_out_one_row(self, features: msgspec.Struct, moment: str | UnsetType | None) -> tuple[Questions, int]:
        at, has_at, num_strings_of_at = lay_out_moments([moment])
        row = self.features.lay_out([features])
        num_strings = 1 + num_strings_of_at + row.num_strings  # a name of the body
        return Questions(at, has_at, row.numbers, _as_table(row.categories, 1), AT_OF_QUERY), num_strings

    def _lay_out_moments(self, features: msgspec.Struct, moments: Sequence[str]) -> tuple[Questions, int]:
        at, has_at, _ = lay_out_moments(moments)
        row = self.features.lay_out([features])
        numbers, categories = row.numbers.repeat(len(at), 0), _as_table(row.categories, 1).repeat(len(at), 0)
        num_strings = 2 + len(at) + row.num_strings  # two names of the body
        return Questions(at, has_at, numbers, categories, AT_OF_MANY), num_strings

    def _lay_out_rows(self, rows: Sequence[Any]) -> tuple[Questions, int]:
        at, has_at, num_strings_of_at = lay_out_moments([row.at for row in rows])
        columns = self.features.lay_out([row.features for row in rows])
        num_strings = 1 + len(at) + num_strings_of_at + columns.num_strings  # a name of the body and one of each row
        categories = _as_table(columns.categories, len(at))
        return Questions(at, has_at, columns.numbers, categories, AT_OF_ROW), num_strings


def _as_table(categories: Sequence[str], num_rows: int) -> NDArray[np.object_]:
    return np.array(categories, object).reshape(num_rows, len(categories) // max(num_rows, 1))


def compile_question_decoder(task: Task) -> QuestionDecoder:
    """The decoder of a task's questions."""
    features = compile_features(task)
    row = msgspec.defstruct(
        "GivenRow",
        [("features", features.struct), ("at", str | None | UnsetType, UNSET)],
        forbid_unknown_fields=True,
        gc=False,
    )
    body = msgspec.defstruct(
        "GivenQuestions",
        [
            ("rows", list[row] | UnsetType, UNSET),  # type: ignore[valid-type]  # made at run time
            ("features", features.struct | UnsetType, UNSET),
            ("at", list[str] | str | None | UnsetType, UNSET),
        ],
        forbid_unknown_fields=True,
        gc=False,
    )
    return QuestionDecoder(features, msgspec.json.Decoder(body))
