"""`morrow refused prune`, and the trainer's deletion of the same rows by its setting."""

import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text
from typer.testing import CliRunner

from cli.main import app
from store.events.writes import Rejection, record_rejections
from store.tasks.catalog import Schema
from store.tasks.row_counts import count_rows
from tests.integration.drifting_task import now, settings
from tests.integration.published_versions import define
from trainer.scheduling import refused_rows
from trainer.scheduling.refused_rows import RefusedRows

AGES = (0, 1, 89, 91, 200)


@pytest.fixture
def schema(engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Schema:
    """A task with refused rows of these ages in days, and another with as many."""
    monkeypatch.setenv("MORROW_DATABASE_URL", database_url)
    schema, other = define(engine), define(engine)
    with engine.begin() as connection:
        for one in (schema, other):
            for days in AGES:
                rejection = Rejection(f"e{days}", "label: is missing", "{}")
                record_rejections(connection, one.task_id, [rejection], now() - timedelta(days=days))
    return schema


def refused(engine: Engine, schema: Schema) -> list[str]:
    with engine.connect() as connection:
        query = text("SELECT event_id FROM rejected_events WHERE task_id = :task_id ORDER BY received_at DESC")
        found = list(connection.execute(query, {"task_id": schema.task_id}).scalars())
        assert count_rows(connection, schema.task_id).num_rejected == len(found)
    return found


def prune(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["refused", "prune", "--json", *arguments])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_old_refused_rows_are_counted_and_then_deleted(engine: Engine, schema: Schema) -> None:
    counted = prune()
    assert counted["deleted"] is False
    assert {one["num_rows"] for one in counted["tasks"]} == {2}
    assert len(counted["tasks"]) == 2
    assert len(refused(engine, schema)) == len(AGES)
    assert prune(schema.task.name, "--days", "1.5", "--yes")["tasks"] == [{"task": schema.task.name, "num_rows": 3}]
    assert refused(engine, schema) == ["e0", "e1"]
    (other,) = prune("--yes")["tasks"]
    assert (other["num_rows"], other["task"] != schema.task.name) == (2, True)
    assert prune()["tasks"] == []


def test_people_read_what_is_deleted_and_how(engine: Engine, schema: Schema) -> None:
    said = CliRunner().invoke(app, ["refused", "prune", schema.task.name]).stdout
    assert said.startswith(f"{schema.task.name}: 2 rows refused more than 90 days ago\n")
    assert "run it again with --yes" in said
    assert "They are deleted." in CliRunner().invoke(app, ["refused", "prune", "--yes"]).stdout
    assert CliRunner().invoke(app, ["refused", "prune"]).stdout == "No row was refused more than 90 days ago.\n"
    unknown = CliRunner().invoke(app, ["refused", "prune", "nobody"])
    assert unknown.exit_code != 0


def test_the_trainer_deletes_them_by_its_setting(
    engine: Engine, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_rows, "BATCH_SIZE", 2)
    RefusedRows(engine, settings(tmp_path), threading.Event()).tick(now())
    assert len(refused(engine, schema)) == len(AGES)
    job = RefusedRows(engine, settings(tmp_path, refused_days=0.5), threading.Event())
    job.tick(now())
    assert refused(engine, schema) == ["e0"]
    job.tick(now() + timedelta(days=1))  # it looks again after some minutes only
    assert refused(engine, schema) == ["e0"]
