"""The query of GET /predict: decoded by a struct that is compiled from a task.

A plain query is turned into JSON and decoded at once: this is the fast path. Any other query is split into pairs first.
Both decode into the same struct, and nothing else accepts queries. `service.validation.explainer` says what is wrong
with a refused query.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from contracts.clock import parse_moment
from contracts.spec.spec_values import EXACT_INTEGER
from contracts.task import Kind, Task
from contracts.truth import parse_truth
from service.validation.columns import REFUSALS, find_integers, require_printable
from service.validation.question_decoder import Row
from service.validation.values import Number, Text

_TYPES: Mapping[Kind, Any] = {"number": Number, "integer": Number, "boolean": str, "category": Text}
BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class QueryDecoder:
    """Decodes one task's queries; the struct holds numbers, categories, `at` and `task`, in this order.

    `integers` and `booleans` are places among the numbers. A boolean is still a text in the struct.
    """

    num_numbers: int
    num_features: int
    integers: Sequence[int]
    booleans: Sequence[int]
    struct: type[msgspec.Struct]
    decode_json: Any

    def decode_plain(self, query: str) -> Row | None:
        """The row of a query that `read_plain` returned; None if it breaks a rule."""
        fields = query.replace("&", '","').replace("=", '":"')
        try:
            values = astuple(self.decode_json(f'{{"{fields}"}}'))
            if len(values) - values.count(UNSET) != query.count("="):
                return None  # a name is given twice
            return self._make_row(values)
        except REFUSALS:
            return None

    def decode(self, pairs: Sequence[tuple[str, str]]) -> Row | None:
        """The row of names and values; None if it breaks a rule."""
        given = dict(pairs)
        if len(given) < len(pairs):
            return None  # a name is given twice
        try:
            row = self._make_row(astuple(msgspec.convert(given, self.struct, strict=False)))
            require_printable(row.categories)
        except REFUSALS:
            return None
        return row

    def _make_row(self, values: tuple[Any, ...]) -> Row:
        at = values[self.num_features]
        numbers, categories = values[: self.num_numbers], values[self.num_numbers : self.num_features]
        if self.integers or self.booleans:
            numbers = self._apply_kinds(numbers)
        # Plus zero: of an integer the float, and of minus zero, zero.
        if UNSET in numbers or UNSET in categories:
            numbers = tuple([math.nan if number is UNSET else number + 0.0 for number in numbers])
            categories = tuple(["" if text is UNSET else text for text in categories])
        else:
            numbers = tuple([number + 0.0 for number in numbers])
        return Row(None if at is UNSET else parse_moment(at), numbers, categories)

    def _apply_kinds(self, numbers: tuple[Any, ...]) -> tuple[Any, ...]:
        """Numbers with booleans read. Raises ValueError for other spellings and for integers with a fraction."""
        found = list(numbers)
        for place in self.booleans:
            if found[place] is not UNSET:
                found[place] = parse_truth(found[place])
        for place in self.integers:
            number = found[place]
            if number is not UNSET and (number % 1 or abs(number) > EXACT_INTEGER):
                raise ValueError
        return tuple(found)


def compile_query_decoder(task: Task) -> QueryDecoder:
    """The decoder of a task's queries, which reads numbers from texts in JSON's grammar."""
    ordered = [*task.numbers, *task.categories]
    fields: list[tuple[str, Any, bool]] = [
        *((f"f{place}", _TYPES[one.kind], one.optional) for place, one in enumerate(ordered)),
        ("at", str, True),
        ("task", str, True),
    ]
    query = msgspec.defstruct(
        "Query",
        [(name, kind | UnsetType, UNSET) if optional else (name, kind) for name, kind, optional in fields],
        rename={f"f{place}": feature.name for place, feature in enumerate(ordered)},
        forbid_unknown_fields=True,
        gc=False,
        kw_only=True,
    )
    booleans = tuple(place for place, feature in enumerate(task.numbers) if feature.kind == "boolean")
    decode = msgspec.json.Decoder(query, strict=False).decode
    return QueryDecoder(len(task.numbers), len(ordered), find_integers(task), booleans, query, decode)


def read_plain(query: bytes) -> str | None:
    """A query string without its escapes; None if a name or value holds & or =, or what JSON would escape."""
    try:
        text = query.decode("ascii").replace("+", " ").replace("%3A", ":")  # most clients escape the colons of a moment
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
