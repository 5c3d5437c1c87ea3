"""Faults of training that others have met: late rows, absurd values, tiny windows, new classes, absent devices."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from mlflow import MlflowClient
from sqlalchemy import Engine, text

from cli.local.stack import free_port
from contracts.manifest import Manifest, read_manifest
from store.error_cells import Cell, read_cells
from store.events.batches import Event
from store.events.writes import append_events
from store.tasks.catalog import Schema
from tests.integration.drifting_task import (
    START,
    add_windows,
    cutoff_after,
    cycles_of,
    define,
    drifting_events,
    drifting_task,
    retrain,
)
from tests.integration.live_job import live, moment
from trainer.data.snapshot import read
from trainer.data.windows import in_window
from trainer.evaluation.fit_store import candidate_folder, open_fit, score_fit
from trainer.tracking.registry import Registry


def add(engine: Engine, schema: Schema, window: int, change: Callable[[int, Event], Event | None]) -> None:
    """The events of one window, each changed by its place, or left out."""
    changed = [change(place, event) for place, event in enumerate(drifting_events(window, window + 1))]
    with engine.begin() as connection:
        append_events(connection, schema, [event for event in changed if event is not None], START)


def manifest_of(home: Path, schema: Schema, num_windows: int) -> Manifest:
    return read_manifest(candidate_folder(home, schema.task, cutoff_after(num_windows)))


def cells_of(engine: Engine, schema: Schema, origin: int) -> list[Cell]:
    with engine.connect() as connection:
        return read_cells(
            connection, schema.task_id, schema.task.recipe, until=cutoff_after(100), origin=cutoff_after(origin)
        )


def test_a_cutoff_that_is_fitted_anew_keeps_no_cell_of_its_former_fit(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(), 10)
    nowhere = Registry(f"http://127.0.0.1:{free_port()}")
    assert retrain(engine, nowhere, schema, 10, tmp_path).state == "failed"
    add_windows(engine, schema, 10, 11)
    live(engine, tmp_path).score_new_labels(moment(11))
    former = cells_of(engine, schema, 10)
    assert [cell.method for cell in former] == ["gi", "naive"]

    shifted = [replace(event, event_id=f"late {event.event_id}") for event in drifting_events(9, 10, shuffled=True)]
    with engine.begin() as connection:
        append_events(connection, schema, shifted, START)
    assert retrain(engine, registry, schema, 10, tmp_path).state in ("released", "held")
    assert cells_of(engine, schema, 10) == []
    live(engine, tmp_path).score_new_labels(moment(11))
    reading = read(engine, schema, cutoff_after(11), moment(11))
    window = cutoff_after(10)
    rows = in_window(reading.events.as_of(cutoff_after(11)), window, schema.task.clock)
    kept = open_fit(candidate_folder(tmp_path, schema.task, window))
    fresh = score_fit(kept, rows, window=window, num_revisions=len(rows), is_complete=True)
    renewed = cells_of(engine, schema, 10)
    assert renewed == list(fresh)
    assert renewed[0].loss != former[0].loss


@pytest.mark.parametrize("absurd", [1e38, -1e300])
def test_a_window_with_an_absurd_feature_ends_in_a_finite_model(
    engine: Engine, registry: Registry, tmp_path: Path, absurd: float
) -> None:
    schema = define(engine, drifting_task(), 9)
    add(engine, schema, 9, lambda place, event: replace(event, numbers=(absurd,)) if place == 7 else event)
    cycle = retrain(engine, registry, schema, 10, tmp_path)
    assert cycle.state == "released"
    kept = open_fit(candidate_folder(tmp_path, schema.task, cutoff_after(10)))
    assert kept.manifest.horizon > 0


def test_a_fit_that_diverges_fails_its_run_and_leaves_the_champion(
    engine: Engine, registry: Registry, mlflow_url: str, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(), 10)
    assert retrain(engine, registry, schema, 10, tmp_path).state == "released"
    champion = registry.champion(schema.task.name)
    wild = schema.task.training.model_copy(update={"pretrain_rate": 1e30})
    changed = replace(schema, task=schema.task.model_copy(update={"training": wild}))
    wilder = define(engine, changed.task, 11)
    failed = retrain(engine, registry, wilder, 11, tmp_path)
    assert failed.state == "failed"
    assert "is nan in epoch" in str(failed.reason)
    assert registry.champion(schema.task.name) == champion
    assert failed.run_id is not None
    client = MlflowClient(mlflow_url, mlflow_url)
    assert client.get_run(failed.run_id).info.status == "FAILED"
    assert len(client.search_model_versions(f"name='{schema.task.name}'")) == 1


@pytest.mark.parametrize("num_rows", [0, 1, 2])
def test_a_first_window_of_hardly_any_rows_is_skipped_with_their_number(
    engine: Engine, registry: Registry, tmp_path: Path, num_rows: int
) -> None:
    schema = define(engine, drifting_task(), 0)
    add(engine, schema, 0, lambda place, event: event if place < num_rows else None)
    cycle = retrain(engine, registry, schema, 1, tmp_path)
    assert cycle.state == "skipped"
    assert str(cycle.reason).startswith("too few rows (")


@pytest.mark.parametrize("num_rows", [0, 1, 2])
def test_a_later_window_of_hardly_any_rows_ends_no_schedule_and_stretches_no_horizon(
    engine: Engine, registry: Registry, tmp_path: Path, num_rows: int
) -> None:
    schema = define(engine, drifting_task(), 10)
    assert retrain(engine, registry, schema, 10, tmp_path).state == "released"
    horizon = manifest_of(tmp_path, schema, 10).horizon
    add(engine, schema, 10, lambda place, event: event if place < num_rows else None)
    thin = retrain(engine, registry, schema, 11, tmp_path)
    assert thin.state in ("released", "held")
    assert manifest_of(tmp_path, schema, 11).horizon <= horizon
    add_windows(engine, schema, 11, 12)
    assert retrain(engine, registry, schema, 12, tmp_path).state in ("released", "held")
    assert manifest_of(tmp_path, schema, 12).horizon <= horizon


def test_each_version_names_the_classes_that_it_has_seen(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    """The third class comes in window 10 and is out of the fits' sight again from window 12 on."""
    training = drifting_task().training.model_dump() | {"history": 2}
    schema = define(engine, drifting_task(training=training), 10)
    assert retrain(engine, registry, schema, 10, tmp_path).state == "released"
    add(engine, schema, 10, lambda place, event: replace(event, label="maybe") if place % 3 == 0 else event)
    add_windows(engine, schema, 11, 13)
    for num_windows in (11, 13):
        assert retrain(engine, registry, schema, num_windows, tmp_path).state in ("released", "held")
    assert [manifest_of(tmp_path, schema, one).classes for one in (10, 11, 13)] == [
        ["no", "yes"],
        ["maybe", "no", "yes"],
        ["no", "yes"],
    ]
    losses = [cell.loss for cell in cells_of(engine, schema, 10) if cell.window == cutoff_after(10)]
    assert losses
    assert max(losses) > 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="here the device that is asked for is there")
def test_without_the_device_that_is_asked_for_the_run_fails_and_says_which_and_the_next_one_works(
    engine: Engine, registry: Registry, mlflow_url: str, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(), 10)
    failed = retrain(engine, registry, schema, 10, tmp_path, device="cuda")
    reason = "The settings require the device cuda, but this trainer sees none."
    assert (failed.state, failed.reason) == ("failed", reason)
    released = retrain(engine, registry, schema, 10, tmp_path, device="auto")
    assert released.state == "released"
    client = MlflowClient(mlflow_url, mlflow_url)
    runs = [client.get_run(str(cycle.run_id)) for cycle in (failed, released)]
    assert [run.info.status for run in runs] == ["FAILED", "FINISHED"]
    assert [run.data.tags["morrow.device"] for run in runs] == ["cuda", "cpu"]


def test_a_trainer_keeps_no_job_in_the_database_and_leaves_those_of_others(
    engine: Engine, database_url: str, tmp_path: Path
) -> None:
    """So a rename of our functions can lose no schedule, and a job that nobody can read stops none."""
    schema = define(engine, drifting_task(schedule="window"), 1)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE apscheduler_jobs (id text PRIMARY KEY, job_state bytea NOT NULL)"))
        connection.execute(text("INSERT INTO apscheduler_jobs VALUES ('tick', 'no pickle')"))
    before = tables_of(engine)
    environment = {
        **os.environ,
        "MORROW_HOME": str(tmp_path),
        "MORROW_DATABASE_URL": database_url,
        "MORROW_MLFLOW_URL": f"http://127.0.0.1:{free_port()}",
    }
    process = subprocess.Popen([sys.executable, "-m", "trainer"], env=environment, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while not cycles_of(engine, schema):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
    assert tables_of(engine) == before
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM apscheduler_jobs")).scalar_one() == 1


def tables_of(engine: Engine) -> set[str]:
    """The tables, apart from partitions: a trainer makes those of days ahead."""
    tables = "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
    with engine.connect() as connection:
        return set(connection.execute(text(f"{tables} AND relnamespace = 'public'::regnamespace")).scalars())
