"""A file that is imported twice, read otherwise: the command says so, and how to take the first import back."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from cli.main import app
from tests.integration.api_process import running
from tests.integration.published_versions import define


@dataclass(frozen=True)
class Commands:
    """`morrow events` for one task of a real API."""

    task: str
    url: str

    def say(self, verb: str, *given: str) -> Result:
        return CliRunner().invoke(app, ["events", verb, self.task, *given, "--url", self.url])


@pytest.fixture
def commands(database_url: str, engine: Engine, tmp_path: Path) -> Iterator[Commands]:
    with running(database_url, tmp_path / "home") as api:
        yield Commands(define(engine).task.name, api.url)


def write_rows(folder: Path, *, with_ids: bool) -> Path:
    file = folder / "demand.csv"
    header = "at,distance,carrier,wind,label"
    rows = [f"2026-01-{day:02} 12:00,1.0,UA,2.0,late" for day in range(1, 21)]
    if with_ids:
        header, rows = f"event_id,{header}", [f"e{place},{row}" for place, row in enumerate(rows)]
    file.write_text("\n".join([header, *rows]) + "\n")
    return file


def words(result: Result) -> str:
    return " ".join(result.output.split())


def test_another_time_zone_is_noticed_by_the_conflicts(commands: Commands, tmp_path: Path) -> None:
    file = str(write_rows(tmp_path, with_ids=True))
    first = commands.say("import", file, "--timezone", "America/New_York")
    assert first.exit_code == 0, first.output
    assert "was imported before" not in words(first)
    again = commands.say("import", file, "--timezone", "Europe/Berlin")
    assert again.exit_code == 3
    said = words(again)
    assert "Note: demand.csv was imported before, as import 1 (20 events" in said
    assert "stored with an `at` that lies 6 h later" in said
    assert f"morrow events retract {commands.task} --import 1" in said


def test_a_conflict_names_the_fields_that_differ(commands: Commands, tmp_path: Path) -> None:
    file = write_rows(tmp_path, with_ids=True)
    commands.say("import", str(file), "--timezone", "UTC")
    file.write_text(file.read_text().replace("UA", "DL").replace("late", "on_time"))
    again = commands.say("import", str(file), "--timezone", "UTC", "--json")
    facts = json.loads(again.stdout)
    assert facts["conflicts"] == 20
    (said,) = facts["differences"]
    assert "differ from the stored event in label, carrier" in said
    assert any("as import 1 (20 events" in note for note in facts["notes"])


def test_the_history_counts_events_and_marks_imports_that_stored_none(commands: Commands, tmp_path: Path) -> None:
    file = str(write_rows(tmp_path, with_ids=False))
    for _ in range(2):
        assert commands.say("import", file, "--timezone", "UTC").exit_code == 0
    newest, oldest = json.loads(commands.say("history", "--json").stdout)["imports"]
    assert (newest["num_events"], oldest["num_events"]) == (0, 20)
    assert "none stored" in words(commands.say("history"))
    nothing = commands.say("retract", "--import", str(newest["id"]))
    assert nothing.exit_code == 0, nothing.output
    assert "has no event left to retract" in words(nothing)
    assert "?" not in nothing.stderr
    missing = commands.say("retract")
    assert (missing.exit_code, f"morrow events history {commands.task}" in words(missing)) == (2, True)
