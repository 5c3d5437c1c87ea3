"""Rows of CSV and NDJSON files as events, for `morrow events import`.

Nothing is validated here. A cell that does not look like a number or a time goes to the API unchanged, whose validation
refuses it in its own words. Every row becomes the line of NDJSON that is sent.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from contracts.errors import Fault, InvalidInput
from contracts.task import Kind, Target, Task
from contracts.truth import TRUTHS, unify_truth

# The column in which `cli.importing.rejects` writes why a row was refused. No feature can have this name, because names
# of features begin with a letter.
REASON = "_reason"
OWN_COLUMNS = ("event_id", "at", "known_at", "label")

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[-+]?\d+", re.ASCII)
_LONGEST_INTEGER = 300  # no float64 holds a longer one


@dataclass(frozen=True, slots=True)
class Row:
    """One event as a line of JSON, with the cells of its CSV line if it came from one."""

    line: bytes
    cells: Mapping[str, str] | None = None


def encode_row(event: Mapping[str, Any], cells: Mapping[str, str] | None = None) -> Row:
    """The row of an event. Raises ValueError for a number that JSON cannot express."""
    return Row(json.dumps(event, ensure_ascii=False, allow_nan=False).encode(), cells)


def read_csv(stream: BinaryIO, task: Task) -> Iterator[Row]:
    """Rows of a CSV file with a header: event_id, at, label, perhaps known_at, and a column for each feature.

    An empty cell is a missing value. Raises InvalidInput if the file is not CSV in UTF-8, lacks a needed column or has
    a line with another number of cells.
    """
    text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
    try:
        yield from _read_cells(csv.DictReader(text, restkey=""), task)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput([Fault("file", f"is not CSV in UTF-8: {error}")]) from error
    finally:
        text.detach()  # the caller closes the stream


def read_ndjson(stream: BinaryIO) -> Iterator[Row]:
    """Rows of a file with one event as JSON on each line. Lines are sent unchanged; empty ones are skipped."""
    for line in stream:
        event = line.removeprefix(b"\xef\xbb\xbf").strip()
        if event:
            yield Row(_without_reason(event))


def require_columns(names: Iterable[str]) -> None:
    """Raises InvalidInput if the file lacks a column that every event needs."""
    if missing := {"event_id", "at", "label"} - set(names):
        raise InvalidInput([Fault(name, "is not a column of the file") for name in sorted(missing)])


def _read_cells(reader: "csv.DictReader[str]", task: Task) -> Iterator[Row]:
    kinds = {feature.name: feature.kind for feature in task.features}
    require_columns(reader.fieldnames or ())
    for cells in reader:
        if "" in cells or None in cells.values():
            raise InvalidInput([Fault(f"line {reader.line_num}", "has another number of cells than the header")])
        cells.pop(REASON, None)
        yield encode_row(_event(cells, kinds, task.target), cells)


def _event(cells: Mapping[str, str], kinds: Mapping[str, Kind], target: Target) -> dict[str, Any]:
    event: dict[str, Any] = {
        "event_id": cells["event_id"],
        "at": cells["at"],
        "features": {
            name: None if cell == "" else read_cell(cell, kinds.get(name, "category"))
            for name, cell in cells.items()
            if name not in OWN_COLUMNS
        },
        "label": read_label(cells["label"], target),
    }
    if cells.get("known_at"):
        event["known_at"] = cells["known_at"]
    return event


def read_cell(cell: str, kind: Kind) -> int | float | bool | str:
    """The value of a feature of this kind, else the unchanged cell."""
    match kind:
        case "category":
            return unify_truth(cell)
        case "boolean":
            return TRUTHS.get(cell, cell)
    return _number(cell)


def read_label(cell: str, target: Target) -> int | float | str:
    """A class, or the number of a regression. `True` is the class `true`, unless the task lists `True`."""
    if target.kind == "regression":
        return _number(cell)
    return cell if target.classes is not None and cell in target.classes else unify_truth(cell)


def _number(cell: str) -> int | float | str:
    """A number that JSON can express, else the unchanged cell."""
    if not _NUMBER.fullmatch(cell):
        return cell
    if len(cell) <= _LONGEST_INTEGER and _INTEGER.fullmatch(cell):
        return int(cell)
    number = float(cell)
    return number if math.isfinite(number) else cell


def _without_reason(line: bytes) -> bytes:
    """The event without the reason that we wrote into an earlier file of rejects; any other line unchanged."""
    if REASON.encode() not in line:
        return line
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return line
    if not isinstance(event, dict) or REASON not in event:
        return line
    event.pop(REASON)
    return json.dumps(event, ensure_ascii=False).encode(errors="backslashreplace")  # JSON's escape of a lone surrogate
