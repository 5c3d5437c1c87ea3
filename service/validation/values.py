"""The rules of single values: what is a number, a text and a moment in a query or body.

Numbers and texts have each rule twice. A type lets msgspec accept values in its own code; a function says what is wrong
with a value. Functions get a number as it was written (`NumberLiteral`), so a query and a body get the same words.
"""

import math
import re
import sys
from collections.abc import Collection
from typing import Annotated

from msgspec import Meta

from contracts.clock import EPOCH, parse_moment, to_micros
from contracts.missing import INFINITE, MISSING
from contracts.shown import MAX_SHOWN
from contracts.spec.spec_values import EXACT_INTEGER, MAX_TEXT, PRINTABLE
from contracts.truth import TRUTHS, spell_truth

# A finite 64-bit float, or an integer that is exactly one. The limits of a float refuse a query's "nan" and "inf".
Number = (
    Annotated[int, Meta(ge=-EXACT_INTEGER, le=EXACT_INTEGER)]
    | Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
)
# A whole number that stands for a category: the category is its text.
Code = Annotated[int, Meta(ge=-EXACT_INTEGER, le=EXACT_INTEGER)]
# A text by its length; `are_printable` looks at its characters.
Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
# Thousands in groups of three, and a decimal mark, as people write them; either mark alone may be both.
_WITH_COMMA = re.compile(r"[+-]?[0-9]{1,17},[0-9]{1,17}")
_EITHER = re.compile(r"[+-]?[1-9][0-9]{0,2}[,][0-9]{3}")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(?:(?:\.[0-9]{3}){1,5}(,[0-9]{1,17})?|(?:,[0-9]{3}){1,5}(\.[0-9]{1,17})?)")
_INTEGER = re.compile(r"-?[0-9]+")
_CODE = re.compile(r"-?(0|[1-9][0-9]*)")
_PRINTABLE = re.compile(PRINTABLE)
# How libraries for data frames spell a missing or infinite value.
_MISSING_OR_INFINITE = MISSING | INFINITE | {"none"}
# The end of a remedy, which a feature that is optional already does not need.
NEEDS_OPTIONAL = "; the feature needs optional = true"
_REMEDY_FOR_MISSING = f"send null for a missing value, or leave it out{NEEDS_OPTIONAL}"
_REPR_OF_NUMPY = re.compile(r"(np|numpy)\.")
FIRST_MICRO = to_micros(EPOCH.replace(year=1))
LAST_MICRO = to_micros(EPOCH.replace(year=9999, month=12, day=31, hour=23, minute=59, second=59)) + 999_999


class NumberLiteral(str):
    """A number as it was written, not yet checked."""

    __slots__ = ()


def parse_number(literal: str) -> float:
    """A finite float64 from a decimal literal in JSON's grammar; minus zero becomes zero. Raises ValueError."""
    if not _NUMBER.fullmatch(literal):
        raise ValueError(_why_not_a_number(literal))
    number = float(literal) + 0.0
    if not math.isfinite(number):
        raise ValueError("is outside the range of a 64-bit float")
    if abs(number) >= EXACT_INTEGER and _INTEGER.fullmatch(literal) and not _is_exact(literal):
        raise ValueError("is an integer beyond ±2^53, which a 64-bit float does not hold exactly")
    return number


def _is_exact(integer: str) -> bool:
    return len(integer) <= 17 and abs(int(integer)) <= EXACT_INTEGER


def parse_integer(literal: str) -> float:
    """A whole number up to ±2^53 from a literal of a number, `3.0` and `1e3` included. Raises ValueError."""
    number = parse_number(literal)
    if not number.is_integer():
        raise ValueError(
            f'is {literal[:MAX_SHOWN]}, which has a fraction: kind = "number" takes it, an integer has none'
        )
    if abs(number) > EXACT_INTEGER:
        raise ValueError("is an integer beyond ±2^53, which a 64-bit float does not hold exactly")
    return number


def _why_not_a_number(literal: str) -> str:
    if not literal:
        return "is empty"
    if literal.lower().lstrip("+-") in _MISSING_OR_INFINITE:
        return f"is {literal}, which is no number: {_REMEDY_FOR_MISSING}"
    if " " in literal:
        return "holds a space, which a number cannot hold (a + in a query string arrives as a space)"
    return _say_marks(literal) or "is not a finite decimal number, such as -1.5 or 2e3"


def _say_marks(literal: str) -> str | None:
    """What is wrong with a number that has a decimal comma, or marks between thousands; None if it has neither."""
    if _EITHER.fullmatch(literal):
        either = f"{literal.replace(',', '.')} if it is a decimal mark, {literal.replace(',', '')} if not"
        return f"is {literal}, with a comma: write {either}"
    if _WITH_COMMA.fullmatch(literal):
        return f"is {literal}, with a comma: write a point, as in {literal.replace(',', '.')}"
    if (found := _GROUPED.fullmatch(literal)) is not None:
        thousands = "." if "." in literal and (found[1] is not None or literal.count(".") > 1) else ","
        plain = literal.replace(thousands, "").replace(",", ".")
        return f"is {literal}, with marks between thousands: write {plain}"
    return None


def json_number(value: object) -> float:
    """A number from a JSON value. Raises ValueError."""
    if isinstance(value, NumberLiteral):
        return parse_number(value)
    raise ValueError(f"is {_kind(value)}, not a number{_hint(value)}")


def json_integer(value: object) -> float:
    """A whole number from a JSON value. Raises ValueError."""
    if isinstance(value, NumberLiteral):
        return parse_integer(value)
    raise ValueError(f"is {_kind(value)}, not an integer{_hint(value)}")


def json_boolean(value: object) -> bool:
    """A boolean from a JSON value. Raises ValueError."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in TRUTHS:
        marks = "" if isinstance(value, NumberLiteral) else ", without quotation marks"
        raise ValueError(f"is {_kind(value)}, not a boolean: write {spell_truth(TRUTHS[value])}{marks}")
    known = ": write true or false, or in words yes or no" if isinstance(value, str) and not _hint(value) else ""
    raise ValueError(f"is {_kind(value)}, not true or false{_hint(value)}{known}")


def json_category(value: object) -> str:
    """A category from a JSON value: `true` of true, and `18` of the whole number 18. Raises ValueError."""
    if isinstance(value, NumberLiteral) and not is_missing(value):
        if _CODE.fullmatch(value) and _is_exact(value):
            return str(int(value))
        raise ValueError(
            f'is a number, not a string: write "{value[:MAX_SHOWN]}" in quotation marks, or change its kind in the '
            "task's file"
        )
    return json_text(spell_truth(value))


def json_text(value: object, longest: int = MAX_TEXT) -> str:
    """A text of 1 to `longest` characters that any store and log can hold. Raises ValueError."""
    if isinstance(value, NumberLiteral) and value.lower() in _MISSING_OR_INFINITE:
        raise ValueError(f"is {value}, not a string: {_REMEDY_FOR_MISSING}")
    if not isinstance(value, str) or isinstance(value, NumberLiteral):
        raise ValueError(f"is {_kind(value)}, not a string")
    if not value:
        raise ValueError("is empty")
    if len(value) > longest:
        raise ValueError(f"is longer than {longest} characters")
    if not _PRINTABLE.match(value):
        raise ValueError("holds a control character or a lone surrogate")
    return value


def is_missing(value: object) -> bool:
    """Whether a value of JSON stands for a missing or an infinite number: null, or a literal such as NaN."""
    return value is None or (isinstance(value, NumberLiteral) and value.lower().lstrip("+-") in _MISSING_OR_INFINITE)


def are_printable(texts: Collection[str]) -> bool:
    """Whether no text holds a control character or a lone surrogate."""
    return bool(_PRINTABLE.match("".join(texts)))


def json_moment(value: object) -> int:
    """Microseconds since the epoch of an RFC 3339 string with an offset. Raises ValueError."""
    if not isinstance(value, str) or isinstance(value, NumberLiteral):
        hint = ": write it as in 2026-01-31T12:00:00Z" if isinstance(value, NumberLiteral) else ""
        raise ValueError(f"is {_kind(value)}, not an RFC 3339 time in a string{hint}")
    if value.lower() in _MISSING_OR_INFINITE:
        raise ValueError(f"is {value}, which is no moment: write one such as 2026-01-31T12:00:00Z")
    return parse_moment(value)


def is_in_calendar(micros: int) -> bool:
    """Whether microseconds since the epoch are a date in UTC, as every parsed moment is."""
    return FIRST_MICRO <= micros <= LAST_MICRO


def _hint(value: object) -> str:
    """What to send instead of a value of another type, if it is one that libraries for data frames send."""
    if isinstance(value, bool):
        return ' (a feature of kind = "boolean" takes true and false)'
    if not isinstance(value, str) or isinstance(value, NumberLiteral):
        return ""
    if value.lower().lstrip("+-") in _MISSING_OR_INFINITE:
        return f": {_REMEDY_FOR_MISSING}"
    if (marks := _say_marks(value)) is not None:
        return f": it {marks}"
    if _REPR_OF_NUMPY.match(value):
        return ": convert values of NumPy with .item() before they are encoded"
    return ": write it without quotation marks" if _NUMBER.fullmatch(value) else ""


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, NumberLiteral):
        return "a number"
    if isinstance(value, str):
        return "a string" if value else "empty"
    return "an array" if isinstance(value, list) else "an object"
