"""Small JSON bodies that people send: each field judged by its own law, and all faults told at once."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from contracts.errors import Fault, InvalidInput
from service.validation.lossless_json import JsonObject, decode_json, decode_text, limit_values
from service.validation.names import printable
from service.validation.values import NumberLiteral, json_text

MAX_VALUES = 10_000
MAX_ACTOR, MAX_REASON = 200, 1000
MAX_IDS = 1000
MAX_SHOWN = 20

Law = Callable[[object], Any]


def read_fields(body: bytes, laws: Mapping[str, Law], required: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a JSON object, judged by `laws`; null means absent. An empty body is an empty object.

    Raises InvalidInput with every fault, Malformed if the body is not JSON, TooLarge if it holds too much.
    """
    limit_values(body, MAX_VALUES)
    given = decode_json(decode_text(body)) if body.strip() else JsonObject()
    if not isinstance(given, JsonObject):
        raise InvalidInput([Fault("body", "is not a JSON object")])
    doubtful = [name for name in given if name not in laws or name in given.repeated]
    faults = [Fault(printable(name), "is unknown or given twice") for name in doubtful[:MAX_SHOWN]]
    found: dict[str, Any] = {}
    for name, law in laws.items():
        if given.get(name) is None:
            if name in required:
                faults.append(Fault(name, "is required"))
            continue
        try:
            found[name] = law(given[name])
        except ValueError as error:
            faults.append(Fault(name, str(error)))
    if faults:
        raise InvalidInput(faults)
    return found


def json_actor(value: object) -> str:
    """What the one who asks is called, beside the name of a key. Raises ValueError."""
    return json_text(value, MAX_ACTOR)


def json_reason(value: object) -> str:
    """Why, for whoever reads it later. Raises ValueError."""
    return json_text(value, MAX_REASON)


def json_ids(value: object) -> list[str]:
    """Ids of events, each once. Raises ValueError."""
    if not isinstance(value, list) or not value:
        raise ValueError("is not a list of ids")
    if len(value) > MAX_IDS:
        raise ValueError(f"holds more than {MAX_IDS} ids")
    return list(dict.fromkeys(json_text(event_id) for event_id in value))


def json_id(value: object) -> int:
    """The number of something stored. Raises ValueError."""
    found = re.fullmatch(r"([1-9][0-9]{0,17})(\.0+)?", value) if isinstance(value, NumberLiteral) else None
    if found is None:
        raise ValueError("is not a number of something stored, such as 17")
    return int(found[1])
