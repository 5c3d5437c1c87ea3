"""An import says what stands out among the rows that it has stored."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Engine
from typer.testing import CliRunner

from cli.main import app
from tests.integration.api_process import running
from tests.integration.published_versions import define


def test_an_import_counts_labels_far_outside_and_names_mis_dated_events(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    schema = define(engine, target={"name": "delay", "kind": "regression"})
    rows = [f"e{k},2026-01-{1 + k % 28:02}T00:00:00Z,1.0,UA,2.0,{-9999 if k % 50 == 7 else k % 29}" for k in range(400)]
    features = [feature.name for feature in schema.task.features]
    header = ",".join(["event_id", "at", *features, "label"])
    file = tmp_path / "rows.csv"
    file.write_text("\n".join([header, *rows, "old,1970-01-01T00:00:00Z,1.0,UA,2.0,5"]) + "\n")
    with running(database_url, tmp_path / "home") as api:
        done = CliRunner().invoke(app, ["events", "import", schema.task.name, str(file), "--url", api.url])
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "Warning: 1 event is dated far before the others, the outermost at 1970-01-01T00:00:00Z (old)" in said
    assert "Warning: 8 of the newest 401 labels lie far outside the others" in said


def test_an_import_whose_dates_reach_into_the_future_is_told_how_to_undo_it(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    schema = define(engine)
    name = schema.task.name
    header = ",".join(["event_id", "at", *(feature.name for feature in schema.task.features), "label"])
    soon, late = datetime.now(UTC) + timedelta(hours=3), datetime.now(UTC) - timedelta(hours=3)

    def import_at(moment: datetime, event_id: str) -> str:
        file = tmp_path / f"{event_id}.csv"
        file.write_text(f"{header}\n{event_id},{moment:%Y-%m-%dT%H:%M:%SZ},1.0,UA,2.0,late\n")
        done = CliRunner().invoke(app, ["events", "import", name, str(file), "--url", api.url])
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    with running(database_url, tmp_path / "home") as api:
        assert "in the future" not in import_at(late, "past")
        said = import_at(soon, "ahead")
    assert f"Warning: the newest event is dated {soon:%Y-%m-%dT%H:%M:%SZ}, in the future" in said
    assert f"morrow events retract {name} --import 2" in said
    assert "--monthfirst" in said


def test_an_import_is_doubted_only_if_it_brought_the_event_of_the_future_and_its_options_explain_it(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    schema = define(engine)
    name = schema.task.name
    header = ",".join(["at", *(feature.name for feature in schema.task.features), "label"])
    runner = CliRunner()

    def import_at(at: str) -> str:
        file = tmp_path / f"{at[:10]}.csv"
        file.write_text(f"{header}\n{at},1.0,UA,2.0,late\n")
        done = runner.invoke(app, ["events", "import", name, str(file), "--url", api.url])
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    def list_events(*options: str) -> str:
        done = runner.invoke(app, ["events", "list", name, *options, "--url", api.url])
        assert done.exit_code == 0, done.output
        return done.output

    with running(database_url, tmp_path / "home") as api:
        typo = import_at("2052-12-25T00:00:00Z")
        event_id = list_events("--from", "2050-01-01T00:00:00Z").split()[0]
        other = import_at("2026-01-05T00:00:00Z")
        first = list_events("--limit", "1")
        more = next(line for line in first.splitlines() if line.startswith("More: morrow "))
        second = runner.invoke(app, [*more.removeprefix("More: morrow ").split(), "--url", api.url]).output
    for said in (typo, other):
        assert "the newest event is dated 2052-12-25T00:00:00Z, in the future" in said
        assert f"morrow events show {name} {event_id} > event.json" in said
        assert f'morrow events erase {name} {event_id} --reason "wrong date"' in said
        warning = said[said.index("Warning: the newest event") :]
        assert "--import" not in warning
        assert "--monthfirst" not in warning
    assert event_id in first
    assert event_id not in second
    assert "2026-01-05T00:00:00Z" in second
