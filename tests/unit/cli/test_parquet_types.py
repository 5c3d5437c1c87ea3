"""Parquet as writers make it: what CSV would say is read, other types are refused by column, and damage is said."""

import json
import struct
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.file_rows.parquet import open_parquet, read_parquet
from cli.file_rows.rows import Row
from cli.reading.options import Options
from contracts.errors import InvalidInput
from tests.unit.cli.test_import_rows import CLASSIFICATION

BASE: dict[str, Any] = {
    "event_id": ["a"],
    "at": ["2026-01-01T00:00:00Z"],
    "label": ["late"],
    "distance": [1.5],
    "carrier": ["UA"],
}


def rows_of(path: Path, options: Options) -> list[Row]:
    with open_parquet(path) as opened:
        return list(read_parquet(opened, CLASSIFICATION, options))


def read(folder: Path, options: Options = Options(), **columns: Any) -> list[Row]:  # noqa: B008 it is frozen
    path = folder / "x.parquet"
    pq.write_table(pa.table({**BASE, **columns}), path)
    return rows_of(path, options)


def event_of(folder: Path, **columns: Any) -> Any:
    (row,) = read(folder, **columns)
    assert row.is_sent
    return json.loads(row.line)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(2), pa.string(), pa.large_string()])
def test_texts_are_read_whether_marked_as_utf8_or_not(tmp_path: Path, kind: pa.DataType) -> None:
    event = event_of(
        tmp_path, event_id=pa.array([b"e1"], kind), label=pa.array([b"ok"], kind), carrier=pa.array([b"UA"], kind)
    )
    assert (event["event_id"], event["label"], event["features"]["carrier"]) == ("e1", "ok", "UA")


def test_bytes_that_are_no_text_are_refused_by_row(tmp_path: Path) -> None:
    (row,) = read(tmp_path, carrier=pa.array([b"\xff\x00"]))
    assert not row.is_sent
    assert (row.faults[0].field, "no text in UTF-8: ff 00" in row.faults[0].reason) == ("features.carrier", True)
    assert b"xff" not in row.line


@pytest.mark.parametrize(
    "column",
    [
        pa.array([["n"]]),
        pa.array([{"a": 1}]),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([time(1, 2)]),
        pa.array([timedelta(1)]),
        pa.array([["n"]], pa.large_list(pa.string())),
        pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2)),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize("name", ["carrier", "distance", "event_id", "at", "label"])
def test_a_type_that_no_event_holds_is_refused_by_column_and_type(tmp_path: Path, name: str, column: pa.Array) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, **{name: column})
    assert caught.value.faults[0].field == name
    assert f"is of the type {pq.read_schema(tmp_path / 'x.parquet').field(name).type}" in str(caught.value)


def test_an_unused_column_may_be_of_any_type(tmp_path: Path) -> None:
    assert event_of(tmp_path, tags=pa.array([["n"]]))["features"] == {"distance": 1.5, "carrier": "UA"}


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array([7]), "7"),
        (pa.array([7], pa.uint64()), "7"),
        (pa.array([7.0]), "7.0"),
        (pa.array([Decimal("7.50")]), "7.50"),
        (pa.array([Decimal("12345678901234567890")]), "12345678901234567890"),
        (pa.array([True]), "true"),
        (pa.array([date(2026, 1, 31)]), "2026-01-31"),
        (pa.array([datetime(2026, 1, 31, tzinfo=UTC)]), "2026-01-31T00:00:00+00:00"),
        (pa.array([7]).dictionary_encode(), "7"),
        (pa.array(["x"]).dictionary_encode(), "x"),
        (
            pa.array([UUID(int=7).bytes], pa.uuid()) if hasattr(pa, "uuid") else pa.array([str(UUID(int=7))]),
            str(UUID(int=7)),
        ),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
@pytest.mark.parametrize("name", ["event_id", "carrier", "label"])
def test_ids_classes_and_categories_are_what_csv_would_say(
    tmp_path: Path, name: str, column: pa.Array, text: str
) -> None:
    event = event_of(tmp_path, **{name: column})
    if name == "event_id" and text == "7.0":
        text = "7"  # a whole number is one id, however it is stored
    assert event["features"][name] if name == "carrier" else event[name] == text


def test_a_float_id_that_may_have_lost_digits_is_refused(tmp_path: Path) -> None:
    (row,) = read(tmp_path, event_id=[float(2**60)])
    assert not row.is_sent
    assert "digits may be lost" in row.faults[0].reason


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1_790_000_000], pa.timestamp("s", "UTC")),
        pa.array([1_790_000_000_000], pa.timestamp("ms", "Europe/Berlin")),
        pa.array([1_790_000_000_000_000_123], pa.timestamp("ns", "UTC")),
        pa.array([1_790_000_000]),
    ],
    ids=lambda column: str(column.type),
)
def test_a_moment_of_any_unit_and_zone_is_the_same(tmp_path: Path, column: pa.Array) -> None:
    assert datetime.fromisoformat(event_of(tmp_path, at=column)["at"]) == datetime.fromtimestamp(1_790_000_000, UTC)


def test_a_moment_without_a_zone_needs_one(tmp_path: Path) -> None:
    for column in (pa.array([datetime(2026, 7, 1)]), pa.array([date(2026, 7, 1)])):  # noqa: DTZ001 files hold local times
        (row,) = read(tmp_path, at=column)
        assert "has no offset" in row.faults[0].reason
        (row,) = read(tmp_path, Options(timezone="Europe/Berlin"), at=column)
        assert json.loads(row.line)["at"] == "2026-06-30T22:00:00Z"


@pytest.mark.parametrize("name", ["at", "carrier"])
@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("ms"), pa.date32()])
def test_a_year_beyond_the_calendar_is_refused_by_row(tmp_path: Path, kind: pa.DataType, name: str) -> None:
    days = 365 * 10_030 + 3000
    value = {pa.timestamp("us", "UTC"): days * 86_400_000_000, pa.timestamp("ms"): days * 86_400_000}.get(kind, days)
    (row,) = read(tmp_path, **{name: pa.array([value], pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)})
    assert not row.is_sent
    assert "outside of the years 1 to 9999" in row.faults[0].reason


def test_numbers_as_texts_are_read_as_in_csv(tmp_path: Path) -> None:
    assert event_of(tmp_path, distance=["1.234,5 €"])["features"]["distance"] == 1234.5


def test_a_column_named_twice_is_refused_by_its_name(tmp_path: Path) -> None:
    table = pa.table([*map(pa.array, BASE.values()), pa.array([2.0])], names=[*BASE, "distance"])
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(InvalidInput, match="distance: names columns 4 and 6"):
        rows_of(tmp_path / "x.parquet", Options())


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1", b"event_id,at\n"])
def test_a_file_that_is_not_parquet_says_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(InvalidInput, match="is not Parquet, or ends too early"):
        rows_of(tmp_path / "x.parquet", Options())


def test_a_truncated_file_and_a_damaged_page_are_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({name: values * 1000 for name, values in BASE.items()}), path, write_page_checksum=True)
    whole = path.read_bytes()
    (length,) = struct.unpack("<I", whole[-8:-4])
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidInput, match="ends too early"):
        rows_of(path, Options())
    body = bytearray(whole)
    middle = (len(body) - length - 8) // 2
    body[middle : middle + 8] = bytes(byte ^ 0xFF for byte in body[middle : middle + 8])
    path.write_bytes(body)
    with pytest.raises(InvalidInput, match="is damaged after row 0"):
        rows_of(path, Options())
