"""Small JSON bodies that people send: each field has a rule, and all faults are reported at once."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from contracts.errors import Fault, InvalidInput
from contracts.spec.spec_values import find_near, list_names
from service.validation.lossless_json import JsonObject, decode_json, decode_text, limit_values
from service.validation.names import printable
from service.validation.values import NumberLiteral, json_text

MAX_VALUES = 10_000
MAX_ACTOR, MAX_REASON = 200, 1000
MAX_IDS = 1000
MAX_SHOWN = 20

Rule = Callable[[object], Any]


def read_fields(body: bytes, rules: Mapping[str, Rule], required: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a JSON object, each read by its rule; null means absent. An empty body is an empty object.

    Raises InvalidInput with every fault, Malformed if the body is not JSON, TooLarge if it holds too much.
    """
    limit_values(body, MAX_VALUES)
    given = decode_json(decode_text(body)) if body.strip() else JsonObject()
    if not isinstance(given, JsonObject):
        written = ", ".join(f'"{name}": …' for name in required or rules)
        raise InvalidInput([Fault("body", f"is not a JSON object: write {{{written}}}")])
    doubtful = [name for name in given if name not in rules or name in given.repeated]
    faults = [Fault(printable(name), _say_doubt(name, rules)) for name in doubtful[:MAX_SHOWN]]
    found: dict[str, Any] = {}
    for name, rule in rules.items():
        if given.get(name) is None:
            if name in required:
                faults.append(Fault(name, "is required"))
            continue
        try:
            found[name] = rule(given[name])
        except ValueError as error:
            faults.append(Fault(name, str(error)))
    if faults:
        raise InvalidInput(faults)
    return found


def _say_doubt(name: str, rules: Mapping[str, Rule]) -> str:
    if name in rules:
        return "is given more than once"
    near = find_near(name, tuple(rules))
    return f"is not a field of this body: {f'write {near}' if near else f'it takes {list_names([*rules])}'}"


def json_actor(value: object) -> str:
    """The name of the person who asks, which is recorded with the name of the key. Raises ValueError."""
    return json_text(value, MAX_ACTOR)


def json_reason(value: object) -> str:
    """The reason, for the record. Raises ValueError."""
    return json_text(value, MAX_REASON)


def json_ids(value: object) -> list[str]:
    """Ids of events, each once. Raises ValueError."""
    if not isinstance(value, list):
        raise ValueError("is not a list of ids")
    if not value:
        raise ValueError("is an empty list: name one id at least")
    if len(value) > MAX_IDS:
        raise ValueError(f"holds more than {MAX_IDS} ids")
    return list(dict.fromkeys(json_text(event_id) for event_id in value))


def json_id(value: object) -> int:
    """The id of a cycle or another numbered row. Raises ValueError."""
    found = re.fullmatch(r"([1-9][0-9]{0,17})(\.0+)?", value) if isinstance(value, NumberLiteral) else None
    if found is None:
        raise ValueError("is not an id, such as 17")
    return int(found[1])


def json_flag(value: object) -> bool:
    """true or false. Raises ValueError."""
    if not isinstance(value, bool):
        raise ValueError("is not true or false")
    return value
