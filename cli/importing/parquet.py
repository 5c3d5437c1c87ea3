"""Rows of a Parquet file as events, for `morrow events import`: its types are turned into the fewer ones of JSON.

pyarrow comes with MLflow, and so with the trainer; an installation of the API alone lacks it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.importing.rows import OWN_COLUMNS, REASON, Row, encode_row, require_columns
from contracts.errors import Fault, InvalidInput, NotFound
from contracts.task import Kind, Target, Task
from contracts.truth import TRUTHS, unify_truth

if TYPE_CHECKING:
    import pyarrow.parquet as pq

ROWS_PER_PIECE = 1000


def open_parquet(file: Path) -> "pq.ParquetFile":
    """The opened file. Raises NotFound if pyarrow is not installed, InvalidInput if the file is not Parquet."""
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
    """Rows of the same columns as in CSV. Null and NaN are missing values.

    In a category or a class, integers and booleans are read as CSV spells them. Raises InvalidInput if a needed column
    is missing.
    """
    require_columns(opened.schema_arrow.names)
    kinds = {feature.name: feature.kind for feature in task.features}
    for piece in opened.iter_batches(ROWS_PER_PIECE):
        for cells in piece.to_pylist():
            yield encode_row(_event(cells, kinds, task.target))


def _event(cells: Mapping[str, Any], kinds: Mapping[str, Kind], target: Target) -> dict[str, Any]:
    event = {name: _json_value(cells[name]) for name in ("event_id", "at")}
    event["features"] = {
        name: _read_cell(cell, kinds.get(name, "category"))
        for name, cell in cells.items()
        if name not in (*OWN_COLUMNS, REASON)
    }
    label = cells["label"]
    event["label"] = _json_value(label) if target.kind == "regression" else _spell(_text(label), target.classes or ())
    if cells.get("known_at") is not None:
        event["known_at"] = _json_value(cells["known_at"])
    return event


def _read_cell(cell: Any, kind: Kind) -> Any:
    """The value of a feature of this kind, else the unchanged cell in JSON's types."""
    match kind:
        case "category":
            return _spell(_text(cell))
        case "boolean" if isinstance(cell, str | int):
            return TRUTHS.get(str(cell), cell)
    return _json_value(cell)


def _spell(text: Any, classes: Sequence[str] = ()) -> Any:
    """A text as CSV spells it: `True` is `true`, unless it is a listed class."""
    return unify_truth(text) if isinstance(text, str) and text not in classes else text


def _json_value(cell: Any) -> Any:
    """The cell in JSON's types. A value that JSON cannot express becomes text, which the API refuses for a number."""
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
