"""The kinds of values in a spec that people write in TOML or JSON, and how strictly they are read."""

import re
import unicodedata
from collections.abc import Sequence
from datetime import timedelta
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
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
from contracts.shown import MAX_SHOWN, shorten

# Names of parameters of /predict, which no feature can have.
RESERVED_NAMES = frozenset({"at", "task", "coverage", "rate"})
# The name of a task, a feature or a target.
IDENTIFIER = r"[A-Za-z][A-Za-z0-9_]{0,62}"
NAMES_RULE = "Use ASCII letters, digits and underscores, at most 63, the first of them a letter"
# Up to here, every integer is a 64-bit float without loss.
EXACT_INTEGER = 2**53
# A category or a class: text that every store and log can hold.
MAX_TEXT = 256
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\ud800-\udfff]*\Z"
# The same in the dialect of JSON Schema, which knows no lone surrogates.
SCHEMA_PRINTABLE = r"^[^\u0000-\u001f\u007f-\u009f]*$"

# Names that a misspelled one is compared with, how alike two names must be, and how many names a sentence lists.
_MAX_COMPARED = 1000
_LIKENESS = 0.75
_MAX_LISTED = 20
# Letters that do not decompose into one of ASCII and an accent.
_LETTERS = str.maketrans({"ß": "ss", "æ": "ae", "Æ": "AE", "ø": "o", "Ø": "O", "œ": "oe", "ł": "l", "Ł": "L", "đ": "d"})


def _identifier(name: str) -> str:
    if not re.fullmatch(IDENTIFIER, name):
        raise ValueError(
            f"is {shorten(name)!r}, which queries and metrics cannot hold. {NAMES_RULE}: name it {suggest_name(name)}"
        )
    return name


def suggest_name(text: str) -> str:
    """An allowed name that resembles a text, such as a column: without accents, and with _ for other characters."""
    plain = unicodedata.normalize("NFKD", text.translate(_LETTERS)).encode("ascii", "ignore").decode()
    words = re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_")
    name = (words if re.match("[A-Za-z]", words) else f"x_{words}" if words else "x")[:63].rstrip("_")
    return f"{name}_" if name in RESERVED_NAMES else name


def find_same(name: str, known: tuple[str, ...]) -> str | None:
    """The known name that differs from this one in accents, case, blanks and marks only."""
    return _spell(known).get(suggest_name(name[:MAX_SHOWN]).casefold())


@lru_cache(maxsize=64)
def _spell(known: tuple[str, ...]) -> dict[str, str]:
    return {suggest_name(one).casefold(): one for one in known}


@lru_cache(maxsize=1024)
def find_near(name: str, known: tuple[str, ...]) -> str | None:
    """The known name that this one means: the same but for accents, case, blanks and marks, or else a similar one."""
    spelled = _spell(known)
    near = get_close_matches(suggest_name(name[:MAX_SHOWN]).casefold(), islice(spelled, _MAX_COMPARED), 1, _LIKENESS)
    return spelled[near[0]] if near else None


def list_names(names: Sequence[str]) -> str:
    """The names as a list for people; of many, the first ones and the number of the others."""
    rest = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f" and {rest:,} more" if rest > 0 else "")


def say_no_task(name: str, known: Sequence[str]) -> str:
    """That no task has a name, with the task of a similar name, or else all names if there are few."""
    said = f"There is no task named {shorten(name)!r}"
    if (near := find_near(name, tuple(known))) is not None:
        return f"{said}: the nearest name is {near!r}."
    if not known:
        return f"{said}, and there is no other yet: `morrow task apply FILE` or PUT /tasks/{{task}} defines one."
    if len(known) > _MAX_LISTED:
        return f"{said}: `morrow task list` or GET /tasks lists all {len(known):,}."
    return f"{said}. {'The only task is' if len(known) == 1 else 'The tasks are'} {list_names(known)}."


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
