"""The operations of the API as people read them: what to send, a real example, what comes back, and every schema."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from service.openapi.examples import Example, read_examples, write_command
from service.openapi.json_schema import REF, Shape

_PREFIX = REF.format(name="")


@dataclass(frozen=True)
class Member:
    """A parameter or a member of an object. `kind` is HTML, with links to schemas."""

    name: str
    kind: Markup
    is_required: bool
    description: str


@dataclass(frozen=True)
class Reply:
    """An answer by status; `kind` is None if it has no body of JSON."""

    status: str
    description: str
    kind: Markup | None


@dataclass(frozen=True)
class Operation:
    """One operation of the document, in the document's order."""

    id: str
    verb: str
    path: str
    summary: str
    description: str
    parameters: Sequence[Member]
    bodies: Sequence[tuple[str, Markup]]
    replies: Sequence[Reply]
    example: Example | None
    command: str | None


@dataclass(frozen=True)
class Component:
    """A schema by its name; `members` is empty if it is not an object."""

    name: str
    kind: Markup
    description: str
    members: Sequence[Member]


def list_operations(document: Mapping[str, Any], address: str) -> list[Operation]:
    """Every operation in the order of the document, questions and events first; `address` is that of this API."""
    examples = read_examples()
    return [
        Operation(
            id=operation["operationId"],
            verb=verb.upper(),
            path=path,
            summary=operation["summary"],
            description=operation.get("description", ""),
            parameters=[
                Member(one["name"], _say_kind(one["schema"]), one.get("required", False), _describe(one))
                for one in operation.get("parameters", [])
            ],
            bodies=[
                (media_type, _say_kind(content["schema"]))
                for media_type, content in operation.get("requestBody", {}).get("content", {}).items()
            ],
            replies=[_describe_reply(status, found) for status, found in operation["responses"].items()],
            example=(example := examples.get(operation["operationId"])),
            command=None if example is None else write_command(example, address),
        )
        for path, verbs in document["paths"].items()
        for verb, operation in verbs.items()
    ]


def list_components(document: Mapping[str, Any]) -> list[Component]:
    """Every schema, by name."""
    return [
        Component(name, _say_kind(shape), shape.get("description", ""), list(_list_members(shape)))
        for name, shape in sorted(document["components"]["schemas"].items())
    ]


def _describe_reply(status: str, found: Mapping[str, Any]) -> Reply:
    kinds = [_say_kind(content["schema"]) for content in found.get("content", {}).values() if "schema" in content]
    return Reply(status, found["description"], kinds[0] if kinds else None)


def _list_members(shape: Shape) -> Iterator[Member]:
    required = shape.get("required", [])
    for name, member in shape.get("properties", {}).items():
        yield Member(name, _say_kind(member), name in required, member.get("description", ""))


def _describe(parameter: Mapping[str, Any]) -> str:
    place = "in the path" if parameter["in"] == "path" else ""
    return "; ".join(filter(None, (parameter.get("description", ""), place)))


def _say_kind(shape: Shape) -> Markup:
    """A schema in a few words: a link to a component, or its type with the values that it allows."""
    for key, say in _KINDS.items():
        if key in shape:
            return say(shape[key])
    kind = shape.get("type", "anything")
    if kind == "array" and "items" in shape:
        return Markup("array of {}").format(_say_kind(shape["items"]))
    if shape.get("format") == "date-time":
        return Markup("moment")
    return escape(kind if isinstance(kind, str) else " or ".join(kind))


def _say_reference(reference: str) -> Markup:
    return Markup('<a href="#schema-{0}">{0}</a>').format(reference.removeprefix(_PREFIX))


def _say_either(shapes: Sequence[Shape]) -> Markup:
    return Markup(" or ").join(dict.fromkeys(map(_say_kind, shapes)))


def _say_values(values: Sequence[object]) -> Markup:
    return Markup(", ").join(Markup("<code>{}</code>").format(value) for value in values)


# By the key of a schema that says most about it.
_KINDS: Mapping[str, Callable[[Any], Markup]] = {
    "$ref": _say_reference,
    "anyOf": _say_either,
    "oneOf": _say_either,
    "allOf": _say_either,
    "enum": _say_values,
    "const": lambda value: _say_values([value]),
}
