"""Rows of a Parquet file as events, for `morrow events import`: its types are turned into the fewer ones of JSON.

A column is read as CSV would spell it. A type that no event can hold is refused by the column's name. pyarrow comes
with MLflow, and so with the trainer; an installation of the API alone lacks it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from cli.file_rows.columns import EVENT, Columns, match_columns
from cli.file_rows.rows import LABEL, Read, Row, RowReader, Unreadable, compile_reader
from cli.reading.numbers import find_style, settle_styles
from cli.reading.options import DEFAULTS, Options
from cli.reading.tables import find_dropped, refuse_twice
from contracts.clock import EPOCH
from contracts.errors import Fault, InvalidInput, NotFound
from contracts.spec.spec_values import EXACT_INTEGER
from contracts.task import Task, is_numeric

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROWS_PER_PIECE = 1000
_UNITS = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
_OUTSIDE = "is outside of the years 1 to 9999"
_LONGEST_REASON = 200

# The use of a column. Texts are categories and classes. A whole number is the same id as an integer and as a float.
Use = Literal["moment", "id", "text", "number"]


def open_parquet(file: Path | IO[bytes]) -> "pq.ParquetFile":
    """The opened file. Raises NotFound if pyarrow is not installed, InvalidInput if the file is not Parquet."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise NotFound("Parquet needs pyarrow: pip install 'morrow[trainer]', or convert the file to CSV.") from error
    name = str(file) if isinstance(file, Path) else "file"
    try:
        return pq.ParquetFile(file, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput([Fault(name, f"is not Parquet, or ends too early: {_shorten(error)}")]) from error


def read_parquet(opened: "pq.ParquetFile", task: Task, options: Options = DEFAULTS) -> Iterator[Row]:
    """Rows of the same columns as in CSV. Null and NaN are missing values.

    In a category or a class, integers and booleans are read as CSV spells them. Raises InvalidInput if a needed column
    is missing or of a type that no event holds, if two columns have one name, or if the file is damaged.
    """
    yield from read_events(opened, match_parquet(opened, task, options), task, options)


def match_parquet(
    opened: "pq.ParquetFile", task: Task, options: Options, needed_values: Sequence[str] = EVENT
) -> Columns:
    """The columns of a file. Raises InvalidInput as `read_parquet`."""
    names = opened.schema_arrow.names
    refuse_twice(names, find_dropped(names, options))
    columns = match_columns(names, task, options, needed_values)
    faults = [
        Fault(names[place], reason)
        for place, use in find_uses(columns, task).items()
        if (reason := refuse_type(opened.schema_arrow.field(place).type, use)) is not None
    ]
    if faults:
        raise InvalidInput(faults)
    return columns


def read_events(opened: "pq.ParquetFile", columns: Columns, task: Task, options: Options) -> Iterator[Row]:
    """The rows of these columns."""
    names = opened.schema_arrow.names
    uses = find_uses(columns, task)
    reader: RowReader | None = None
    num_rows = 0
    for piece in read_pieces(opened, [names[place] for place in uses]):
        values: list[Sequence[Any]] = [()] * len(names)
        for place, use in uses.items():
            values[place] = read_column(piece.column(piece.schema.names.index(names[place])), use)
        reader = reader or make_typed_reader(columns, task, options, values)
        rows = zip(
            *(values[place] if place in uses else [None] * len(piece) for place in range(len(names))), strict=True
        )
        for cells in rows:
            line, faults, is_sent = reader.read(cells)
            num_rows += 1
            yield Row(line, faults=faults, is_sent=is_sent, place=f"row {num_rows}")


def read_pieces(opened: "pq.ParquetFile", names: Sequence[str]) -> Iterator["pa.RecordBatch"]:
    """Some rows at a time of these columns. Raises InvalidInput if the file is damaged."""
    import pyarrow as pa

    pieces = opened.iter_batches(ROWS_PER_PIECE, columns=list(names))
    num_rows = 0
    while True:
        try:
            piece = next(pieces, None)
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = f"is damaged after row {num_rows}: {_shorten(error)}"
            raise InvalidInput([Fault("file", reason)]) from error
        if piece is None:
            return
        num_rows += len(piece)
        yield piece


def refuse_type(type_: "pa.DataType", use: Use) -> str | None:
    """Why no event can hold a column of this type; None if one can."""
    from pyarrow import types

    if types.is_dictionary(type_):
        inner = refuse_type(type_.value_type, use)
        return None if inner is None else f"is of the type {type_}, which no event holds"
    if _is_text(type_) or types.is_null(type_) or types.is_integer(type_):
        return None
    if _name_extension(type_) == "arrow.uuid":
        return None if use in ("id", "text") else f"is of the type {type_}, which is no {use}"
    if types.is_timestamp(type_) or types.is_date(type_):
        return f"is of the type {type_}, and its feature is a number" if use == "number" else None
    if types.is_floating(type_) or types.is_decimal(type_) or types.is_boolean(type_):
        is_refused = use == "moment" and types.is_boolean(type_)
        return f"is of the type {type_}, which is no moment" if is_refused else None
    return f"is of the type {type_}, which no event holds: save it as text or numbers, or leave it out by --drop"


def read_column(column: "pa.Array", use: Use) -> list[Any]:
    """The values of a column: texts, numbers, booleans and None, and `Unreadable` for what is none of these."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _name_extension(column.type) == "arrow.uuid":
        return [None if value is None else str(value) for value in column.to_pylist()]
    type_ = column.type
    if types.is_timestamp(type_):
        times, divided_by = _UNITS[type_.unit]
        return [_moment(value, times, divided_by, type_.tz) for value in column.cast(pa.int64()).to_pylist()]
    if types.is_date(type_):
        days = column.cast(pa.date32(), safe=False).cast(pa.int32()).to_pylist()
        return [None if value is None else _day(value) for value in days]
    if types.is_float16(type_):
        column = column.cast(pa.float32())
    values = _read_binary(column) if _is_binary(type_) else column.to_pylist()
    if use == "number":
        return [as_number(value) for value in values] if types.is_floating(type_) or types.is_decimal(type_) else values
    if types.is_string(type_) or types.is_large_string(type_) or _is_binary(type_):
        return values
    return [as_text(value, is_whole=use != "text") for value in values]


def make_typed_reader(columns: Columns, task: Task, options: Options, values: Sequence[Sequence[Any]]) -> RowReader:
    """The reader of typed rows: texts are read as in CSV, other values are taken."""
    numeric = {feature.name for feature in task.numbers if feature.kind != "boolean"}
    written = {name: _texts(values[place]) for name, place in columns.features if name in numeric}
    if columns.label is not None and not task.is_classification:
        written[LABEL] = _texts(values[columns.label])
    styles = settle_styles({name: find_style(texts, options.decimal) for name, texts in written.items()})
    reader = compile_reader(columns, task, options, styles, [_texts(values[place]) for place in columns.at[:1]])
    kinds = {feature.name: feature.kind for feature in task.features}
    return replace(
        reader,
        event_id=_typed(reader.event_id),
        moment=_typed(reader.moment, str),
        label=_typed(reader.label),
        features=[
            (name, place, _typed(read, _truth if kinds[name] == "boolean" else None))
            for name, place, read in reader.features
        ],
    )


def _typed(read: Read, convert: Callable[[Any], Any] | None = None) -> Read:
    """Reads texts; converts other values, so that they can be read, or takes them unchanged."""

    def read_typed(value: Any) -> Any:
        if isinstance(value, str):
            return read(value)
        if isinstance(value, Unreadable):
            raise ValueError(value.reason)
        if value is None or convert is None:
            return value
        return read(convert(value))

    return read_typed


def find_uses(columns: Columns, task: Task) -> Mapping[int, Use]:
    """The places of the columns to read, each with its use."""
    numeric = {feature.name for feature in task.features if is_numeric(feature.kind)}
    uses: dict[int, Use] = {place: "number" if name in numeric else "text" for name, place in columns.features}
    if columns.label is not None:
        uses[columns.label] = "text" if task.is_classification else "number"
    uses.update(dict.fromkeys(columns.id_from, "id"))
    if columns.event_id is not None:
        uses[columns.event_id] = "id"
    uses.update(dict.fromkeys([*columns.at, *([] if columns.known_at is None else [columns.known_at])], "moment"))
    return uses


def _texts(values: Sequence[Any]) -> list[str]:
    return [value for value in values if isinstance(value, str)]


def _is_text(type_: "pa.DataType") -> bool:
    from pyarrow import types

    return types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_) or _is_binary(type_)


def _is_binary(type_: "pa.DataType") -> bool:
    from pyarrow import types

    tests = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    return any(test(type_) for test in tests)


def _name_extension(type_: "pa.DataType") -> str | None:
    name: str | None = getattr(type_, "extension_name", None)
    return name


def _read_binary(column: "pa.Array") -> list[Any]:
    """Bytes as texts in UTF-8: many writers of strings leave out the mark that says so."""
    return [None if value is None else _decode(value) for value in column.to_pylist()]


def _decode(value: bytes) -> str | Unreadable:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return Unreadable(f"holds bytes that are no text in UTF-8: {value[:20].hex(' ')}")


def _moment(value: int | None, times: int, divided_by: int, zone: str | None) -> Any:
    """A timestamp in RFC 3339, without an offset if the column has no zone. The zone's name does not matter."""
    if value is None:
        return None
    try:
        moment = EPOCH + timedelta(microseconds=value * times // divided_by)
    except OverflowError:
        return Unreadable(_OUTSIDE)
    return (moment.replace(tzinfo=None) if zone is None else moment).isoformat()


def _day(value: int) -> Any:
    try:
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    except OverflowError:
        return Unreadable(_OUTSIDE)


def as_number(value: Any) -> Any:
    """A number in JSON's types. Infinity becomes text, which the API refuses."""
    match value:
        case float() if math.isnan(value):
            return None
        case float() if not math.isfinite(value):
            return str(value)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
    return value


def as_text(value: Any, *, is_whole: bool = False) -> Any:  # noqa: PLR0911 a case for each type
    """A value as CSV would spell it; with `is_whole`, a float such as 1.0 is the integer 1."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float() if math.isnan(value):
            return None
        case float() if abs(value) >= EXACT_INTEGER and math.isfinite(value):
            return Unreadable(f"is {value!r}, a float of which digits may be lost: save it as integers or text")
        case float() if is_whole and value.is_integer():
            return str(int(value))
        case float():
            return repr(value)
        case Decimal() if is_whole and value == value.to_integral_value():
            return str(int(value))
        case Decimal():
            return format(value, "f")
    return value


def _truth(value: Any) -> str:
    """A number as a boolean is spelled in text; others are left for the API to refuse."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


def _shorten(error: Exception) -> str:
    words = str(error).strip().splitlines() or [type(error).__name__]
    return words[0][:_LONGEST_REASON]
