"""Rows of a protocol's body as the body of POST /predict, so that its decoder and its rules decide about them."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from contracts.errors import Fault, InvalidInput
from service.errors import Malformed
from service.validation.lossless_json import JsonObject, collect, decode_text
from service.validation.names import printable

AT = "at"
_LONGEST_LIST = 20


def decode_body(body: bytes) -> JsonObject:
    """The object of a body. NaN, which Python's clients write for a missing value, is null. Raises Malformed."""
    try:
        text = decode_text(body)
        given = json.loads(text, object_pairs_hook=collect, parse_constant=_read_constant, parse_float=_read_float)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"The body is not JSON: {error}.") from None
    if not isinstance(given, JsonObject):
        raise InvalidInput([Fault("body", "is no object")])
    if given.repeated:
        raise InvalidInput([Fault(printable(name), "is given more than once") for name in given.repeated])
    return given


def _read_constant(word: str) -> str | None:
    """Infinity stays a text, which the rules refuse."""
    return None if word == "NaN" else word


def _read_float(literal: str) -> float | str:
    """A number beyond every float stays a text, which the rules refuse."""
    found = float(literal)
    return found if math.isfinite(found) else literal


def find_repeated(names: Sequence[str]) -> list[str]:
    """The names that are given more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def encode_rows(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The body of POST /predict for rows whose keys are features, and `at`. Raises Malformed and InvalidInput."""
    for place, row in enumerate(rows):
        if isinstance(row, JsonObject) and row.repeated:
            named = [f"rows[{place}].{printable(name)}" for name in row.repeated]
            raise InvalidInput([Fault(name, "is given more than once") for name in named])
    body = {"rows": [_as_question(row) for row in rows]}
    try:
        return msgspec.json.encode(body)
    except OverflowError:  # an integer of more than 64 bits, which the rules refuse by its feature
        return json.dumps(body).encode()
    except (UnicodeEncodeError, RecursionError):
        raise Malformed("A text of the body is no Unicode, or its values are nested too deeply.") from None


def _as_question(row: Mapping[str, Any]) -> dict[str, Any]:
    features = {name: value for name, value in row.items() if name != AT}
    return {"features": features} if row.get(AT) is None else {AT: row[AT], "features": features}


def flatten(values: Sequence[Any]) -> Sequence[Any]:
    """A column of shape (n,), also if it comes as (n, 1)."""
    if values and all(isinstance(value, list) and len(value) == 1 for value in values):
        return [value[0] for value in values]
    return values


def rows_of_columns(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """The rows of columns of the same length. Raises InvalidInput."""
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{printable(name)} has {length}" for name, length in [*lengths.items()][:_LONGEST_LIST])
        raise InvalidInput([Fault("inputs", f"have different numbers of rows: {said}")])
    names = [*columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]
