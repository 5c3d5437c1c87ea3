"""JSON schemas as tables: the bodies of the API and the keys of a task file."""

import json
from collections.abc import Mapping
from typing import Any

from handbook.tables import code, table

Shape = Mapping[str, Any]
_BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "≥ {} characters",
    "maxLength": "≤ {} characters",
    "minItems": "≥ {} items",
    "maxItems": "≤ {} items",
}
_WORDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false", "null": "null"}
_FORMATS = {"date-time": "moment"}


def members(shape: Shape) -> str:
    """A table of an object's members: name, kind, default or `required`, meaning."""
    required = set(shape.get("required", ()))
    rows = [
        (code(name), kind_of(member), _default(name, member, required), member.get("description", ""))
        for name, member in shape.get("properties", {}).items()
    ]
    return table(["name", "kind", "default", "meaning"], rows)


def kind_of(shape: Shape) -> str:
    """The kind of a value in a few words, or a link if it is a component with a table of its own."""
    if "$ref" in shape:
        name = shape["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    for choice in ("anyOf", "oneOf"):
        if choice in shape:
            return ", or ".join(dict.fromkeys(kind_of(each) for each in shape[choice]))
    if "const" in shape:
        return code(str(shape["const"]))
    if "enum" in shape:
        return ", ".join(code(value if isinstance(value, str) else json.dumps(value)) for value in shape["enum"])
    kinds = shape.get("type", "anything")
    if isinstance(kinds, list):
        return ", or ".join(_WORDS.get(str(kind), str(kind)) for kind in kinds)
    return _plain(kinds, shape) + _bounds(shape)


def _plain(kind: str, shape: Shape) -> str:
    if kind == "array":
        items = shape.get("items", {})
        return f"list of {kind_of(items) if items else 'anything'}"
    if kind == "object":
        values = shape.get("additionalProperties")
        return f"object of {kind_of(values)} by name" if isinstance(values, Mapping) and values else "object"
    if shape.get("pattern", "").startswith("^-?P("):
        return "duration"
    return _FORMATS.get(shape.get("format", ""), _WORDS.get(kind, kind))


def _bounds(shape: Shape) -> str:
    found = [words.format(shape[key]) for key, words in _BOUNDS.items() if key in shape]
    return f" ({', '.join(found)})" if found else ""


def _default(name: str, member: Shape, required: set[str]) -> str:
    if name in required:
        return "required"
    value = member.get("default")
    return "" if value is None or isinstance(value, dict) else code(json.dumps(value, ensure_ascii=False))
