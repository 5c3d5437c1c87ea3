"""The kinds of values in a spec that people write in TOML or JSON, and how strictly they are read."""

import re
from datetime import timedelta
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)

from contracts.clock import MICROSECOND, format_duration

# The name of a task, a feature or a target.
IDENTIFIER = r"[A-Za-z][A-Za-z0-9_]{0,62}"
# A category or a class: text that every store and log can hold.
MAX_TEXT = 256
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\ud800-\udfff]*\Z"
# The same in the dialect of JSON Schema, which knows no lone surrogates.
SCHEMA_PRINTABLE = r"^[^\u0000-\u001f\u007f-\u009f]*$"

CENTURY = timedelta(days=36_525)


def _identifier(name: str) -> str:
    if not re.fullmatch(IDENTIFIER, name):
        raise ValueError("is a letter followed by at most 62 letters, digits or underscores")
    return name


_LENGTH = TypeAdapter(timedelta)
_SECONDS = r"[0-9]{1,6}(\.[0-9]{1,6})?S"
_TIME = rf"T([0-9]{{1,6}}H([0-9]{{1,6}}M)?({_SECONDS})?|[0-9]{{1,6}}M({_SECONDS})?|{_SECONDS})"
# The form that is written, and that documents promise to accept. Years and months, of 365 and 30 days, are read too.
_ISO_DURATION = rf"^-?P([0-9]{{1,6}}W|[0-9]{{1,6}}D({_TIME})?|{_TIME})$"


def _parse_length(duration: object) -> timedelta:
    """Only ISO 8601: a bare number has no unit, and other spellings are ambiguous."""
    if isinstance(duration, timedelta):
        return duration
    try:
        if isinstance(duration, str) and re.match(r"[+-]?P", duration):
            return _LENGTH.validate_python(duration)
    except ValidationError:
        pass
    raise ValueError("is not an ISO 8601 duration in a string, such as P7D or PT6H")


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
    BeforeValidator(_parse_length),
    PlainSerializer(_format_length, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": _ISO_DURATION}),
]
Duration = Annotated[Length, AfterValidator(_bounded)]


class Spec(BaseModel):
    """Base of all specs that people write: unknown keys are refused, and values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
