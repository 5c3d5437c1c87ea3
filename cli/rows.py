"""Rows of a CSV file as events, for `morrow events import`.

Nothing is judged here: what does not look like a number, a time or a feature goes to the API as it stands, so
that the one validation there refuses it with its own words.
"""

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from contracts.errors import Fault, InvalidInput
from contracts.task import Task

_OWN_COLUMNS = ("event_id", "at", "known_at", "label")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[-+]?\d+", re.ASCII)
_LONGEST_INTEGER = 300  # longer ones no float64 can hold


def read_csv(stream: BinaryIO, task: Task) -> Iterator[dict[str, Any]]:
    """Events of a CSV file with a header: event_id, at, label, known_at where given, and a column for each feature.

    An empty cell is a missing value. Raises InvalidInput for a file that is not CSV in UTF-8, lacks a needed column
    or has a ragged line.
    """
    text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
    try:
        yield from _read(csv.DictReader(text, restkey=""), task)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput([Fault("file", f"is not CSV in UTF-8: {error}")]) from error
    finally:
        text.detach()  # the stream is its owner's to close


def _read(reader: "csv.DictReader[str]", task: Task) -> Iterator[dict[str, Any]]:
    numbers = {feature.name for feature in task.numbers}
    if missing := {"event_id", "at", "label"} - set(reader.fieldnames or ()):
        raise InvalidInput([Fault(name, "is not a column of the file") for name in sorted(missing)])
    for row in reader:
        if "" in row or None in row.values():
            raise InvalidInput([Fault(f"line {reader.line_num}", "has another number of cells than the header")])
        yield _event(row, numbers, task.is_classification)


def _event(row: Mapping[str, str], numbers: set[str], is_classification: bool) -> dict[str, Any]:
    event: dict[str, Any] = {
        "event_id": row["event_id"],
        "at": row["at"],
        "features": {
            name: None if cell == "" else _number(cell) if name in numbers else cell
            for name, cell in row.items()
            if name not in _OWN_COLUMNS
        },
        "label": row["label"] if is_classification else _number(row["label"]),
    }
    if row.get("known_at"):
        event["known_at"] = row["known_at"]
    return event


def _number(cell: str) -> int | float | str:
    """A number that JSON can say, else the cell as it stands."""
    if not _NUMBER.fullmatch(cell):
        return cell
    if len(cell) <= _LONGEST_INTEGER and _INTEGER.fullmatch(cell):
        return int(cell)
    number = float(cell)
    return number if math.isfinite(number) else cell
