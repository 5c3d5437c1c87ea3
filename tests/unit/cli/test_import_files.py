"""What `morrow events import` makes of NDJSON and Parquet, what it keeps of refused rows, and where it goes on."""

import csv
import io
import json
import os
import zipfile
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.file_rows.formats import choose_format
from cli.file_rows.parquet import open_parquet, read_parquet
from cli.file_rows.reasons import Refused, add_reasons, find_refused_rows
from cli.file_rows.rejects import append_rejects, cut_rejects, keep_edited, name_rejects
from cli.file_rows.rows import Row, encode_row, read_csv, read_ndjson
from cli.importing.bookmark import Bookmark, describe_source, read_bookmark, write_bookmark
from cli.reading.sources import open_source
from contracts.errors import Fault, InvalidInput, Unavailable
from tests.unit.cli.test_import_rows import CLASSIFICATION, HEADER, REGRESSION

EVENT = {"event_id": "a", "at": "2026-01-01T00:00:00Z", "features": {"distance": 1}, "label": "late"}


def test_a_suffix_says_the_format_unless_it_is_given() -> None:
    assert choose_format(Path("x.CSV"), None) == "csv"
    assert choose_format(Path("x.jsonl"), None) == "ndjson"
    assert choose_format(Path("x.txt"), "parquet") == "parquet"
    with pytest.raises(InvalidInput, match=r"x\.txt: ends in none of \.csv, .*name its --format"):
        choose_format(Path("x.txt"), None)


def test_lines_of_json_are_sent_as_they_stand() -> None:
    odd = b'{"event_id": "a", "at": 1e400, "event_id": "b"}'
    lines = [row.line for row in read_ndjson(io.BytesIO(b"\xef\xbb\xbf" + odd + b"\r\n\n  \nnot json\n[1]"))]
    assert lines == [odd, b"not json", b"[1]"]


def write_parquet(path: Path, columns: dict[str, Any]) -> list[dict[str, Any]]:
    pq.write_table(pa.table(columns), path)
    with open_parquet(path) as opened:
        return [json.loads(row.line) for row in read_parquet(opened, CLASSIFICATION)]


def test_columns_of_parquet_become_what_csv_would_say(tmp_path: Path) -> None:
    events = write_parquet(
        tmp_path / "x.parquet",
        {
            "event_id": ["a", "b", "c"],
            "at": pa.array([datetime(2026, 1, 1, 12, tzinfo=UTC)] * 3, pa.timestamp("us", "UTC")),
            "label": [1, 0, 1],
            "distance": [1.5, float("nan"), float("inf")],
            "carrier": pa.array(["UA", None, "AA"]).dictionary_encode(),
        },
    )
    assert [event["at"] for event in events] == ["2026-01-01T12:00:00+00:00"] * 3
    assert [event["label"] for event in events] == ["1", "0", "1"]
    assert [event["features"] for event in events] == [
        {"distance": 1.5, "carrier": "UA"},
        {"distance": None, "carrier": None},
        {"distance": "inf", "carrier": "AA"},  # no number of JSON: the API refuses it by the feature's name
    ]


def test_a_moment_without_an_offset_stays_one_for_the_api_to_refuse(tmp_path: Path) -> None:
    naive = pa.array([datetime(2026, 1, 1)], pa.timestamp("ns"))  # noqa: DTZ001 files hold local times
    (event,) = write_parquet(
        tmp_path / "x.parquet",
        {"event_id": ["a"], "at": naive, "label": ["late"], "distance": [Decimal("1.25")], "carrier": [True]},
    )
    assert event["at"] == "2026-01-01T00:00:00"
    assert event["features"] == {"distance": 1.25, "carrier": "true"}


def test_a_parquet_without_a_needed_column_names_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="label: is not a column"):
        write_parquet(tmp_path / "x.parquet", {"event_id": ["a"], "at": ["2026-01-01T00:00:00Z"]})


def test_a_file_of_another_kind_is_no_parquet(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("event_id,at\n")
    with pytest.raises(InvalidInput, match="is not Parquet"):
        open_parquet(tmp_path / "x.parquet")


def test_refused_rows_are_found_by_their_line() -> None:
    batch = [encode_row({**EVENT, "event_id": name}) for name in "abc"]
    results: list[dict[str, Any]] = [
        {"event_id": "a", "status": "duplicate", "line": 1},
        {"event_id": "c", "status": "conflict", "line": 3},
        {"event_id": None, "status": "rejected", "line": 2, "errors": [{"field": "at", "reason": "is required"}]},
    ]
    assert [(one.row, one.sentence) for one in find_refused_rows(batch, results)] == [
        (batch[2], "c: is stored with other content (`morrow events correct --help` says how to correct it)"),
        (batch[1], "(no event_id): at: is required"),
    ]


def test_rejects_of_a_csv_are_a_csv_that_can_be_imported_again(tmp_path: Path) -> None:
    path = name_rejects(Path("trips.csv"), tmp_path, is_csv=True)
    rows = list(read_csv(io.BytesIO((HEADER + 'a,T,late,"1,5",UA\nb,T,"on\ntime",2,\n').encode()), CLASSIFICATION))
    append_rejects(path, [(rows[0], 'features.distance: is a string, "1,5"')])
    append_rejects(path, [(rows[1], "at: has no offset")])
    assert path.name == "trips.rejected.csv"
    with path.open(newline="") as stream:
        written = list(csv.DictReader(stream))
    assert [row["_reason"] for row in written] == ['features.distance: is a string, "1,5"', "at: has no offset"]
    with path.open("rb") as again:
        assert [row.line for row in read_csv(again, CLASSIFICATION)] == [row.line for row in rows]


def test_rejects_of_ndjson_are_ndjson_that_can_be_imported_again(tmp_path: Path) -> None:
    path = name_rejects(Path("trips.parquet"), tmp_path, is_csv=False)
    lone = {**EVENT, "label": "\ud800", "event_id": "ü"}
    rows = [Row(json.dumps(lone).encode()), Row(b"not json"), Row(b'["a"]')]
    append_rejects(path, [(row, "why") for row in rows])
    assert path.name == "trips.rejected.ndjson"
    with path.open("rb") as stream:
        again = [json.loads(row.line) for row in read_ndjson(stream)]
    assert again == [lone, {"_line": "not json"}, {"_line": '["a"]'}]
    assert [json.loads(line)["_reason"] for line in path.read_text().splitlines()] == ["why"] * 3


def test_rejects_are_cut_back_to_what_the_bookmark_tells_of(tmp_path: Path) -> None:
    path = tmp_path / "trips.rejected.ndjson"
    told = append_rejects(path, [(encode_row(EVENT), "first")])
    append_rejects(path, [(encode_row(EVENT), "second")])
    cut_rejects(path, told)
    assert [json.loads(line)["_reason"] for line in path.read_text().splitlines()] == ["first"]
    cut_rejects(path, 0)
    assert append_rejects(path, []) == 0
    assert not path.exists()


def test_a_rejects_file_that_was_edited_is_kept_under_the_next_free_number(tmp_path: Path) -> None:
    path, second, third = (tmp_path / f"trips.rejected{number}.csv" for number in ("", "-2", "-3"))
    refused = [(encode_row(EVENT), "why")]
    assert keep_edited(path) is None
    told = append_rejects(path, refused)
    append_rejects(path, refused)
    assert keep_edited(path) is None
    cut_rejects(path, told)
    assert keep_edited(path) is None
    second.write_text("other work")
    edited = path.read_text().replace("why", "who")
    path.write_text(edited)
    assert keep_edited(path) == f"{path} was edited since it was written, and is kept as {third}."
    assert (path.exists(), second.read_text(), third.read_text()) == (False, "other work", edited)


def test_an_import_goes_on_only_with_the_same_file_task_and_api(tmp_path: Path) -> None:
    file, place = tmp_path / "trips.csv", tmp_path / "trips.csv.bookmark"
    file.write_text(HEADER)
    source = describe_source("http://here", "trips", file)
    assert read_bookmark(place, source) == Bookmark(source)
    mark = Bookmark(source, 2000, {"created": 1999, "rejected": 1}, 84)
    write_bookmark(place, mark)
    assert read_bookmark(place, source) == mark
    for other in (describe_source("http://there", "trips", file), describe_source("http://here", "flights", file)):
        assert read_bookmark(place, other) == Bookmark(other)
    os.utime(file, (0, 0))
    assert read_bookmark(place, describe_source("http://here", "trips", file)).num_rows == 0
    place.write_text("{")
    assert read_bookmark(place, source) == Bookmark(source)


def test_a_folder_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    mark = Bookmark(describe_source("http://here", "trips", tmp_path))
    with pytest.raises(Unavailable, match=r"cannot be written to .*--folder"):
        write_bookmark(tmp_path / "nowhere" / "x.bookmark", mark)


def test_labels_of_a_regression_in_parquet_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"event_id": ["a"], "at": ["T"], "label": [2], "distance": [1], "carrier": ["UA"]}), path)
    with open_parquet(path) as opened:
        (row,) = read_parquet(opened, REGRESSION)
    assert json.loads(row.line)["label"] == 2


def test_bytes_that_differ_by_row_are_one_reason() -> None:
    reason = "holds bytes that are no text in UTF-8: "
    refused = [Refused(Row(b"{}"), None, [Fault("event_id", f"{reason}{text}")]) for text in ("d0 04", "ff ab 12")]
    (found,) = add_reasons({}, refused).values()
    assert (found.count, found.reason) == (2, f"{reason}d0 04")


def test_a_hidden_file_of_a_zip_archive_does_not_count(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("folder/.DS_Store", b"")
        archive.writestr("folder/x.csv", HEADER)
    with open_source(tmp_path / "x.zip") as source:
        assert (source.open().read(), source.content_name) == (HEADER.encode(), Path("folder/x.csv"))
