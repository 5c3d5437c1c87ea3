"""Columns that an option names and the file does not have: each is refused with the columns that there are."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.file_rows.opened_file import open_rows
from cli.inferring.guess import Said
from cli.inferring.infer import infer
from cli.reading.options import Options
from contracts.errors import InvalidInput
from tests.unit.cli.test_odd_files import NOW, TASK, write

ROW = {"Event ID": "a", "at": "2026-01-01T00:00:00Z", "Stückpreis": "1", "price": "2", "city": "Bern", "sold": "3"}
COLUMNS = "its columns: Event ID, at, Stückpreis, price, city, sold"


@pytest.fixture(params=["csv", "parquet", "ndjson"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file of one row with a column that the task does not have."""
    path = tmp_path / f"rows.{request.param}"
    if request.param == "parquet":
        pq.write_table(pa.table({name: [value] for name, value in ROW.items()}), path)
        return path
    if request.param == "ndjson":
        numbers = {"price": 2, "sold": 3}
        return write(path, json.dumps(ROW | numbers, ensure_ascii=False))
    return write(path, f"{','.join(ROW)}\n{','.join(ROW.values())}\n")


def refusal_of(file: Path, options: Options) -> str:
    with pytest.raises(InvalidInput) as caught, open_rows(file, None, TASK, options, lambda: None):
        pass
    return str(caught.value)


@pytest.mark.parametrize(
    ("option", "options"),
    [
        ("--drop", Options(dropped=("pice",))),
        ("--id-from", Options(id_from=("pice",))),
        ("--map", Options(columns=(("price", "pice"),))),
    ],
    ids=["drop", "id-from", "map"],
)
def test_an_absent_column_is_refused_with_the_nearest_name(file: Path, option: str, options: Options) -> None:
    assert refusal_of(file, options) == f"{option}: 'pice' is not a column of the file ({COLUMNS}): write 'price'"


def test_a_dropped_column_may_be_spelled_otherwise(file: Path) -> None:
    for name in ("Stückpreis", "stueckpreis", "STUCKPREIS"):
        options = Options(dropped=(name,))
        if name == "stueckpreis":  # another name
            assert refusal_of(file, options).startswith("--drop: 'stueckpreis' is not a column of the file")
            continue
        with open_rows(file, None, TASK, options, lambda: None) as opened:
            (row,) = opened.rows
        assert row.faults == ()
        assert not any("Stückpreis" in note for note in opened.notes), "it is not mentioned as unread"


@pytest.mark.parametrize(("given", "cell"), [("city", "NA"), ("city=n/a", "n/a")])
def test_a_column_among_the_cells_that_mean_missing_is_refused(file: Path, given: str, cell: str) -> None:
    told = refusal_of(file, Options(missing=frozenset({given, "-"})))
    assert told == (
        f"--missing: '{given}' names a column, and cells are named here, for all columns: write --missing {cell}"
    )


def test_lines_that_are_events_take_no_option_about_columns(tmp_path: Path) -> None:
    event = {"event_id": "a", "at": "2026-01-01T00:00:00Z", "features": {"price": 1, "city": "Bern"}, "label": 3}
    file = write(tmp_path / "events.ndjson", json.dumps(event))
    options = Options(dropped=("x",), columns=(("at", "when"),), id_from=("x",), missing=frozenset({"NA"}))
    told = refusal_of(file, options)
    for option in ("--map", "--id-from", "--drop", "--missing"):
        assert f"{option}: is for files with columns, and each line of this one is an event: leave it out" in told
    with open_rows(file, None, TASK, Options(encoding="utf-8"), lambda: None) as opened:
        assert len(list(opened.rows)) == 1


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_task_is_inferred_without_dropped_columns_and_refuses_absent_ones(tmp_path: Path, suffix: str) -> None:
    rows = {
        "z": ["ab"[k % 2] for k in range(28)],
        "at": [f"2026-01-{day:02}" for day in range(1, 29)],
        "x": [k % 5 + 0.5 for k in range(28)],
        "sold": [k % 7 + 0.5 for k in range(28)],
    }
    path = tmp_path / f"rows.{suffix}"
    if suffix == "csv":
        lines = [",".join(map(str, row)) for row in zip(*rows.values(), strict=True)]
        write(path, "\n".join([",".join(rows), *lines]))
    else:
        pq.write_table(pa.table(rows), path)

    def infer_without(name: str) -> str:
        options = Options(dropped=(name,))
        return infer(path, format=None, name=None, said=Said(), options=options, now=NOW).text

    assert 'name = "x"' in infer_without("Z")
    assert 'name = "x"' not in infer_without("X")
    with pytest.raises(InvalidInput, match=r"--drop: 'y' is not a column of the file \(its columns: z, at, x, sold\)"):
        infer_without("y")
