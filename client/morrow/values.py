"""How values of Python, NumPy, pandas and polars become JSON, and frames become rows. NaN, NaT and NA are missing.

None of these libraries is imported: their scalars and frames are told by their methods.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from morrow.errors import NaiveMoment

Row = Mapping[str, Any]

# Up to here, a float holds every whole number.
_EXACT = 2**53
# The types of pandas' NA and NaT and of NumPy's masked values, by name.
_MISSING = {"NAType", "NaTType", "MaskedConstant"}


def is_missing(value: Any) -> bool:
    """Whether this stands for a missing value in any of these libraries."""
    if value is None or type(value).__name__ in _MISSING:
        return True
    return isinstance(value, float) and math.isnan(value)


def plain(value: Any) -> Any:
    """A value of a feature or label as JSON has it: None, a boolean, a number or a text.

    Raises TypeError for anything else.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # the value of an enumeration's member, not its name
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float | Decimal):
        number = float(value)
        if math.isinf(number):
            raise TypeError("is infinite")
        return None if math.isnan(number) else number
    if type(value).__name__ in _MISSING:
        return None
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    if hasattr(value, "item") and getattr(value, "shape", ()) == () and kind not in ("M", "m"):
        return plain(float(value) if kind == "f" else value.item())
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
    found = moment.astimezone(UTC)
    return datetime.combine(found.date(), found.timetz())  # subclasses of datetime have no JSON


def to_features(values: Row) -> dict[str, Any]:
    """Features by name, without missing ones. Raises TypeError with the name of a value that is no feature.

    A frame turns 18 into 18.0 if another cell of the column is missing: the category is `18` all the same.
    """
    found = {}
    for name, value in values.items():
        try:
            made = plain(value)
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        if made is not None:
            is_whole = isinstance(made, float) and made.is_integer() and abs(made) <= _EXACT
            found[str(name)] = int(made) if is_whole else made
    return found


def to_id(value: Any) -> str:
    """An event's id: a text, a whole number or a UUID. Raises TypeError for anything else."""
    found = str(value) if isinstance(value, UUID) else plain(value)
    if not isinstance(found, int | str) or isinstance(found, bool):
        raise TypeError(f"{value!r} is no id: give a text or a whole number")
    return str(found)


def to_rows(rows: Any) -> Iterator[Row]:
    """The rows of a frame of pandas, polars or Arrow, or of any iterable of mappings.

    Raises TypeError for other things, and ValueError for a frame in which two columns have one name.
    """
    if isinstance(rows, str | bytes | Mapping) or type(rows).__name__ == "LazyFrame":
        raise TypeError(f"rows is of type {type(rows).__name__}: give a frame or a list of mappings")
    if hasattr(rows, "iter_rows"):  # polars
        yield from rows.iter_rows(named=True)
    elif hasattr(rows, "to_batches"):  # Arrow's table
        _require_names(rows.schema.names)
        for batch in rows.to_batches():
            yield from batch.to_pylist()
    elif hasattr(rows, "itertuples"):  # pandas
        names = list(rows.columns)
        _require_names(names)
        yield from (dict(zip(names, one, strict=True)) for one in rows.itertuples(index=False, name=None))
    else:
        for number, row in enumerate(rows):
            if not hasattr(row, "items"):
                raise TypeError(f"row {number} is of type {type(row).__name__}: give mappings of names to values")
            yield row


def _require_names(names: Sequence[Any]) -> None:
    if levels := next((name for name in names if isinstance(name, tuple)), None):
        raise ValueError(f"the columns have several levels, such as {levels}: give each one name")
    if twice := next((name for name, count in Counter(map(str, names)).items() if count > 1), None):
        raise ValueError(f"two columns are named {twice}: rename one")


def require_room(frame: Any, names: Iterable[str]) -> None:
    """Raises TypeError if this is no frame of pandas or polars, and ValueError if it has a column of such a name."""
    if not hasattr(frame, "assign") and not hasattr(frame, "hstack"):
        raise TypeError(f"a {type(frame).__name__} takes no new columns: give a frame of pandas or polars")
    if taken := [name for name in names if name in frame.columns]:
        raise ValueError(f"the frame has a column {taken[0]} already: rename it")


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
