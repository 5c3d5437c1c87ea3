"""The components of the OpenAPI document: what bodies look like, and what the API answers.

Answers are described by the structs that encode them, and tasks by their own model. The other bodies are described
here, as far as a schema can express the rules of `service.validation.values`. The words of a description say what
depends on more than one value: the task's own features and classes, the order of two moments, the horizon of a version.
"""

from collections.abc import Collection, Iterator
from typing import Any, get_args

import msgspec
from msgspec import UnsetType
from pydantic.json_schema import GenerateJsonSchema

from contracts.hooks.events import EVENT_TYPES
from contracts.hooks.receivers import MAX_URL
from contracts.spec.spec_values import IDENTIFIER, Spec
from contracts.task import Task
from service.admin.hooks import MAX_TASKS
from service.admin.stored_events.given_options import MAX_NAMED
from service.openapi.json_schema import MOMENT, REF, Shape, closed, many, nullable, ref, text
from service.web.fields import MAX_ACTOR, MAX_IDS, MAX_REASON

_NUMBER: Shape = {"type": "number"}
_BOOLEAN: Shape = {"type": "boolean"}
_FEATURES: Shape = {
    "type": "object",
    "description": "by name: those of the task and no other; a number, a whole number, true or false, or a text, as "
    "the kind of the feature says; a category 18 is the text `18`; only an optional feature may be left out or null",
    "additionalProperties": {"anyOf": [_NUMBER, _BOOLEAN, text(), {"type": "null"}]},
}
# A query string has no null: what is missing is left out.
_FEATURES_IN_QUERY: Shape = _FEATURES | {"additionalProperties": {"anyOf": [_NUMBER, _BOOLEAN, text()]}}
_INPUT = {"at": MOMENT, "features": ref("Features")}
_LABEL = {
    "label": {
        "anyOf": [_NUMBER, _BOOLEAN, text()],
        "description": "a class, of which true is the text `true`, or a number if the task is a regression",
    },
}
_KNOWN_AT = {"known_at": nullable(MOMENT) | {"description": "not before at; at + label_delay if left out"}}
_LABEL_KNOWN_AT = {
    "known_at": nullable(MOMENT)
    | {"description": "if left out, when it was received, but not before at + label_delay of its event"}
}
_NO_KNOWN_AT = {"known_at": {"type": "null"}}
_ID_IN_PATH = {"event_id": text(description="the id in the path")}
_ROW = closed({"features": ref("Features")}, {"at": nullable(MOMENT) | {"description": "now if left out"}})
_ONE_OR_MANY = {
    "anyOf": [MOMENT, many(MOMENT, minItems=1), {"type": "null"}],
    "description": "one moment or many; now if left out",
}
_REASON = {"reason": text(MAX_REASON, description="why, for the record")}
_ACTOR = {"actor": text(MAX_ACTOR, description="who asks")}
_VERSION = text(description="a version that was released before")
_BOUND = MOMENT | {"description": "if left out, the later of the present bound and the bound of the release"}
_AGAIN = {"type": "boolean", "description": "whether a cutoff that has been released is trained once more"}
_HELD_CYCLE = {
    "type": "integer",
    "minimum": 1,
    "exclusiveMaximum": 10**18,
    "description": "id of a held cycle to release",
}


def _or_null(optional: Shape) -> Shape:
    """In a small body, null is as good as absent."""
    return {name: nullable(shape) for name, shape in optional.items()}


_TEXTS: Shape = many(text(), maxItems=MAX_NAMED)
_IMPORT_OPTIONS: Shape = closed(
    {},
    _or_null(
        {
            "format": {"type": "string", "enum": ["csv", "ndjson", "parquet"]},
            **{name: text() for name in ("encoding", "separator", "quote", "timezone", "at_format")},
            "columns": {
                "type": "object",
                "propertyNames": text(),
                "additionalProperties": text(),
                "maxProperties": MAX_NAMED,
            },
            "id_from": _TEXTS,
            "dropped": _TEXTS,
            "missing": _TEXTS,
            "day_first": {"type": "boolean"},
            "decimal": {"type": "string", "enum": ["point", "comma"]},
        }
    ),
) | {"description": "how the file was read; what is left out was found in the file"}
_ABSENT: Shape = {"type": "null"}
# A UUID of version 7 (RFC 9562).
_PREDICTION_ID = "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-7[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}$"


_BODIES: dict[str, Shape] = {
    "Features": _FEATURES,
    "FeaturesInQuery": _FEATURES_IN_QUERY,
    "Event": closed({"event_id": text(), **_INPUT, **_LABEL}, _KNOWN_AT),
    "UnlabelledEvent": closed({"event_id": text(), **_INPUT}, _NO_KNOWN_AT),
    "Correction": closed({**_INPUT, **_LABEL}, {**_ID_IN_PATH, **_KNOWN_AT}),
    "UnlabelledCorrection": closed(_INPUT, {**_ID_IN_PATH, **_NO_KNOWN_AT}),
    "LabelOfEvent": closed({"event_id": text(description="id of the event"), **_LABEL}, _LABEL_KNOWN_AT),
    "LabelOfAnswer": closed(
        {"prediction_id": text(pattern=_PREDICTION_ID, description="id of a logged answer"), **_LABEL}, _LABEL_KNOWN_AT
    ),
    "Row": _ROW,
    "Rows": closed({"rows": many(ref("Row"), minItems=1)}),
    "RowAtMoments": closed({"features": ref("Features")}, {"at": _ONE_OR_MANY}),
    "CycleRequest": closed({}, _or_null({"as_of": MOMENT | {"description": "not in the future"}, "again": _AGAIN})),
    "RollbackRequest": closed(_REASON, _or_null({"version": _VERSION, **_ACTOR})),
    "HorizonOverride": closed(
        _REASON, _or_null({"version": _VERSION, "valid_until": _BOUND, **_ACTOR}) | {"cycle": _ABSENT}
    ),
    "CycleOverride": closed({"cycle": _HELD_CYCLE, **_REASON}, _or_null(_ACTOR)),
    "GivenImportOptions": _IMPORT_OPTIONS,
    "ImportRequest": closed(
        {"source": text(MAX_REASON, description="the file, or another name for people")},
        _or_null({**_ACTOR, "digest": text(MAX_ACTOR, description="a digest of the file's content")})
        | {"options": nullable(ref("GivenImportOptions"))},
    ),
    "RetractionRequest": closed(_REASON, _or_null(_ACTOR)),
    "ChangeRequest": closed({}, _or_null({**_REASON, **_ACTOR})),
    "RenameRequest": closed(
        {"name": text(pattern=f"^{IDENTIFIER}$", description="the new name")}, _or_null({**_REASON, **_ACTOR})
    ),
    "HookRequest": closed(
        {
            "name": text(pattern=f"^{IDENTIFIER}$", description="name of the hook"),
            "url": text(
                MAX_URL,
                pattern="^[Hh][Tt][Tt][Pp][Ss]?://[!-~]+$",
                description="the receiver: https, and a host of the public internet unless its network is allowed",
            ),
        },
        _or_null(
            {
                "tasks": many(text(), minItems=1, maxItems=MAX_TASKS) | {"description": "if left out, all tasks"},
                "types": many({"enum": [*EVENT_TYPES]}, minItems=1, maxItems=MAX_TASKS)
                | {"description": "if left out, all types"},
                **_ACTOR,
            }
        ),
    ),
    "HookActionRequest": closed({}, _or_null(_ACTOR)),
    "ErasureRequest": closed({"event_ids": many(text(), minItems=1, maxItems=MAX_IDS), **_REASON}, _or_null(_ACTOR)),
}


def describe_components(answers: Collection[type[msgspec.Struct]]) -> dict[str, Shape]:
    """Every component of the document, each with a title of its own; `answers` are the bodies of all operations."""
    task, parts = _describe_task()
    given = {**task, "required": [name for name in task["required"] if name != "name"]}
    described = msgspec.json.schema_components(answers, schema_hook=_refer_to_model, ref_template=REF)[1]
    for struct in {struct for answer in answers for struct in _find_structs(answer)}:
        # msgspec requires what has no default, even if it may be unset.
        required = described[struct.__name__]["required"] = [
            field.encode_name
            for field in msgspec.structs.fields(struct)
            if not _may_be_unset(field.type) and not (struct.__struct_config__.omit_defaults and not field.required)
        ]
        for name in required:  # what is always said needs no default
            described[struct.__name__]["properties"][name].pop("default", None)
    shapes = _name_alternatives(_BODIES | parts | {"Task": task, "TaskDefinition": given} | described)
    return {name: {**_open_objects(shape), "title": name} for name, shape in shapes.items()}


def _open_objects(shape: Any) -> Any:
    """The same, in which objects without members say that they have any: generators of types would give them none."""
    if isinstance(shape, list):
        return [*map(_open_objects, shape)]
    if not isinstance(shape, dict):
        return shape
    is_free = shape.get("type") == "object" and not {"properties", "additionalProperties"} & shape.keys()
    return {name: _open_objects(each) for name, each in shape.items()} | (
        {"additionalProperties": True} if is_free else {}
    )


def _name_alternatives(shapes: dict[str, Shape]) -> dict[str, Shape]:
    """The same components, and one for each object or choice that is an alternative of a member.

    Generators of clients would number them. Equal ones of members with the same name share it.
    """
    named: dict[str, Shape] = {}

    def name_it(shape: Shape, component: str, member: str) -> Shape:
        if "items" in shape:
            first = [name_it(one, component, f"{member}_first") for one in shape.get("prefixItems", ())]
            items = name_it(shape["items"], component, f"{member}_item")
            return {**shape, "items": items} | ({"prefixItems": first} if first else {})
        if "const" in shape:  # which generated code compares with every value
            shape = {"type": shape["type"], "enum": [shape["const"]]}
        if "enum" not in shape and shape.get("type") != "object":
            return shape
        suffix = "".join(word.capitalize() for word in member.split("_"))
        known = (one for one in named if one.endswith(suffix) and named[one] == shape)
        named[name := next(known, component + suffix)] = shape
        return ref(name)

    found = {}
    for component, shape in shapes.items():
        members = dict(shape.get("properties", {}))
        for member, kind in members.items():
            if "anyOf" in kind:
                members[member] = {**kind, "anyOf": [name_it(one, component, member) for one in kind["anyOf"]]}
        found[component] = {**shape, "properties": members} if members else shape
    return found | named


class _WithoutTitles(GenerateJsonSchema):
    """Pydantic would give each field a title, and generators of clients would make classes of some."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 every field is alike
        return False


def _describe_task() -> tuple[Shape, dict[str, Shape]]:
    """The schema of a task, and those of its parts."""
    task = Task.model_json_schema(ref_template=REF.replace("{name}", "{model}"), schema_generator=_WithoutTitles)
    parts: dict[str, Shape] = task.pop("$defs", {})
    return task, parts


def _find_structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """A struct and those that it holds."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for field in msgspec.structs.fields(kind):
            yield from _find_structs(field.type)
    for part in get_args(kind):
        yield from _find_structs(part)


def _may_be_unset(kind: Any) -> bool:
    return kind is UnsetType or any(map(_may_be_unset, get_args(kind)))


def _refer_to_model(model: type) -> Shape:
    """A part of an answer that people write: the task itself, or one of its parts."""
    assert issubclass(model, Spec)
    return ref(model.__name__)
