"""Rows of a Parquet file as events, for `morrow events import`. Its columns have types, which JSON has fewer of.

pyarrow comes with MLflow, hence with the trainer; an installation of the API alone has none.
"""

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.importing.rows import OWN_COLUMNS, REASON, Row, encode_row, require_columns
from contracts.errors import Fault, InvalidInput, NotFound
from contracts.task import Task

if TYPE_CHECKING:
    import pyarrow.parquet as pq

ROWS_PER_PIECE = 1000


def open_parquet(file: Path) -> "pq.ParquetFile":
    """The file, opened. Raises NotFound where pyarrow is not installed, InvalidInput where it is no Parquet."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise NotFound("Parquet needs pyarrow: pip install 'morrow[trainer]', or convert the file to CSV.") from error
    try:
        return pq.ParquetFile(file)
    except pa.ArrowException as error:
        raise InvalidInput([Fault(str(file), f"is not Parquet: {error}")]) from error


def read_parquet(opened: "pq.ParquetFile", task: Task) -> Iterator[Row]:
    """Rows of the columns that CSV has too. Null and NaN are missing values; in a category or a class, whole numbers
    and truth values are read as CSV would spell them. Raises InvalidInput where a needed column is not there.
    """
    require_columns(opened.schema_arrow.names)
    numbers = {feature.name for feature in task.numbers}
    for piece in opened.iter_batches(ROWS_PER_PIECE):
        for cells in piece.to_pylist():
            yield encode_row(_event(cells, numbers, task.is_classification))


def _event(cells: Mapping[str, Any], numbers: set[str], is_classification: bool) -> dict[str, Any]:
    event = {name: _json_value(cells[name]) for name in ("event_id", "at")}
    event["features"] = {
        name: _json_value(cell) if name in numbers else _text(cell)
        for name, cell in cells.items()
        if name not in (*OWN_COLUMNS, REASON)
    }
    event["label"] = _text(cells["label"]) if is_classification else _json_value(cells["label"])
    if cells.get("known_at") is not None:
        event["known_at"] = _json_value(cells["known_at"])
    return event


def _json_value(cell: Any) -> Any:
    """As JSON says it; what it cannot say as text, which the API refuses where a number is asked for."""
    match cell:
        case None | bool() | int() | str():
            return cell
        case float() if math.isnan(cell):
            return None
        case float() if math.isfinite(cell):
            return cell
        case Decimal() if cell.is_finite():
            return float(cell)
        case datetime():
            return cell.isoformat()
    return str(cell)


def _text(cell: Any) -> Any:
    match cell:
        case bool():
            return str(cell).lower()
        case int():
            return str(cell)
    return _json_value(cell)
