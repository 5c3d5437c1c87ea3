"""The spec of a task as JSON: read strictly, and every fault named by its key."""

import json
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from contracts.errors import Fault, InvalidInput
from contracts.spec.spec_values import EXACT_INTEGER, Spec, find_near
from contracts.task import Feature, Task
from service.errors import Malformed
from service.validation.lossless_json import decode_text, limit_values
from service.validation.names import printable
from service.web.fields import MAX_VALUES


def parse_task(name: str, body: bytes) -> Task:
    """The task of a JSON body, whose `name` may be left out. Types are strict: `"4"` is not a number.

    Raises InvalidInput, Malformed, TooLarge.
    """
    limit_values(body, MAX_VALUES)
    try:
        spec = json.loads(
            decode_text(body),
            parse_constant=_refuse_constant,
            parse_float=_parse_float,
            object_pairs_hook=_refuse_repeated,
        )
    except (ValueError, RecursionError) as error:
        raise Malformed(f"The body is not JSON: {printable(str(error))}.") from None
    if not isinstance(spec, dict):
        form = '{"window": "P1D", "target": {…}, "features": […]}'
        raise InvalidInput([Fault("body", f"is not a JSON object: write {form}")])
    if spec.setdefault("name", name) != name:
        raise InvalidInput([Fault("name", "differs from the name in the path")])
    try:
        return Task.model_validate_json(json.dumps(spec, ensure_ascii=False).encode(), strict=True)
    except UnicodeEncodeError:
        raise InvalidInput([Fault("body", "holds a lone surrogate")]) from None
    except ValidationError as error:
        raise InvalidInput(
            [
                Fault(printable(_name_field(fault["loc"], spec)), _describe_fault(fault))
                for fault in _without_echoes(error.errors(include_url=False))
            ]
        ) from None


def _without_echoes(faults: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """The faults, but no list that is called too short only because its items are faulty."""
    return [
        fault
        for fault in faults
        if fault["type"] != "too_short"
        or not any(other["loc"][: len(fault["loc"])] == fault["loc"] for other in faults if other is not fault)
    ]


def _name_field(place: Sequence[str | int], spec: Any) -> str:
    """The path of a value in a spec, such as `features.distance.kind`: a feature is named and not counted."""
    parts: list[str] = []
    for part in place:
        try:
            spec = spec[part]
        except (LookupError, TypeError):
            spec = None
        name = spec.get("name") if isinstance(part, int) and isinstance(spec, dict) else None
        parts.append(name if isinstance(name, str) and name else str(part))
    return ".".join(parts)


def _describe_fault(fault: ErrorDetails) -> str:
    match fault["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            *parents, name = fault["loc"]
            near = find_near(str(name), _list_keys(parents))
            remedy = "docs/reference/task.md lists all" if near is None else f"write {near}"
            return f"is no key that a task's file can have here: {remedy}"
        case "too_short":
            return "is an empty list: name one at least"
        case "tuple_type" | "list_type":
            return "is not a list"
        case "model_type" | "model_attributes_type" | "dict_type":
            return "is not an object"
    return fault["msg"].removeprefix("Value error, ")


def _list_keys(place: Sequence[str | int]) -> tuple[str, ...]:
    """The keys that a spec can have at a place, such as below `training` or in one of the `features`."""
    parts: dict[str | int, type[Spec]] = {
        name: field.annotation
        for name, field in Task.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Spec)
    }
    model = parts.get(place[0], Feature) if place else Task
    return tuple(model.model_fields)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _parse_float(literal: str) -> float:
    """An integer if the number is whole: in JSON, 4.0 is the integer 4."""
    number = float(literal)
    return int(number) if number.is_integer() and abs(number) <= EXACT_INTEGER else number


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    spec = dict(pairs)
    if len(spec) < len(pairs):
        raise ValueError("a name is given more than once in one object")
    return spec
