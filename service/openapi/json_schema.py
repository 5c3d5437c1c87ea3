"""Pieces of JSON schemas, for the bodies and parameters that no struct describes."""

from typing import Any

from contracts.spec.spec_values import MAX_TEXT, SCHEMA_PRINTABLE

Shape = dict[str, Any]
REF = "#/components/schemas/{name}"
_EVERY_FORM = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt]([01][0-9]|2[0-3]):[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
_WITH_OFFSET = r"([Zz]|[+-][0-9]{2}:[0-5][0-9])$"


def ref(name: str) -> Shape:
    """A reference to a component."""
    return {"$ref": REF.format(name=name)}


def nullable(shape: Shape) -> Shape:
    """The same, or null."""
    return {"anyOf": [shape, {"type": "null"}]}


def many(shape: Shape, **more: Any) -> Shape:
    """An array of it."""
    return {"type": "array", "items": shape, **more}


def closed(required: Shape, optional: Shape | None = None) -> Shape:
    """An object of these members and no other."""
    return {
        "type": "object",
        "required": list(required),
        "properties": required | (optional or {}),
        "additionalProperties": False,
    }


def text(longest: int = MAX_TEXT, **more: Any) -> Shape:
    """A text that `json_text` accepts."""
    return {"type": "string", "minLength": 1, "maxLength": longest, "pattern": SCHEMA_PRINTABLE, **more}


MOMENT: Shape = {
    "type": "string",
    "format": "date-time",
    "pattern": _EVERY_FORM + _WITH_OFFSET,
    "description": "RFC 3339 with an offset, to the microsecond; no leap second",
}
