"""The quick way to accept questions: msgspec structs and decoders compiled from a task.

A body is accepted here only where nothing about it is doubtful; in any doubt the answer is None, and `service.rows`
judges it value by value and finds the words. What is accepted here is accepted there with the same values. Events have
theirs in `service.event_structs`, query strings in `service.query_structs`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from contracts.clock import parse_moment
from contracts.spec import MAX_TEXT, PRINTABLE
from contracts.task import Feature, Task
from service.bodies import without_escapes
from service.literals import EXACT_INTEGER

_Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT, pattern=PRINTABLE)]
# What may have been a large integer, rounded already, is in doubt.
NUMBER = Annotated[float, Meta(gt=-EXACT_INTEGER, lt=EXACT_INTEGER)]
AT_OF_ROW, AT_OF_MANY = "rows[{}].at", "at[{}]"


class Row(msgspec.Struct, frozen=True, gc=False):
    """What a graph is asked: numbers with NaN and categories with "" where missing; `at` is None for now."""

    at: int | None
    numbers: tuple[float, ...]
    categories: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Questions:
    """The rows of a body of /predict; `at_field` is where the moment of a row stands in it, by the row's place."""

    rows: list[Row]
    at_field: str


class Doubt(Exception):
    """Something that only the judge in `service.rows` can decide."""


# What a decoder or a law says of a body about which there is doubt.
DOUBTFUL = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, Doubt)

# A field of a struct: its name, its type and, where it may be absent, what then stands for it.
Field = tuple[str, Any] | tuple[str, Any, Any]


@dataclass(frozen=True)
class RowStructs:
    """The decoder of one task's bodies, and what is needed to turn their structs into rows."""

    num_numbers: int
    always_given: bool
    quotes_per_row: int
    questions: msgspec.json.Decoder[Any]

    def accept_questions(self, body: bytes) -> Questions | None:
        """The questions of a body of /predict; None where the body must be judged."""
        try:
            given = self.questions.decode(body)
            if given.rows is UNSET:
                if given.features is UNSET or given.at is UNSET:
                    return None
                at_field = AT_OF_MANY
                numbers, categories, quotes = self._features(given.features)
                rows = [Row(parse_moment(at), numbers, categories) for at in given.at]
                quotes += 4 + 2 * len(rows)
            else:
                if given.features is not UNSET or given.at is not UNSET:
                    return None
                rows, quotes, at_field = [], 2, AT_OF_ROW
                for one in given.rows:
                    numbers, categories, its_quotes = self._features(one.features)
                    rows.append(Row(parse_moment(one.at) if isinstance(one.at, str) else None, numbers, categories))
                    quotes += its_quotes + 2 + (0 if one.at is UNSET else 2 if one.at is None else 4)
        except DOUBTFUL:
            return None
        return Questions(rows, at_field) if quotes == count_quotes(body) else None

    def _features(self, given: Any) -> tuple[tuple[float, ...], tuple[str, ...], int]:
        """Numbers, categories, and how many quotation marks their names and texts take."""
        values = msgspec.structs.astuple(given)
        numbers, categories = values[: self.num_numbers], values[self.num_numbers :]
        if self.always_given or not (UNSET in values or None in values):
            return without_minus_zero(numbers), categories, self.quotes_per_row
        quotes = 2 * sum(value is not UNSET for value in values) + 2 * sum(isinstance(text, str) for text in categories)
        return *fill_gaps(numbers, categories), quotes


def compile_structs(task: Task) -> RowStructs:
    """Structs and decoders for the rows of a task."""
    features = compile_features(task, _field)
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
    return RowStructs(
        num_numbers=len(task.numbers),
        always_given=not any(feature.optional for feature in task.features),
        quotes_per_row=2 * len(task.features) + 2 * len(task.categories),
        questions=msgspec.json.Decoder(question),
    )


def _field(name: str, feature: Feature) -> Field:
    kind: Any = NUMBER if feature.kind == "number" else _Text
    return (name, kind | None | UnsetType, UNSET) if feature.optional else (name, kind)


def compile_features(task: Task, field: Callable[[str, Feature], Field]) -> type[msgspec.Struct]:
    """The struct of a row's features, numbers before categories; a feature's name need not be one that Python takes."""
    ordered = [*task.numbers, *task.categories]
    return msgspec.defstruct(
        "Features",
        [field(f"f{place}", feature) for place, feature in enumerate(ordered)],
        rename={f"f{place}": feature.name for place, feature in enumerate(ordered)},
        forbid_unknown_fields=True,
        gc=False,
        kw_only=True,
    )


def fill_gaps(numbers: tuple[Any, ...], categories: tuple[Any, ...]) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Numbers and categories as a row holds them: NaN and "" for None and for what is unset."""
    return (
        tuple([math.nan if number is None or number is UNSET else number + 0.0 for number in numbers]),
        tuple(["" if text is None or text is UNSET else text for text in categories]),
    )


def without_minus_zero(numbers: tuple[float, ...]) -> tuple[float, ...]:
    """The same with zero for minus zero."""
    return tuple([number + 0.0 for number in numbers]) if 0.0 in numbers else numbers


def count_quotes(body: bytes) -> int:
    """How many quotation marks delimit names and texts: more than the values explain where a name is given twice."""
    return without_escapes(body).count(b'"')
