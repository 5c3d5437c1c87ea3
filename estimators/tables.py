"""Features, moments and labels of a notebook as one Arrow table, which is read as a Parquet file is."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

AT, LABEL = "at", "y"
# The units of moments that Arrow has; NumPy has coarser ones too.
_UNITS = ("s", "ms", "us", "ns")


@dataclass(frozen=True)
class Table:
    """One row for each row of X. `at` and `label` name the columns of moments and labels; questions have no label."""

    columns: pa.Table
    at: str
    label: str | None

    @property
    def categories(self) -> tuple[str, ...]:
        """The columns that a frame calls categories, whatever their values look like."""
        return tuple(field.name for field in self.columns.schema if types.is_dictionary(field.type))

    def open(self) -> pq.ParquetFile:
        """The table as an opened Parquet file."""
        content = BytesIO()
        pq.write_table(self.columns, content)
        content.seek(0)
        return pq.ParquetFile(content)


def is_frame(X: Any) -> bool:
    """Whether it is an Arrow table or a frame of pandas or polars with named columns.

    A frame of pandas whose columns have numbers alone is an array, as in scikit-learn.
    """
    if isinstance(X, pa.Table) or hasattr(X, "to_arrow"):
        return True
    return hasattr(X, "iloc") and any(isinstance(name, str) for name in X.columns)


def take_moments(X: Any, t: Any) -> tuple[Any, Any]:
    """X and its moments; if `t` names a column, it is taken out of X. Raises ValueError."""
    if not isinstance(t, str):
        return X, t
    if not is_frame(X):
        raise ValueError(f"t is {t!r}, and X has no named columns: give the moments themselves, one for each row")
    names = X.column_names if isinstance(X, pa.Table) else [*X.columns]
    if t not in names:
        raise ValueError(f"t is {t!r}, which is no column of X ({', '.join(map(str, names))})")
    moments = X[t]
    if isinstance(X, pa.Table):
        return X.drop_columns([t]), moments
    return (X.drop(columns=t) if hasattr(X, "iloc") else X.drop(t)), moments


def make_table(X: Any, t: Any, y: Any = None, *, at: str, label: str | None = None) -> Table:
    """The table of X, an array or a frame, with the moments `t` and the labels `y`. Raises ValueError.

    `at` and `label` name their columns.
    """
    columns = _as_columns(X)
    given = [(at, t, "t")] if label is None else [(at, t, "t"), (label, y, "y")]
    for name, values, what in given:
        if name in columns.column_names:
            raise ValueError(f"X has a column {name!r}, as {what} is named: give one of them another name")
        columns = columns.append_column(name, as_column(values, what))
    return Table(columns, at, label)


def _as_columns(X: Any) -> pa.Table:
    if isinstance(X, pa.Table):
        return X
    try:
        if hasattr(X, "to_arrow"):
            return X.to_arrow()
        if hasattr(X, "iloc"):
            with _pandas_as_pyarrow_asks():
                return pa.Table.from_pandas(X, preserve_index=False)
        return pa.table({f"x{place}": as_column(X[:, place], "X") for place in range(X.shape[1])})
    except (pa.ArrowException, TypeError) as error:
        raise ValueError(f"X has a column of values of different types: {error}") from error


def as_column(values: Any, what: str) -> "pa.Array | pa.ChunkedArray":
    """A column of any sequence. Raises ValueError."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if hasattr(values, "to_arrow"):
        return values.to_arrow()
    if isinstance(values, np.ndarray) and values.dtype.kind in "OU":
        values = values.tolist()
    elif isinstance(values, np.ndarray) and values.dtype.kind == "M":
        values = values.astype(f"M8[{unit}]" if (unit := np.datetime_data(values.dtype)[0]) in _UNITS else "M8[s]")
    try:
        with _pandas_as_pyarrow_asks():
            return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError) as error:
        raise ValueError(f"{what} holds values that are no column of one type: {error}") from error


@contextmanager
def _pandas_as_pyarrow_asks() -> Iterator[None]:
    """Without pandas' warning that pyarrow reads moments with a zone in a deprecated way: no caller can change that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def name_of(values: Any, default: str) -> str:
    """The name of a series, or else this one."""
    name = getattr(values, "name", None)
    return name if isinstance(name, str) and name else default
