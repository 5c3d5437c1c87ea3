"""Files that other tools write oddly: each is read, or refused with what it is and what to do."""

import gzip
import io
import json
import tarfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.file_rows.checks import check_rows
from cli.file_rows.opened_file import open_rows
from cli.file_rows.rows import Row
from cli.inferring.guess import Said
from cli.inferring.infer import Inferred, infer
from cli.reading.options import Options
from contracts.errors import InvalidInput
from contracts.task import Task

NOW = datetime(2026, 6, 1, tzinfo=UTC)
TASK = Task.model_validate(
    {
        "name": "sales",
        "window": "P1D",
        "features": [{"name": "price", "kind": "number"}, {"name": "city", "kind": "category"}],
        "target": {"name": "sold", "kind": "regression"},
    }
)
HEADER = "event_id,at,price,city,sold\n"


def rows_of(file: Path, options: Options = Options()) -> tuple[list[Row], tuple[str, ...]]:  # noqa: B008 it is frozen
    with open_rows(file, None, TASK, options, lambda: None) as opened:
        return list(opened.rows), opened.notes


def events_of(file: Path, options: Options = Options()) -> list[dict[str, Any]]:  # noqa: B008 it is frozen
    """The events of a file, all of which the API would take."""
    rows, _ = rows_of(file, options)
    assert check_rows(rows, TASK) == []
    return [json.loads(row.line) for row in rows]


def write(file: Path, content: str | bytes) -> Path:
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def refusal_of(file: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        rows_of(file)
    return str(caught.value)


def test_an_archive_and_a_file_compressed_twice_are_refused_by_name(tmp_path: Path) -> None:
    content = f"{HEADER}a,2026-01-01T00:00:00Z,1,Bern,2\n".encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("a.csv")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    assert "is a tar archive: extract the file first (tar -xf" in refusal_of(
        write(tmp_path / "a.csv.gz", packed.getvalue())
    )
    twice = gzip.compress(gzip.compress(content))
    assert "is gzip inside gzip: decompress it once" in refusal_of(write(tmp_path / "b.csv.gz", twice))
    assert len(events_of(write(tmp_path / "c.csv.gz", gzip.compress(content)))) == 1


def test_quotation_marks_behind_backslashes_are_read(tmp_path: Path) -> None:
    lines = r""""a","2026-01-01T00:00:00Z","1","the \"old\" town, north","2"
"b","2026-01-01T00:00:00Z","1","C:\\","2"
"c","2026-01-01T00:00:00Z","1","plain","2"
"""
    file = write(tmp_path / "a.csv", HEADER + lines)
    assert [event["features"]["city"] for event in events_of(file)] == ['the "old" town, north', "C:\\", "plain"]
    assert 'with \\" inside cells' in rows_of(file)[1][0]


def test_a_backslash_without_escapes_stays_one(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", f'{HEADER}a,2026-01-01T00:00:00Z,1,"C:\\",2\n')
    assert events_of(file)[0]["features"]["city"] == "C:\\"


def test_lines_of_json_may_end_in_returns(tmp_path: Path) -> None:
    one = {"at": "2026-01-01T00:00:00Z", "features": {"price": 1, "city": "Zürich"}, "label": 2}
    lines = "\r".join(json.dumps({"event_id": name, **one}, ensure_ascii=False) for name in "abc")
    assert [event["event_id"] for event in events_of(write(tmp_path / "a.ndjson", lines))] == ["a", "b", "c"]


def test_lines_of_json_without_features_are_read_as_rows(tmp_path: Path) -> None:
    lines = [
        {"id": 1.0, "at": "2026-01-01T00:00:00Z", "Price": "2,5", "city": 8001, "sold": 3},
        {"id": 2, "at": "2026-01-02T00:00:00Z", "Price": "3,5", "city": "Bern", "sold": 4.5, "other": [1]},
    ]
    file = write(tmp_path / "a.ndjson", "\n".join(map(json.dumps, lines)) + "\n\n")
    found = events_of(file, Options(columns=(("event_id", "id"),)))
    assert [event["event_id"] for event in found] == ["1", "2"]
    assert [event["features"] for event in found] == [{"price": 2.5, "city": "8001"}, {"price": 3.5, "city": "Bern"}]
    assert [event["label"] for event in found] == [3, 4.5]
    assert "Lines hold rows without features: their keys are read as columns." in rows_of(file)[1]


def test_a_row_of_json_that_holds_no_value_of_an_event_is_refused_alone(tmp_path: Path) -> None:
    good = {"event_id": "a", "at": "2026-01-01T00:00:00Z", "price": 2, "city": "Bern", "sold": 3}
    lines = [json.dumps(good), '{"broken', json.dumps({**good, "event_id": "b", "city": {"name": "Bern"}})]
    rows, _ = rows_of(write(tmp_path / "a.ndjson", "\n".join(lines)))
    refused = check_rows(rows, TASK)
    assert [result["line"] for result in refused] == [2]
    assert [fault.reason for fault in rows[2].faults] == ["is an object or a list, which no event holds"]
    assert not rows[2].is_sent


def test_rows_of_json_that_lack_a_column_are_told_which(tmp_path: Path) -> None:
    file = write(tmp_path / "a.ndjson", '{"at": "2026-01-01T00:00:00Z", "price": 1, "sold": 3}\n')
    assert "city: is not a column of the file (its columns: at, price, sold)" in refusal_of(file)


def test_japanese_is_told_from_western_text(tmp_path: Path) -> None:
    lines = "".join(f"{k},2026-01-01T00:00:00Z,1,とうきょう{'カナ' * (k % 3)},2\n" for k in range(20))
    file = write(tmp_path / "a.csv", (HEADER + lines).encode("cp932"))
    assert events_of(file)[0]["features"]["city"] == "とうきょう"
    assert rows_of(file)[1][0].startswith("Shift-JIS")


@pytest.mark.parametrize(
    ("encoding", "text"), [("cp1251", "Москва Казань"), ("gb18030", "北京 上海市"), ("euc_kr", "서울특별시 부산")]
)
def test_other_text_that_is_not_western_asks_for_its_encoding(tmp_path: Path, encoding: str, text: str) -> None:
    lines = "".join(f"{k},2026-01-01T00:00:00Z,1,{text},2\n" for k in range(20))
    file = write(tmp_path / "a.csv", (HEADER + lines).encode(encoding))
    assert "--encoding: is needed: the file is neither UTF-8 nor western" in refusal_of(file)
    assert events_of(file, Options(encoding=encoding))[0]["features"]["city"] == text


@pytest.mark.parametrize("text", ["Größe", "12 €", "naïve café", "Ærøskøbing", "“quoted”", "ÄÖÜ", "señor", "£5"])
def test_western_text_is_read_as_western(tmp_path: Path, text: str) -> None:
    lines = "".join(f"{k},2026-01-01T00:00:00Z,1,{text},2\n" for k in range(20))
    file = write(tmp_path / "a.csv", (HEADER + lines).encode("cp1252"))
    assert events_of(file)[0]["features"]["city"] == text


def parquet(file: Path, **columns: Any) -> Path:
    usual = {"event_id": ["a"], "at": ["2026-01-01T00:00:00Z"], "price": [1.5], "city": ["Bern"], "sold": [2.0]}
    pq.write_table(pa.table({**usual, **columns}), file)
    return file


@pytest.mark.parametrize("seconds", [1_767_225_600.0, 1_767_225_600.5, 1_767_225_600_000.0])
def test_moments_may_be_doubles(tmp_path: Path, seconds: float) -> None:
    (event,) = events_of(parquet(tmp_path / "a.parquet", at=[seconds]))
    assert event["at"].startswith("2026-01-01T00:00:00")


def test_an_id_is_the_same_as_a_float_as_an_integer_and_in_csv(tmp_path: Path) -> None:
    (as_float,) = events_of(parquet(tmp_path / "a.parquet", event_id=[1.0]))
    (as_integer,) = events_of(parquet(tmp_path / "b.parquet", event_id=[1]))
    (as_text,) = events_of(write(tmp_path / "c.csv", f"{HEADER}1,2026-01-01T00:00:00Z,1.5,Bern,2\n"))
    assert as_float["event_id"] == as_integer["event_id"] == as_text["event_id"] == "1"


def test_infinity_is_refused_and_nan_is_a_missing_value(tmp_path: Path) -> None:
    (row,), _ = rows_of(parquet(tmp_path / "a.parquet", price=[float("inf")]))
    reason = "is inf, and events hold finite numbers only: --missing inf makes it a missing value"
    assert [(fault.field, fault.reason) for fault in row.faults] == [("features.price", reason)]
    rows, _ = rows_of(parquet(tmp_path / "a.parquet", sold=[float("nan")]))
    (refused,) = check_rows(rows, TASK)
    assert refused["errors"] == [
        {"field": "label", "reason": "is missing; send an event once its label is known, or leave label out"}
    ]


def inferred(file: Path, options: Options = Options(), **said: Any) -> Inferred:  # noqa: B008 it is frozen
    return infer(file, format=None, name=None, said=Said(**said), options=options, now=NOW)


ROWS = "".join(f"2026-01-{1 + k % 28:02}T00:00:00Z,{k * 7 % 30},{k % 3},{'ab'[k % 2]}\n" for k in range(60))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.csv", "", "is empty: its first line must name the columns"),
        ("a.csv", "\n\n", "is empty"),
        ("a.csv", "at,x,y\n", "has no rows below its header"),
        ("a.csv", "x\n1\n2\n", "no column holds moments"),
        ("a.csv", "x,y\n1,2\n3,4\n", "no column holds moments, and every event needs one (x, y)"),
        ("a.csv", "at\n2026-01-01T00:00:00Z\n2026-01-02T00:00:00Z\n", "no column can be the label"),
        (
            "a.csv",
            "at,x,y\n2026-01-01T00:00:00Z,1,2\n2026-01-02T00:00:00Z,1,3\n",
            "no column can be a feature (x: the same",
        ),
        ("a.csv", "at,x,x\n2026-01-01T00:00:00Z,1,2\n", "x: names columns 2 and 3"),
        ("a.csv", '[{"at": "2026-01-01T00:00:00Z", "x": 1}]', "is JSON, not CSV"),
        ("a.csv", b"\x00\x01\x02\x03" * 64, "line 1"),
        ("a.xlsx", b"PK\x03\x04", "damaged"),
        ("a.json", "{}", "ends in none of"),
    ],
)
def test_a_file_from_which_nothing_can_be_inferred_says_why(
    tmp_path: Path, name: str, content: str | bytes, reason: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        inferred(write(tmp_path / name, content))
    assert reason in str(caught.value)


def test_wide_files_and_nested_columns_are_inferred(tmp_path: Path) -> None:
    names = [f"c{k}" for k in range(500)]
    lines = [",".join(["at", *names, "label"])]
    lines += [
        ",".join([f"2026-01-{1 + k % 28:02}T00:00:00Z", *(str(k * c % 7) for c in range(500)), "ab"[k % 2]])
        for k in range(40)
    ]
    wide = inferred(write(tmp_path / "wide.csv", "\n".join(lines)))
    assert len(Task.model_validate(tomllib.loads(wide.text)).features) > 400  # the others are the same in every row
    table = pa.table(
        {"at": ["2026-01-01T00:00:00Z"] * 3, "x": [3, 7, 5], "tags": [[1], [2], []], "label": ["a", "b", "a"]}
    )
    pq.write_table(table, tmp_path / "nested.parquet")
    assert "tags: is of the type list" in inferred(tmp_path / "nested.parquet").text


def test_a_column_without_a_name_is_mentioned(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "at,x,,label\n" + ROWS)
    found = inferred(file)
    assert "# Note: Column 3 has no name" in found.text
    assert any("Column 3 has no name" in note for note in found.notes)


def test_window_and_kinds_may_be_said(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", "at,x,zone,label\n" + ROWS)
    found = inferred(file, window="PT12H", kinds=(("zone", "category"),))
    assert 'window = "PT12H"' in found.text
    assert 'kind = "category"  # as --kind says' in found.text
    for said, reason in (
        ({"window": "two days"}, "--window"),
        ({"window": "-P1D"}, "--window"),
        ({"kinds": (("none", "number"),)}, "--kind: 'none' is not a column of the file"),
        ({"label": "labels"}, "--label: 'labels' is not a column of the file (at, x, zone, label): write 'label'"),
    ):
        with pytest.raises(InvalidInput) as caught:
            inferred(file, **said)
        assert reason in str(caught.value)


def test_only_columns_that_hold_a_comma_are_said_to_have_decimal_commas(tmp_path: Path) -> None:
    task = TASK.model_copy(update={"features": [*TASK.features]})
    file = write(tmp_path / "a.csv", HEADER.replace(",", ";") + "a;2026-01-01T00:00:00Z;2,5 €;Bern;4\n")
    with open_rows(file, None, task, Options(), lambda: None) as opened:
        assert "Decimal commas in price." in opened.notes
        assert "Ignored € in price." in opened.notes


def test_a_row_of_json_that_gives_a_key_twice_is_refused_by_the_key(tmp_path: Path) -> None:
    row = '"at":"2026-01-01T00:00:00Z","city":"Bonn","sold":1'
    lines = [f'{{"event_id":"a","price":1,"price":2,{row}}}', f'{{"event_id":"b","price":3,"Price":4,{row}}}']
    rows, notes = rows_of(write(tmp_path / "sales.ndjson", "\n".join(lines)))
    assert [(one.is_sent, [(fault.field, fault.reason) for fault in one.faults]) for one in rows] == [
        (False, [("price", "is given more than once")]),
        (True, []),
    ]
    assert json.loads(rows[1].line)["features"]["price"] == 3
    assert any("Price" in note for note in notes)


@pytest.mark.parametrize("num_separators", [1, 3])
def test_a_separator_that_only_the_header_ends_in_adds_no_column(tmp_path: Path, num_separators: int) -> None:
    header = HEADER.strip() + "," * num_separators
    lines = [header, "a,2026-01-01T00:00:00Z,1,Bonn,2", 'b,2026-01-01T00:00:00Z,1,"Bonn, Nord",2,', "c,,1,Bonn", ""]
    rows, _ = rows_of(write(tmp_path / "sales.csv", "\n".join(lines)))
    assert [json.loads(row.line)["event_id"] for row in rows[:2]] == ["a", "b"]
    assert json.loads(rows[1].line)["features"]["city"] == "Bonn, Nord"
    assert "has 4 cells" in rows[2].faults[0].reason


def test_a_header_with_a_broken_quotation_says_so(tmp_path: Path) -> None:
    content = '"event_id" ,"at","price","city","sold"\na,2026-01-01T00:00:00Z,1,Bonn,2\n'
    with pytest.raises(InvalidInput, match='line 1: names the columns, and has a quotation mark " in the wrong place'):
        rows_of(write(tmp_path / "sales.csv", content))


def test_a_closed_standard_input_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(InvalidInput, match="standard input: is closed: name a file"):
        rows_of(Path("-"))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("at,label,{}\n2026-01-01T00:00:00Z,no,{}\n2026-01-02T00:00:00Z,yes,{}\n", "a feature"),
        ("{}\n{}\n{}\n", "moments"),
    ],
)
def test_a_refusal_to_infer_names_few_of_many_columns(tmp_path: Path, content: str, what: str) -> None:
    names, cells = ",".join(f"f{k}" for k in range(600)), ",".join(["x"] * 600)
    with pytest.raises(InvalidInput) as caught:
        inferred(write(tmp_path / "a.csv", content.format(names, cells, cells)))
    assert what in str(caught.value)
    assert "f1" in str(caught.value)
    assert " more" in str(caught.value)
    assert len(str(caught.value)) < 800
