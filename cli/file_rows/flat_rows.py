"""Lines of JSON that are rows instead of events: `{"at": …, "distance": 3, "label": …}`, as pandas writes them.

Keys are columns, matched with a task's features as those of a Parquet file are, and values have JSON's types.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from cli.file_rows.columns import REASON, Columns, normalise
from cli.file_rows.parquet import Use, as_number, as_text, find_uses, make_typed_reader
from cli.file_rows.rows import MAX_ROW_BYTES, Row, Unreadable, strip_line
from cli.reading.options import Options
from contracts.errors import Fault
from contracts.task import Task
from service.validation.lossless_json import JsonObject, collect

NUM_SAMPLE_LINES = 1000


def find_flat_names(lines: Iterable[bytes], task: Task) -> tuple[str, ...] | None:
    """The keys of the first rows in their order; None if they are events, or no row names a feature of the task."""
    names: dict[str, None] = {}
    for row in map(_read_object, islice(_strip(lines), NUM_SAMPLE_LINES)):
        if row is None:
            continue
        if "features" in row:
            return None
        names |= dict.fromkeys(name for name in row if name != REASON)
    features = {normalise(feature.name) for feature in task.features}
    return tuple(names) if any(normalise(name) in features for name in names) else None


def read_flat(
    lines: Iterable[bytes],
    sample: Iterable[bytes],
    names: Sequence[str],
    *,
    columns: Columns,
    task: Task,
    options: Options,
) -> Iterator[Row]:
    """The rows as events. A line that is no object is sent unchanged, so that the API refuses and keeps it."""
    uses = find_uses(columns, task)

    def cells_of(row: dict[str, Any]) -> list[Any]:
        return [_read_value(row.get(name), uses[place]) if place in uses else None for place, name in enumerate(names)]

    rows = map(_read_object, islice(_strip(sample), NUM_SAMPLE_LINES))
    shown = [cells_of(row) for row in rows if row is not None]
    reader = make_typed_reader(columns, task, options, list(zip(*shown, strict=True)))
    for number, line in enumerate(lines, start=1):
        text = strip_line(line)
        if not text:
            continue
        if len(text) > MAX_ROW_BYTES:
            too_long = (Fault("row", f"is longer than {MAX_ROW_BYTES} bytes"),)
            yield Row(text, faults=too_long, is_sent=False, place=f"line {number}")
        elif (row := _read_object(text)) is None:
            yield Row(text, place=f"line {number}")
        elif row.repeated:
            faults = tuple(Fault(name, "is given more than once") for name in row.repeated)
            yield Row(text, faults=faults, is_sent=False, place=f"line {number}")
        else:
            event, faults, is_sent = reader.read(cells_of(row))
            yield Row(event, faults=faults, is_sent=is_sent, place=f"line {number}")


def _strip(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines that are not blank."""
    return (text for line in lines if (text := strip_line(line)))


def _read_object(text: bytes) -> JsonObject | None:
    if len(text) > MAX_ROW_BYTES or not text.startswith(b"{"):
        return None
    try:
        found = json.loads(text, object_pairs_hook=collect)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, JsonObject) else None


def _read_value(value: Any, use: Use) -> Any:
    if isinstance(value, dict | list):
        return Unreadable("is an object or a list, which no event holds")
    if isinstance(value, str) or value is None:
        return value
    return as_number(value) if use == "number" else as_text(value, is_whole=use != "text")
