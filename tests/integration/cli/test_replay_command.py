"""`morrow replay` and `morrow backtest` as typed, over a real database."""

import json
from pathlib import Path

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from cli.main import app
from store.tasks.catalog import Schema
from tests.integration.drifting_task import define, drifting_task

PNG = b"\x89PNG"


@pytest.fixture
def schema(engine: Engine, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Schema:
    monkeypatch.setenv("MORROW_DATABASE_URL", database_url)
    monkeypatch.setenv("MORROW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MORROW_THREADS", "1")
    monkeypatch.setenv("COLUMNS", "80")
    return define(engine, drifting_task(), 12)


def say(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_replay_prints_a_table_and_writes_figures_and_pictures(schema: Schema, tmp_path: Path) -> None:
    file, pictures = tmp_path / "replay.json", tmp_path / "pictures"
    said = say(
        *("replay", schema.task.name, "--from", "2026-01-01T08:00:00Z", "--to", "2026-01-01T11:00:00Z"),
        *("--json", str(file), "--pictures", str(pictures), "--no-rivals"),
    )
    assert said.exit_code == 0, said.output
    assert max(map(len, said.stdout.splitlines())) <= 80
    for moment in ("2026-01-01T08:00", "2026-01-01T09:00", "2026-01-01T10:00"):
        (line,) = [line for line in said.stdout.splitlines() if line.strip().startswith(moment)]
        assert line.rstrip().endswith("released")
    assert "2026-01-01T11:00" not in said.stdout
    document = json.loads(file.read_text())
    assert [window["origin"] for window in document["windows"]] == [
        f"2026-01-01T{hour}:00:00Z" for hour in ("08", "09", "10")
    ]
    assert {window["metric"]["gbdt"] for window in document["windows"]} == {None}
    assert all(picture.read_bytes().startswith(PNG) for picture in pictures.iterdir())
    assert len(list(pictures.iterdir())) == 2


def test_a_moment_without_an_offset_is_refused_by_the_name_of_its_option(schema: Schema) -> None:
    said = say("replay", schema.task.name, "--from", "2026-01-01T08:00:00")
    assert said.exit_code == 2
    assert said.stderr.splitlines()[-1].startswith("--from: has no offset")


def test_a_replay_of_no_task_says_so(schema: Schema) -> None:
    said = say("replay", "nowhere")
    assert said.exit_code == 1
    assert "There is no task named 'nowhere'. The only task is " in " ".join(said.stderr.split())


def test_backtest_prints_the_matrix_after_the_newest_events_and_pictures_it(schema: Schema, tmp_path: Path) -> None:
    said = say("backtest", schema.task.name, "--picture", str(tmp_path / "matrix.png"))
    assert said.exit_code == 0, said.output
    words = " ".join(said.stdout.split())
    assert "as of 2026-01-01T12:00:00Z, the end of the newest complete window with events" in words
    assert max(map(len, said.stdout.splitlines())) <= 80
    rows = [line.split() for line in said.stdout.splitlines() if line.strip().startswith("2026-01-01T")]
    assert [row[:2] for row in rows] == [[f"2026-01-01T{hour}:00", "150"] for hour in ("08", "09", "10", "11")]
    assert all(len(row) == 4 for row in rows)
    assert (tmp_path / "matrix.png").read_bytes().startswith(PNG)


def test_backtest_prints_the_same_as_json(schema: Schema) -> None:
    said = say("backtest", schema.task.name, "--json")
    assert said.exit_code == 0, said.output
    document = json.loads(said.stdout)
    assert (document["task"], document["as_of"]) == (schema.task.name, "2026-01-01T12:00:00Z")
    assert document["horizon"] == 2
    ours = [cell for cell in document["cells"] if cell["method"] == "gi"]
    assert {cell["num_rows"] for cell in ours} == {150}
    assert [(age["age"], age["reason"]) for age in document["ages"]] == [(0, None), (1, None)]


def test_backtest_as_of_a_moment_tells_of_every_age_though_silence_ended_the_horizon(schema: Schema) -> None:
    said = say("backtest", schema.task.name, "--as-of", "2026-01-01T20:30:00Z")
    assert said.exit_code == 0, said.output
    assert max(map(len, said.stdout.splitlines())) <= 80
    assert "as of 2026-01-01T20:00:00Z. The table shows" in " ".join(said.stdout.split())
    assert "No horizon: no event of the newest 8 windows is known" in said.stdout
    ages = [line.split() for line in said.stdout.splitlines() if line.strip()[:2] in ("0 ", "1 ")]
    assert [(age[0], age[-1]) for age in ages] == [("0", "yes"), ("1", "yes")]
    assert all(figure not in ages[1] for figure in ("–", "nan"))


def test_a_moment_to_come_is_no_cutoff(schema: Schema) -> None:
    said = say("backtest", schema.task.name, "--as-of", "2999-01-01T00:00:00Z")
    assert (said.exit_code, said.stderr.splitlines()[-1]) == (2, "--as-of: lies in the future")


@pytest.mark.parametrize("command", ["backtest", "replay"])
def test_a_wrong_folder_is_told_of_and_left_as_it_is(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MORROW_DATABASE_URL", raising=False)
    monkeypatch.setenv("MORROW_HOME", str(tmp_path / "wrong"))
    said = say(command, "flights")
    assert said.exit_code == 1
    assert said.stderr.startswith("There is no database below")
    assert not (tmp_path / "wrong").exists()
