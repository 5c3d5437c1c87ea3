"""Rows of the log in the binary form of COPY, in which a worker keeps them until they are stored.

The form is PostgreSQL's: the number of fields, then each field with its length, -1 for null. So nothing is escaped,
and a buffer of rows is sent as it is.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

COLUMNS = ("id", "task_id", "version", "at", "key_name", "features", "answer")
# Before the first row and after the last one.
HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
TRAILER = b"\xff\xff"
# Microseconds from 1970 to 2000, from which PostgreSQL counts.
_EPOCH = 946_684_800_000_000

_BEGIN = struct.pack(">hi", len(COLUMNS), 16)
# Where a row has the first digits of its id, of which its bucket is made.
FIRST_DIGITS = slice(len(_BEGIN), len(_BEGIN) + 4)
_NULL = b"\xff\xff\xff\xff"
_LENGTH = struct.Struct(">i")
_TASK = struct.Struct(">ii")
_MOMENT = struct.Struct(">iq")


@dataclass(frozen=True, slots=True)
class LogRow:
    """A row in a buffer: whose it is, and where it begins and ends."""

    prediction_id: UUID
    task_id: int
    begin: int
    end: int


def write_source(task_id: int, version: str) -> bytes:
    """The fields that all answers of a version share."""
    return _TASK.pack(4, task_id) + _write_text(version.encode())


def write_row(
    prediction_id: bytes, source: bytes, at: int, *, key_name: str | None, features: bytes | None, answer: bytes
) -> bytes:
    """A row. `source` is of `write_source`, `at` in microseconds, features and answer in JSON."""
    return b"".join(
        (
            _BEGIN,
            prediction_id,
            source,
            _MOMENT.pack(8, at - _EPOCH),
            _NULL if key_name is None else _write_text(key_name.encode()),
            _NULL if features is None else _LENGTH.pack(len(features)) + features,
            _LENGTH.pack(len(answer)),
            answer,
        )
    )


def split_rows(rows: bytes) -> Iterator[LogRow]:
    """The rows of a buffer. Raises ValueError if it holds anything else."""
    begin = 0
    while begin < len(rows):
        place = begin + len(_BEGIN)
        if rows[begin:place] != _BEGIN:
            raise ValueError(f"no row of the log begins at byte {begin}")
        prediction_id = UUID(bytes=rows[place : place + 16])
        place += 16
        _, task_id = _TASK.unpack_from(rows, place)
        place += _TASK.size
        for _ in COLUMNS[2:]:
            (length,) = _LENGTH.unpack_from(rows, place)
            place += _LENGTH.size + max(length, 0)
        if place > len(rows):
            raise ValueError(f"the row of the log at byte {begin} is cut off")
        yield LogRow(prediction_id, task_id, begin, place)
        begin = place


def _write_text(text: bytes) -> bytes:
    return _LENGTH.pack(len(text)) + text
