"""`morrow events seal`, and the trainer's sealing of the same rows by its setting."""

import json
import shutil
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner

from cli.main import app
from service.advice.row_warnings import read_row_warnings
from store.events.sealed import sealing as sealed_sealing
from store.events.sealed.manifest import list_files, read_totals
from store.tasks.catalog import Schema
from tests.integration.drifting_task import HOUR, START, cutoff_after, now, settings
from tests.integration.sealed_tasks import ALL, history, read, reads, same
from trainer.scheduling import sealing
from trainer.scheduling.sealing import Sealing


@pytest.fixture
def schema(engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Schema:
    monkeypatch.setenv("MORROW_DATABASE_URL", database_url)
    monkeypatch.setenv("MORROW_HOME", str(tmp_path / "home"))
    return history(engine, 1, "classification")


def seal(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["events", "seal", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_dry_run_counts_and_a_run_moves(
    engine: Engine, schema: Schema, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sealed_sealing, "DEFAULT_LIMITS", ALL)
    before = reads(engine, schema)
    asked = (schema.task.name, "--before", (START + 9 * HOUR).isoformat())
    counted = seal(*asked, "--dry-run")
    assert counted["sealed"] is False
    assert counted["num_events"] == 0  # the newest 50,000 stay
    assert not (tmp_path / "home/objects").exists()
    done = CliRunner().invoke(app, ["events", "seal", *asked])
    assert "the newest 50,000 stay" in done.stdout
    for one, other in zip(reads(engine, schema), before, strict=True):
        same(one, other)


def test_a_moment_that_is_none_is_refused(schema: Schema) -> None:
    done = CliRunner().invoke(app, ["events", "seal", schema.task.name, "--before", "yesterday"])
    assert done.exit_code != 0


def ticked(engine: Engine, home: Path, **changes: Any) -> Sealing:
    job = Sealing(engine, settings(home, **changes), threading.Event())
    job.tick(now())
    return job


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "_LIMITS", replace(ALL, fewest_rows=100))


@pytest.mark.usefixtures("_small")
def test_the_trainer_seals_by_its_setting_alone(engine: Engine, schema: Schema, tmp_path: Path) -> None:
    before = reads(engine, schema)
    ticked(engine, tmp_path)
    with engine.connect() as connection:
        assert read_totals(connection, schema.task_id).num_files == 0
    ticked(engine, tmp_path, seal_after=0.5)
    with engine.connect() as connection:
        assert read_totals(connection, schema.task_id).num_rows > 200
    for one, other in zip(reads(engine, schema), before, strict=True):
        same(one, other)


@pytest.mark.usefixtures("_small")
def test_a_lost_file_is_in_the_status_until_it_is_back(engine: Engine, schema: Schema, tmp_path: Path) -> None:
    ticked(engine, tmp_path, seal_after=0.5)
    with engine.connect() as connection:
        file = list_files(connection, schema.task_id)[0]
    path = tmp_path / "objects" / file.path
    kept = path.with_suffix(".kept")
    path.rename(kept)
    ticked(engine, tmp_path)
    with engine.connect() as connection:
        assert any(file.path in warning for warning in read_row_warnings(connection, schema, now()).mistakes)
    kept.rename(path)
    ticked(engine, tmp_path)
    with engine.connect() as connection:
        assert read_totals(connection, schema.task_id).troubles == ()


@pytest.mark.usefixtures("_small")
def test_files_are_found_after_their_home_was_moved(engine: Engine, schema: Schema, tmp_path: Path) -> None:
    before = read(engine, schema, cutoff_after(200))
    ticked(engine, tmp_path / "old", seal_after=0.5)
    shutil.move(tmp_path / "old", tmp_path / "new")
    ticked(engine, tmp_path / "new")
    same(read(engine, schema, cutoff_after(200)), before)
    assert not (tmp_path / "old/objects/sealed").exists()


def test_a_moment_ago_is_too_new(engine: Engine, schema: Schema, tmp_path: Path) -> None:
    assert now() - START > timedelta(days=1)
    ticked(engine, tmp_path, seal_after=36_500.0)
    with engine.connect() as connection:
        assert read_totals(connection, schema.task_id).num_files == 0
