"""The options of an import as its client sends them, each read by its rule."""

from typing import Any

import msgspec

from contracts.spec.spec_values import list_names
from service.advice.import_options import ImportOptions
from service.validation.lossless_json import JsonObject
from service.validation.names import printable
from service.validation.values import json_text
from service.web.fields import Rule, json_flag

# The most columns that a list or a mapping of options can name.
MAX_NAMED = 1000


def json_import_options(value: object) -> dict[str, Any]:
    """The options as the store keeps them; null means absent. Raises ValueError."""
    if not isinstance(value, JsonObject):
        raise ValueError('is not an object of options, such as {"timezone": "Europe/Berlin"}')
    given: dict[str, Any] = {}
    for name, one in value.items():
        if name not in _RULES or name in value.repeated:
            doubt = "given more than once" if name in _RULES else f"no option of an import, which has {_NAMES}"
            raise ValueError(f"holds {printable(name)}, which is {doubt}")
        if one is None:
            continue
        try:
            given[name] = _RULES[name](one)
        except ValueError as error:
            raise ValueError(f"holds {name}, which {error}") from None
    kept: dict[str, Any] = msgspec.to_builtins(msgspec.convert(given, ImportOptions))
    return kept


def _json_texts(value: object) -> list[str]:
    if not isinstance(value, list) or len(value) > MAX_NAMED:
        raise ValueError(f"is not a list of at most {MAX_NAMED} texts")
    return [json_text(one) for one in value]


def _json_columns(value: object) -> dict[str, str]:
    if not isinstance(value, JsonObject) or len(value) > MAX_NAMED or value.repeated:
        raise ValueError('is not an object of names with their columns, such as {"at": "when"}')
    return {json_text(name): json_text(column) for name, column in value.items()}


def _one_of(*words: str) -> Rule:
    def read(value: object) -> str:
        if value not in words:
            raise ValueError(f"is none of {', '.join(words)}")
        return str(value)

    return read


_RULES: dict[str, Rule] = {
    "format": _one_of("csv", "ndjson", "parquet"),
    "encoding": json_text,
    "separator": json_text,
    "quote": json_text,
    "columns": _json_columns,
    "id_from": _json_texts,
    "dropped": _json_texts,
    "missing": _json_texts,
    "timezone": json_text,
    "day_first": json_flag,
    "at_format": json_text,
    "decimal": _one_of("point", "comma"),
}
_NAMES = list_names([*_RULES])
