"""The kinds of values in a spec that people write in TOML or JSON, and how strictly they are read."""

import re
import unicodedata
from datetime import timedelta
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)

from contracts.clock import MICROSECOND, format_duration
from contracts.durations import CENTURY, ISO_DURATION, parse_duration
from contracts.shown import shorten

# Names of parameters of /predict, which no feature can have.
RESERVED_NAMES = frozenset({"at", "task", "coverage", "rate"})
# The name of a task, a feature or a target.
IDENTIFIER = r"[A-Za-z][A-Za-z0-9_]{0,62}"
# Up to here, every integer is a 64-bit float without loss.
EXACT_INTEGER = 2**53
# A category or a class: text that every store and log can hold.
MAX_TEXT = 256
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\ud800-\udfff]*\Z"
# The same in the dialect of JSON Schema, which knows no lone surrogates.
SCHEMA_PRINTABLE = r"^[^\u0000-\u001f\u007f-\u009f]*$"

# Letters that do not decompose into one of ASCII and an accent.
_LETTERS = str.maketrans({"ß": "ss", "æ": "ae", "Æ": "AE", "ø": "o", "Ø": "O", "œ": "oe", "ł": "l", "Ł": "L", "đ": "d"})


def _identifier(name: str) -> str:
    if not re.fullmatch(IDENTIFIER, name):
        raise ValueError(
            f"is {shorten(name)!r}, not a letter followed by at most 62 letters, digits or underscores, which queries "
            f"and metrics can hold: name it {suggest_name(name)}"
        )
    return name


def suggest_name(text: str) -> str:
    """An allowed name that resembles a text, such as a column: without accents, and with _ for other characters."""
    plain = unicodedata.normalize("NFKD", text.translate(_LETTERS)).encode("ascii", "ignore").decode()
    words = re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_")
    name = (words if re.match("[A-Za-z]", words) else f"x_{words}" if words else "x")[:63].rstrip("_")
    return f"{name}_" if name in RESERVED_NAMES else name


def _format_length(duration: timedelta) -> str:
    """In days and smaller units, because years differ in length."""
    return format_duration(duration // MICROSECOND)


def _bounded(duration: timedelta) -> timedelta:
    if not timedelta(seconds=1) <= duration <= CENTURY:
        raise ValueError("is at least one second and at most a hundred years")
    return duration


def _printable(text: str) -> str:
    if not re.match(PRINTABLE, text):
        raise ValueError("holds a control character or a lone surrogate")
    return text


Name = Annotated[str, AfterValidator(_identifier), WithJsonSchema({"type": "string", "pattern": f"^{IDENTIFIER}$"})]
Text = Annotated[
    str,
    Field(min_length=1, max_length=MAX_TEXT, json_schema_extra={"pattern": SCHEMA_PRINTABLE}),
    AfterValidator(_printable),
]
Length = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(_format_length, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": ISO_DURATION}),
]
Duration = Annotated[Length, AfterValidator(_bounded)]


class Spec(BaseModel):
    """Base of all specs that people write: unknown keys are refused, and values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
