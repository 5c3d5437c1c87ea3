"""The quick way to accept the query of GET /predict: as JSON, decoded by a struct that is compiled from a task.

A query is accepted here only where nothing about it is doubtful; in any doubt the answer is None,
`service.predict.endpoint`
reads it pair by pair and `service.validation.rules` judges it value by value. What is accepted here is accepted
there with the same values.
"""

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import astuple

from contracts.clock import parse_moment
from contracts.spec import MAX_TEXT
from contracts.task import Task
from service.validation.fast_bodies import DOUBTFUL, Row
from service.validation.values import EXACT_INTEGER

_Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]  # a plain query is printable as a whole
# What may have been a large integer, rounded already, is in doubt.
_NUMBER = Annotated[float, Meta(gt=-EXACT_INTEGER, lt=EXACT_INTEGER)]
BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class QueryStructs:
    """What decodes one task's queries: into numbers, categories, `at` and `task`, in this order."""

    num_numbers: int
    num_features: int
    decode: Any

    def accept(self, query: str) -> Row | None:
        """The row that a plain query asks about; None where it must be judged."""
        fields = query.replace("&", '","').replace("=", '":"')
        try:
            values = astuple(self.decode(f'{{"{fields}"}}'))
            if len(values) - values.count(UNSET) != query.count("="):
                return None  # of several values of one name, a struct takes the last
            at = values[self.num_features]
            moment = None if at is UNSET else parse_moment(at)
        except DOUBTFUL:
            return None
        numbers, categories = values[: self.num_numbers], values[self.num_numbers : self.num_features]
        if UNSET in numbers or UNSET in categories:
            numbers = tuple([math.nan if number is UNSET else number + 0.0 for number in numbers])
            categories = tuple(["" if text is UNSET else text for text in categories])
        elif 0.0 in numbers:
            numbers = tuple([number + 0.0 for number in numbers])  # of minus zero, zero
        return Row(moment, numbers, categories)


def compile_query_structs(task: Task) -> QueryStructs:
    """The struct of a task's queries; numbers are read from texts, in JSON's grammar."""
    ordered = [*task.numbers, *task.categories]
    fields = [
        *((f"f{place}", _NUMBER if one.kind == "number" else _Text, one.optional) for place, one in enumerate(ordered)),
        ("at", str, True),
        ("task", str, True),
    ]
    query = msgspec.defstruct(
        "Query",
        [(name, kind | UnsetType, UNSET) if may_lack else (name, kind) for name, kind, may_lack in fields],
        rename={f"f{place}": feature.name for place, feature in enumerate(ordered)},
        forbid_unknown_fields=True,
        gc=False,
        kw_only=True,
    )
    return QueryStructs(len(task.numbers), len(ordered), msgspec.json.Decoder(query, strict=False).decode)


def read_plain(query: bytes) -> str | None:
    """A query string without its escapes, where it can be read so: none of a name or value stands for & or =.

    None for any other, and for what JSON would escape.
    """
    try:
        text = query.decode("ascii").replace("+", " ").replace("%3A", ":")  # in every moment, where clients escape it
        if "%" in text:
            plain = unquote(text, errors="strict")
            if text.count("&") != plain.count("&") or text.count("=") != plain.count("=") or BAD_ESCAPE.search(text):
                return None
            text = plain
    except ValueError:
        return None
    return text if text.isprintable() and '"' not in text and "\\" not in text else None


def find_task(query: str) -> str | None:
    """The task that a plain query names, if it names one."""
    _, is_named, rest = f"&{query}".partition("&task=")
    return rest.partition("&")[0] if is_named else None
