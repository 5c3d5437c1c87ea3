"""Columns of many rows: the struct of a task's features, and the values of structs laid out as arrays.

msgspec checks single values while it decodes. The rest is checked here on whole columns, so that no row of many costs
Python a step of its own. Functions raise ValueError without words; `service.validation.explainer` finds those.
"""

import math
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple
from numpy.typing import NDArray

from contracts.spec.spec_values import EXACT_INTEGER
from contracts.task import Feature, Task, is_numeric
from contracts.truth import spell_code
from service.validation.lossless_json import count_character, without_escapes
from service.validation.timestamps import parse_moments
from service.validation.values import Code, Number, Text, are_printable

# What decoding raises for a body that breaks a rule.
REFUSALS = (msgspec.MsgspecError, ValueError, RecursionError)
_Texts = TypeVar("_Texts", bound=Collection[str])
_NO_TEXTS = frozenset({bool, int})


@dataclass(frozen=True, slots=True)
class FeatureColumns:
    """Numbers `(n, p)` with NaN and `n·q` categories, row after row, with "" where missing.

    `num_strings` counts the names and texts that the rows had in JSON.
    """

    numbers: NDArray[np.float64]
    categories: Sequence[str]
    num_strings: int


@dataclass(frozen=True)
class FeatureLayout:
    """The struct of a task's features, numbers before categories, and which of them may be missing.

    `integers` are the places of integers among the numbers.
    """

    struct: type[msgspec.Struct]
    numbers: Sequence[Feature]
    categories: Sequence[Feature]
    integers: Sequence[int]

    def lay_out(self, rows: Sequence[msgspec.Struct]) -> FeatureColumns:
        """The columns of rows. Raises ValueError if an integer has a fraction, or a category a control character."""
        width = len(self.numbers) + len(self.categories)
        values = list(chain.from_iterable(map(astuple, rows)))
        columns: list[Sequence[Any]] = [values[place::width] for place in range(width)]
        num_strings = len(values)
        for feature, column in zip(self.numbers, columns, strict=False):
            if feature.optional:
                num_strings -= column.count(math.nan)  # the default of an absent number: no JSON number is NaN
        categories: list[Sequence[str]] = []
        for feature, given in zip(self.categories, columns[len(self.numbers) :], strict=True):
            distinct = {*given}
            column, num_codes = spell_codes(given, distinct)
            num_strings -= num_codes
            present = [text for text in column if isinstance(text, str)] if feature.optional else column
            require_printable([text for text in distinct if isinstance(text, str)])
            num_strings += len(present) - (column.count(UNSET) if feature.optional else 0)
            all_present = len(present) == len(column)
            categories.append(column if all_present else [text if isinstance(text, str) else "" for text in column])
        numbers = np.array(columns[: len(self.numbers)], np.float64).reshape(len(self.numbers), len(rows))
        for place in self.integers:
            require_integers(numbers[place])
        # Plus zero: of minus zero, zero.
        return FeatureColumns(
            np.ascontiguousarray(numbers.T) + 0.0, list(chain.from_iterable(zip(*categories, strict=True))), num_strings
        )


def compile_features(task: Task) -> FeatureLayout:
    """The layout of a task's features. Fields are numbered, because Python may reserve the name of a feature."""
    ordered = [*task.numbers, *task.categories]
    struct = msgspec.defstruct(
        "Features",
        [_field(f"f{place}", feature) for place, feature in enumerate(ordered)],
        rename={f"f{place}": feature.name for place, feature in enumerate(ordered)},
        forbid_unknown_fields=True,
        gc=False,
        kw_only=True,
    )
    return FeatureLayout(struct, task.numbers, task.categories, find_integers(task))


def _field(name: str, feature: Feature) -> tuple[str, Any] | tuple[str, Any, Any]:
    """A field's name, its type and, if the feature is optional, its default."""
    if is_numeric(feature.kind):
        kind: Any = bool if feature.kind == "boolean" else Number
        return (name, kind | None, math.nan) if feature.optional else (name, kind)
    return (name, Text | bool | Code | None | UnsetType, UNSET) if feature.optional else (name, Text | bool | Code)


def find_integers(task: Task) -> tuple[int, ...]:
    """The places of integers among a task's numbers."""
    return tuple(place for place, feature in enumerate(task.numbers) if feature.kind == "integer")


def require_integers(numbers: NDArray[np.float64]) -> None:
    """Raise ValueError if one of the numbers, of which NaN is missing, has a fraction or is beyond ±2^53."""
    given = numbers[~np.isnan(numbers)]
    if (np.trunc(given) != given).any() or (np.abs(given) > EXACT_INTEGER).any():
        raise ValueError


def spell_codes(column: Sequence[Any], distinct: AbstractSet[Any]) -> tuple[Sequence[Any], int]:
    """A column of categories or classes with booleans and whole numbers as texts, and how many of both it had.

    `distinct` are its values, each once.
    """
    if _NO_TEXTS.isdisjoint(map(type, distinct)):
        return column, 0
    return [*map(spell_code, column)], sum(isinstance(value, int) for value in column)


def lay_out_moments(given: Sequence[str | UnsetType | None]) -> tuple[NDArray[np.int64], NDArray[np.bool_], int]:
    """Moments `(n,)` with 0 where missing, which of them are given, and the number of their names and texts in JSON."""
    num_absent = given.count(UNSET)
    if num_absent == len(given):
        return np.zeros(len(given), np.int64), np.zeros(len(given), np.bool_), 0
    texts = [moment for moment in given if isinstance(moment, str)]
    num_strings = len(given) - num_absent + len(texts)
    if len(texts) == len(given):
        return parse_moments(texts), np.ones(len(given), np.bool_), num_strings
    moments, is_given = np.zeros(len(given), np.int64), np.array([isinstance(moment, str) for moment in given])
    moments[is_given] = parse_moments(texts)
    return moments, is_given, num_strings


def require_printable(texts: _Texts) -> _Texts:
    """The same texts. Raises ValueError if one holds a control character."""
    if not are_printable(texts):
        raise ValueError
    return texts


def require_strings(bodies: Sequence[bytes], num_strings: int) -> None:
    """Raise ValueError unless JSON bodies hold this many names and texts; they hold more if a name is given twice."""
    if count_character(without_escapes(b"\n".join(bodies)), '"') != 2 * num_strings:
        raise ValueError
