"""Columns as arrays in PostgreSQL's binary format, built at once; the driver would write element by element.

An array of one dimension begins with five 32-bit integers. They are the number of dimensions, whether any element is
null, the type of an element, the length, and the first index. Each element follows, as its length in bytes and its
bytes. NumPy lays out elements of one width.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.adapt import Dumper, PyFormat
from psycopg.pq import Format

_HEAD = struct.Struct(">5i")
_NO_DIMENSION = struct.Struct(">3i")
_LENGTH = struct.Struct(">i")
# 2000-01-01 in microseconds: PostgreSQL counts its timestamps from there.
POSTGRES_EPOCH = 946_684_800_000_000


@dataclass(frozen=True, slots=True)
class BinaryArray:
    """An array in wire format, and the type of its elements."""

    element: Literal["bool", "float8", "text", "timestamp"]
    data: bytes


def bool_array(values: NDArray[np.bool_]) -> BinaryArray:
    """`bool[]` of `(n,)`."""
    return BinaryArray("bool", _head("bool", len(values)) + _of_one_width(values))


def float8_array(values: NDArray[np.float64]) -> BinaryArray:
    """`float8[]` of `(n,)`."""
    return BinaryArray("float8", _head("float8", len(values)) + _of_one_width(values.astype(">f8")))


def timestamp_array(micros: NDArray[np.int64]) -> BinaryArray:
    """`timestamp[]`, implicitly in UTC, of microseconds since the Unix epoch `(n,)`."""
    return BinaryArray(
        "timestamp", _head("timestamp", len(micros)) + _of_one_width((micros - POSTGRES_EPOCH).astype(">i8"))
    )


def text_array(texts: Sequence[str]) -> BinaryArray:
    """`text[]` of texts without NUL and lone surrogates."""
    encoded = [text.encode() for text in texts]
    return BinaryArray(
        "text", _head("text", len(texts)) + b"".join([_LENGTH.pack(len(text)) + text for text in encoded])
    )


def _head(element: str, length: int) -> bytes:
    oid = psycopg.adapters.types[element].oid
    return _HEAD.pack(1, 0, oid, length, 1) if length else _NO_DIMENSION.pack(0, 0, oid)


def _of_one_width(values: NDArray[Any]) -> bytes:
    elements = np.empty(len(values), [("length", ">i4"), ("value", values.dtype)])
    elements["length"] = values.dtype.itemsize
    elements["value"] = values
    return elements.tobytes()


class _ArrayDumper(Dumper):
    """Passes an array to the driver unchanged, under its own type."""

    format = Format.BINARY

    def get_key(self, obj: BinaryArray, format: PyFormat) -> tuple[type, str]:  # type: ignore[override]  # noqa: ARG002
        return self.cls, obj.element

    def upgrade(self, obj: BinaryArray, format: PyFormat) -> Dumper:  # noqa: ARG002
        dumper = type(self)(self.cls)
        dumper.oid = psycopg.adapters.types[obj.element].array_oid
        return dumper

    def dump(self, obj: BinaryArray) -> bytes:
        return obj.data


psycopg.adapters.register_dumper(BinaryArray, _ArrayDumper)
