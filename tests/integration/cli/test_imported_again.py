"""A file that is imported twice, with other options: the command says so, and how to take the first import back."""

import gzip
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


def test_content_that_would_be_stored_twice_is_refused_before_a_row_is_sent(commands: Commands, tmp_path: Path) -> None:
    file = write_rows(tmp_path, with_ids=False)
    assert commands.say("import", str(file), "--timezone", "America/New_York").exit_code == 0
    renamed = tmp_path / "new name.csv"
    renamed.write_bytes(file.read_bytes())
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    for other in (file, renamed, packed):
        refused = commands.say("import", str(other), "--timezone", "Europe/Berlin")
        assert refused.exit_code == 2
        assert "as import 1 (" in words(refused)
        assert f"morrow events retract {commands.task} --import 1" in words(refused)
    piped = CliRunner().invoke(
        app,
        ["events", "import", commands.task, "-", "--timezone", "Europe/Berlin", "--url", commands.url],
        input=file.read_bytes(),
    )
    assert (piped.exit_code, "demand.csv, 20 events" in words(piped)) == (2, True)
    tried = commands.say("import", str(renamed), "--timezone", "Europe/Berlin", "--dry-run")
    assert "what new name.csv holds was imported before, as import 1 (demand.csv, 20 events" in words(tried)
    assert [one["num_events"] for one in json.loads(commands.say("history", "--json").stdout)["imports"]] == [20]
    assert not list(tmp_path.glob("*.bookmark"))
    both = commands.say("import", str(renamed), "--timezone", "Europe/Berlin", "--again")
    assert both.exit_code == 0, both.output
    counts = [one["num_events"] for one in json.loads(commands.say("history", "--json").stdout)["imports"]]
    assert counts == [20, 20]


def test_the_same_content_under_another_name_is_recognised_and_stored_once(commands: Commands, tmp_path: Path) -> None:
    file = write_rows(tmp_path, with_ids=False)
    commands.say("import", str(file), "--timezone", "UTC")
    renamed = tmp_path / "renamed.csv"
    renamed.write_bytes(file.read_bytes())
    again = commands.say("import", str(renamed), "--timezone", "UTC")
    assert again.exit_code == 0, again.output
    assert "was imported before, as import 1 (demand.csv, 20 events" in words(again)
    assert "0 created, 20 duplicates" in words(again)


def test_a_retracted_import_lets_its_content_in_again(commands: Commands, tmp_path: Path) -> None:
    file = str(write_rows(tmp_path, with_ids=False))
    commands.say("import", file, "--timezone", "America/New_York")
    assert commands.say("retract", "--import", "1", "--yes").exit_code == 0
    again = commands.say("import", file, "--timezone", "Europe/Berlin")
    assert again.exit_code == 0, again.output
    assert "20 created" in words(again)


def test_an_unknown_import_is_told_where_the_known_ones_are_listed(commands: Commands) -> None:
    missing = commands.say("retract", "--import", "77")
    assert f"{commands.task} has no import 77: `morrow events history {commands.task}`" in words(missing)


def test_refused_rows_that_were_corrected_by_hand_outlive_another_import(commands: Commands, tmp_path: Path) -> None:
    file = write_rows(tmp_path, with_ids=True)
    file.write_text(file.read_text().replace("1.0,UA", "far,UA", 2))
    rejects, kept = tmp_path / "demand.rejected.csv", tmp_path / "demand.rejected-2.csv"
    for _ in range(2):
        again = commands.say("import", str(file), "--timezone", "UTC")
        assert again.exit_code == 3, again.output
        assert "edited" not in words(again)
    written = rejects.read_text()
    rejects.write_text(written.replace("far", "1.5"))
    last = commands.say("import", str(file), "--timezone", "UTC")
    assert f"{rejects} was edited since it was written, and is kept as {kept}." in words(last)
    assert rejects.read_text() == written
    mended = json.loads(commands.say("import", str(kept), "--timezone", "UTC", "--json").stdout)
    assert (mended["created"], mended["rejected"]) == (2, 0)


def test_rows_without_the_ids_of_earlier_imports_are_refused_before_one_is_stored(
    commands: Commands, tmp_path: Path
) -> None:
    """A cumulative export whose option was forgotten: its rows would be stored again, under digests."""
    file = write_rows(tmp_path, with_ids=True)
    file.write_text(file.read_text().replace("event_id", "Ticket #"))
    first = commands.say("import", str(file), "--timezone", "UTC", "--id-from", "Ticket #")
    assert first.exit_code == 0, first.output
    grown = tmp_path / "november.csv"
    grown.write_text(file.read_text() + "e90,2026-01-21 12:00,1.0,UA,2.0,late\n")
    refused = commands.say("import", str(grown), "--timezone", "UTC")
    assert refused.exit_code == 2
    assert "import 1 (demand.csv) have ids of their own" in words(refused)
    assert "add --id-from 'Ticket #'; or store" in words(refused)
    tried = commands.say("import", str(grown), "--timezone", "UTC", "--dry-run")
    assert "this import would be refused" in words(tried)
    assert len(json.loads(commands.say("history", "--json").stdout)["imports"]) == 1
    assert not list(tmp_path.glob("*.bookmark"))
    added = json.loads(
        commands.say("import", str(grown), "--timezone", "UTC", "--id-from", "Ticket #", "--json").stdout
    )
    assert (added["created"], added["duplicates"]) == (1, 20)
    both = commands.say("import", str(grown), "--timezone", "UTC", "--again")
    assert both.exit_code == 0, both.output
    assert "21 created" in words(both)


def test_a_column_of_ids_that_a_later_file_lacks_is_asked_for(commands: Commands, tmp_path: Path) -> None:
    commands.say("import", str(write_rows(tmp_path, with_ids=True)), "--timezone", "UTC")
    other = tmp_path / "other"
    other.mkdir()
    refused = commands.say("import", str(write_rows(other, with_ids=False)), "--timezone", "UTC")
    assert refused.exit_code == 2
    assert "--id-from COLUMNS, or --map event_id=COLUMN" in words(refused)
    assert commands.say("retract", "--import", "1", "--yes").exit_code == 0
    free = commands.say("import", str(other / "demand.csv"), "--timezone", "UTC")
    assert free.exit_code == 0, free.output


def test_a_contradicted_event_is_corrected_by_the_commands_that_are_printed(commands: Commands, tmp_path: Path) -> None:
    file = write_rows(tmp_path, with_ids=True)
    commands.say("import", str(file), "--timezone", "UTC")
    file.write_text(file.read_text().replace("UA", "DL", 1))
    again = commands.say("import", str(file), "--timezone", "UTC")
    assert again.exit_code == 3
    said = words(again)
    assert f"morrow events show {commands.task} e0 > event.json" in said
    assert f"morrow events correct {commands.task} event.json" in said
    assert f"morrow events retract {commands.task} --import ID" in said
    assert "run: morrow events import" not in said
    wrong = commands.say("correct", str(file))
    assert wrong.exit_code == 1
    assert "is CSV or other text, and not one event as JSON" in words(wrong)
    assert f"morrow events show {commands.task} ID > event.json" in words(wrong)
    event = tmp_path / "event.json"
    event.write_text(commands.say("show", "e0").stdout.replace("UA", "DL"))
    assert "e0 is corrected" in words(commands.say("correct", str(event)))
    assert commands.say("import", str(file), "--timezone", "UTC").exit_code == 0
