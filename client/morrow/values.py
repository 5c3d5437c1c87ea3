"""How values of Python, NumPy, pandas and polars become JSON, and frames become rows. NaN, NaT and NA are missing.

None of these libraries is imported: their scalars and frames are told by their methods.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import Any

import msgspec

from morrow.errors import NaiveMoment

Row = Mapping[str, Any]


def plain(value: Any) -> Any:
    """A value of a feature or label as JSON has it: None, a boolean, a number or a text.

    Raises TypeError for anything else.
    """
    if value is None or isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float | Decimal):
        number = float(value)
        if math.isinf(number):
            raise TypeError("is infinite")
        return None if math.isnan(number) else number
    if type(value).__name__ in {"NAType", "NaTType"}:
        return None
    if hasattr(value, "item") and getattr(value, "shape", ()) == ():
        return plain(value.item())
    raise TypeError(f"{value!r} is of type {type(value).__name__}: a feature or label is a number, a text or a boolean")


def to_moment(value: Any, timezone: tzinfo | None) -> datetime:
    """A moment with its time zone, to the microsecond; `timezone` reads one that has none.

    Takes datetimes, also those of pandas and NumPy, and RFC 3339 texts. Raises NaiveMoment or TypeError.
    """
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
    elif type(value).__name__ == "datetime64":
        moment = value.astype("datetime64[us]").item()
    elif type(value).__name__ == "Timestamp":
        moment = value.to_pydatetime(warn=False)
    else:
        moment = value
    if not isinstance(moment, datetime) or type(moment).__name__ == "NaTType":
        raise TypeError(f"{value!r} is no moment: give a datetime")
    if moment.tzinfo is None:
        if timezone is None:
            raise NaiveMoment(value)
        moment = moment.replace(tzinfo=timezone)
    return moment.astimezone(UTC)


def to_features(values: Row) -> dict[str, Any]:
    """Features by name, without missing ones. Raises TypeError with the name of a value that is no feature."""
    found = {}
    for name, value in values.items():
        try:
            made = plain(value)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        if made is not None:
            found[str(name)] = made
    return found


def to_rows(rows: Any) -> Iterator[Row]:
    """The rows of a frame of pandas, polars or Arrow, or of any iterable of mappings."""
    if hasattr(rows, "iter_rows"):  # polars
        yield from rows.iter_rows(named=True)
    elif hasattr(rows, "to_pylist"):  # Arrow
        yield from rows.to_pylist()
    elif hasattr(rows, "itertuples"):  # pandas
        names = list(rows.columns)
        yield from (dict(zip(names, one, strict=True)) for one in rows.itertuples(index=False, name=None))
    else:
        yield from rows


def add_columns(frame: Any, columns: Mapping[str, Sequence[Any]]) -> Any:
    """A new frame of pandas or polars with columns added at its right, and with its index if it has one."""
    if hasattr(frame, "assign"):
        return frame.assign(**{name: list(values) for name, values in columns.items()})
    return frame.hstack(type(frame)({name: list(values) for name, values in columns.items()}))


def chunked(rows: Iterable[bytes], most_rows: int, most_bytes: int) -> Iterator[list[bytes]]:
    """Encoded rows in lists of at most `most_rows`, and of at most `most_bytes` unless one row is longer."""
    chunk: list[bytes] = []
    size = 0
    for row in rows:
        if chunk and (len(chunk) == most_rows or size + len(row) > most_bytes):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += len(row) + 1
    if chunk:
        yield chunk


encode = msgspec.json.Encoder().encode
