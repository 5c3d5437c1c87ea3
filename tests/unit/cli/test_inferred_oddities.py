"""`morrow task infer` with odd names, values and moments: what it writes can be read, run in a shell, and imported."""

import bz2
import gzip
import json
import lzma
import os
import subprocess
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.file_rows.opened_file import open_rows
from cli.inferring.guess import Said
from cli.inferring.infer import Inferred, infer
from cli.reading.options import Options
from contracts.errors import InvalidInput
from contracts.task import Task

NOW = datetime(2026, 6, 1, tzinfo=UTC)
START = datetime(2026, 1, 1, tzinfo=UTC)


def inferred(file: Path, **said: Any) -> Inferred:
    return infer(file, format=None, name=None, said=Said(**said), options=Options(), now=NOW)


def task_of(found: Inferred) -> Task:
    return Task.model_validate(tomllib.loads(found.text))


def hourly(k: int) -> str:
    return f"{START + timedelta(hours=k):%Y-%m-%dT%H:%M:%SZ}"


def write(file: Path, header: str, rows: Iterator[str] | list[str]) -> Path:
    file.write_text("\n".join([header, *rows]) + "\n", "utf-8")
    return file


def words_of(command: str) -> list[str]:
    """A command as bash splits it."""
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True)
    return [os.fsdecode(word) for word in done.stdout.split(b"\0")[:-1]]


def all_valid(found: Inferred, num_rows: int) -> bool:
    return found.notes[0] == f"Of {num_rows:,} rows {num_rows:,} are valid and 0 would be refused."


def test_many_long_classes_are_written_in_full(tmp_path: Path) -> None:
    classes = [f"{k:02}{'k' * 38}" for k in range(18)]
    file = write(tmp_path / "a.csv", "at,x,kind", [f"{hourly(k)},{k * 7 % 30},{classes[k % 18]}" for k in range(360)])
    assert task_of(inferred(file)).target.classes == tuple(classes)


def test_a_class_with_a_control_character_is_left_out_and_said(tmp_path: Path) -> None:
    names = ["good", "bad", "od\x7fd"]
    file = write(tmp_path / "a.csv", "at,x,kind", [f"{hourly(k)},{k * 7 % 30},{names[k % 3]}" for k in range(90)])
    found = inferred(file)
    assert task_of(found).target.classes == ("bad", "good")
    assert any("1 class is left out" in note for note in found.notes)


def test_names_of_columns_and_files_may_hold_line_breaks(tmp_path: Path) -> None:
    columns = {
        "at": [hourly(k) for k in range(60)],
        "left\nout": ["same\nvalue"] * 60,
        "a\nb\x7f": [k * 7 % 30 for k in range(60)],
        "goal\n": [float(k % 11) + 0.5 for k in range(60)],
    }
    file = tmp_path / "my\nfile's.parquet"
    pq.write_table(pa.table(columns), file)
    found = inferred(file, label="goal\n")
    assert task_of(found).features[0].name == "a_b"
    assert "\n" not in found.import_command
    assert words_of(found.import_command)[4] == str(file)
    assert all_valid(found, 60)


def test_a_file_name_that_is_no_text_is_printed_for_a_shell(tmp_path: Path) -> None:
    file = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.csv"))
    write(file, "at,x,y", [f"{hourly(k)},{k * 7 % 30},{k % 13}.5" for k in range(60)])
    found = inferred(file)
    assert found.text.encode()
    assert words_of(found.import_command)[4] == str(file)


def test_a_file_name_that_begins_with_a_dash_is_no_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("./-dash.csv"), "at,x,y", [f"{hourly(k)},{k * 7 % 30},{k % 13}.5" for k in range(60)])
    assert inferred(Path("./-dash.csv")).import_command.startswith("morrow events import dash ./-dash.csv")


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz"])
@pytest.mark.parametrize("is_piped", [False, True])
@pytest.mark.parametrize("content", ["csv", "ndjson"])
@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_a_truncated_file_or_pipe_is_refused_by_name(
    tmp_path: Path, suffix: str, is_piped: bool, content: str, kept: float
) -> None:
    rows = [f"{hourly(k)},{k * 7919 % 3001},{k * 31 % 13}.5" for k in range(200)]
    lines = ["at,x,y", *rows]
    if content == "ndjson":
        lines = [json.dumps(dict(zip(("at", "x", "y"), row.split(","), strict=True))) for row in rows]
    compress: Any = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[suffix]
    whole = compress("\n".join(lines).encode())
    part = whole[: int(len(whole) * kept)]
    task = Task.model_validate(
        {
            "name": "t",
            "window": "P1D",
            "features": [{"name": "x", "kind": "number"}],
            "target": {"name": "y", "kind": "regression"},
        }
    )

    def opened() -> Path:
        if not is_piped:
            (tmp_path / f"a.{content}.{suffix}").write_bytes(part)
            return tmp_path / f"a.{content}.{suffix}"
        reading, writing = os.pipe()
        os.write(writing, part)
        os.close(writing)
        return Path(f"/dev/fd/{reading}")

    with (
        pytest.raises(InvalidInput, match="or ends too early"),
        open_rows(opened(), None, task, Options(), lambda: None) as found,
    ):
        list(found.rows)
    if content == "csv":
        with pytest.raises(InvalidInput, match="or ends too early"):
            inferred(opened())


def test_a_few_rows_of_a_wrong_year_do_not_lengthen_the_window(tmp_path: Path) -> None:
    rows = [f"{hourly(k)},{k * 7 % 30},{k % 13}.5" for k in range(3600)]
    rows += ["0001-01-01T00:00:00Z,1,2.5", "9999-12-31T00:00:00Z,1,2.5"]
    found = inferred(write(tmp_path / "a.csv", "at,x,y", rows))
    assert task_of(found).window == timedelta(days=7)
    assert "schedule" not in found.text
    assert any("2 rows are dated far from the others (0001-01-01" in note for note in found.notes)


def test_groups_of_a_wrong_year_do_not_lengthen_the_window_however_large_they_are(tmp_path: Path) -> None:
    usual = [f"{hourly(k)},{k * 7 % 30},{k % 13}.5" for k in range(3600)]
    zero = ["0001-01-01T00:00:00Z,1,2.5", "9999-12-31T00:00:00Z,1,2.5"]
    early = [f"1970-01-21T00:00:{k % 60:02}Z,{k % 30},2.5" for k in range(400)]
    few = usual[:: 3600 // 10]
    for rows, said in (
        (usual + early, "400 of 4,000 rows are dated up to 1970-01-21T00:00:59Z, and the next row is of"),
        (few + zero, "1 of 12 rows are dated up to 0001-01-01T00:00:00Z, and the next row is of"),
        (usual + early + zero, "400 of 4,000 rows are dated up to 1970-01-21"),
    ):
        found = inferred(write(tmp_path / "a.csv", "at,x,y", rows))
        assert task_of(found).window <= timedelta(days=14)
        assert any(said in note for note in found.notes), found.notes


@pytest.mark.parametrize("spell", ["{}000000000", "{}000000", "{}000", "{}", "{}.250"])
def test_moments_may_count_any_unit_since_1970(tmp_path: Path, spell: str) -> None:
    start = int(START.timestamp())
    rows = [f"{spell.format(start + 3600 * k)},{k * 7 % 30},{k % 13}.5" for k in range(600)]
    found = inferred(write(tmp_path / "a.csv", "ts,x,y", rows))
    assert "from 2026-01-01" in found.text
    assert all_valid(found, 600)


def test_long_numbers_under_another_name_are_no_moments(tmp_path: Path) -> None:
    rows = [f"{hourly(k)},{1767225600000000000 + k},{k * 7 % 30},{k % 13}.5" for k in range(60)]
    assert "--map" not in inferred(write(tmp_path / "a.csv", "at,snowflake,x,y", rows)).import_command


def test_columns_in_other_alphabets_are_mapped(tmp_path: Path) -> None:
    rows = [f"{hourly(k)},{k * 7 % 30},{k % 13}.5" for k in range(60)]
    assert all_valid(inferred(write(tmp_path / "a.csv", "时间,温度,标签", rows)), 60)
    rows = [f"{row},{k % 5}" for k, row in enumerate(rows)]
    assert all_valid(inferred(write(tmp_path / "b.csv", "время,x,цель,день", rows), label="цель"), 60)


@pytest.mark.parametrize("header", ["AT,At ,Task,Label", "when,at,x,label", "At,TASK,Label,LABEL_", "at,label,y,price"])
def test_columns_with_names_of_ours_are_mapped(tmp_path: Path, header: str) -> None:
    rows = [f"{hourly(k)},{k * 7 % 30},{k % 13}.5,{k % 17}.5" for k in range(60)]
    assert all_valid(inferred(write(tmp_path / "a.csv", header, rows)), 60)


def test_the_first_of_too_many_columns_become_features(tmp_path: Path) -> None:
    header = ",".join(["at", *(f"c{k}" for k in range(1500)), "y"])
    rows = [",".join([hourly(k), *(str((k * 7 + c) % 30) for c in range(1500)), f"{k % 13}.5"]) for k in range(40)]
    found = inferred(write(tmp_path / "a.csv", header, rows))
    assert [feature.name for feature in task_of(found).features] == [f"c{k}" for k in range(512)]
    assert any("the first 512 of 1,500 are taken" in note for note in found.notes)
    assert "c512: a task has at most 512 features" in found.text


def test_a_count_of_the_rows_is_a_feature_if_nothing_else_is(tmp_path: Path) -> None:
    rows = [f"{hourly(k)},{k},{k % 13}.5" for k in range(60)]
    assert task_of(inferred(write(tmp_path / "a.csv", "at,mileage,y", rows))).features[0].name == "mileage"
    with pytest.raises(InvalidInput, match="numbers the rows"):
        inferred(write(tmp_path / "b.csv", "at,index,y", rows))
