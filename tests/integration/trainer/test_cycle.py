"""Whole cycles against real PostgreSQL and MLflow, on a task that retrains in a second."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from mlflow import MlflowClient
from sqlalchemy import Engine, func, select, text

from contracts.manifest import GRAPH_FILE, MANIFEST_FILE, RATE_FILE, read_manifest
from contracts.verdict import encode
from store.cycles.leases import expire_leases
from store.cycles.ledger import list_cycles
from store.database import releases
from store.error_cells import read_cells
from store.events.writes import append_events
from store.releases import ALIAS, Overlay, read_overlay
from store.tasks.catalog import Schema
from tests.integration.drifting_task import (
    ROWS_PER_WINDOW,
    START,
    Story,
    add_windows,
    claim,
    cutoff_after,
    define,
    drifting_events,
    drifting_task,
    now,
    retrain,
    settings,
)
from trainer.evaluation.fit_store import candidate_folder
from trainer.retraining.cycle import run_cycle
from trainer.tracking.registry import Registry

IDLE_IN_TRANSACTION = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'
"""


def count_releases(engine: Engine, schema: Schema) -> int:
    with engine.connect() as connection:
        query = select(func.count()).select_from(releases).where(releases.c.task_id == schema.task_id)
        return connection.execute(query).scalar_one()


def test_a_cycle_releases_a_version_that_services_can_read(
    engine: Engine, registry: Registry, mlflow_client: MlflowClient, tmp_path: Path
) -> None:
    task = drifting_task()
    schema = define(engine, task, 10)
    cutoff = cutoff_after(10)
    cycle = retrain(engine, registry, schema, 10, tmp_path)
    assert cycle.state == "released"
    assert (cycle.state, cycle.num_rows, cycle.step) == ("released", 1500, "release")
    assert cycle.verdict is not None
    assert cycle.verdict.matrix is not None
    assert cycle.verdict.matrix.horizon == 2
    champion = mlflow_client.get_model_version_by_alias(task.name, ALIAS)
    assert str(champion.version) == cycle.version
    assert cycle.version is not None
    with engine.connect() as connection:
        overlay = read_overlay(connection, schema.task_id, cycle.version)

    uri = mlflow_client.get_model_version_download_uri(task.name, cycle.version).removeprefix("mlflow-artifacts:/")
    downloaded = tmp_path / "downloaded"
    downloaded.mkdir()
    for name in (GRAPH_FILE, RATE_FILE, MANIFEST_FILE):
        answer = httpx.get(f"{registry.url}/api/2.0/mlflow-artifacts/artifacts/{uri}/{name}")
        (downloaded / name).write_bytes(answer.raise_for_status().content)
    manifest = read_manifest(downloaded)
    assert (manifest.cutoff, manifest.horizon, manifest.num_rows) == (cutoff, 2, 1500)
    assert [age.age for age in manifest.ages] == [0, 1]
    assert manifest.parse_task() == task
    assert overlay == Overlay(cutoff + 2 * task.clock.window, manifest.calibration)


def test_a_run_keeps_parameters_metrics_tags_and_the_picture(
    engine: Engine, registry: Registry, mlflow_client: MlflowClient, tmp_path: Path
) -> None:
    task = drifting_task()
    schema = define(engine, task, 10)
    cycle = retrain(engine, registry, schema, 10, tmp_path)
    assert cycle.state == "released"
    assert cycle.run_id is not None
    run = mlflow_client.get_run(cycle.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["training.width"] == "8"
    assert (run.data.params["device"], run.data.params["rows"]) == ("cpu", "1500")
    assert run.data.tags["morrow.cutoff"] == "2026-01-01T10:00:00Z"
    assert run.data.tags["morrow.verdict"] == "released"
    assert run.data.tags["morrow.device"] == "cpu"
    assert len(run.data.tags["morrow.rows_digest"]) == 64
    assert [point.step for point in mlflow_client.get_metric_history(cycle.run_id, "loss.pretrain")] == [1, 2, 3, 4]
    for name in ("error", "error_low", "error_high", "naive_error"):
        assert [point.step for point in mlflow_client.get_metric_history(cycle.run_id, name)] == [0, 1]
    assert {file.path for file in mlflow_client.list_artifacts(cycle.run_id)} >= {
        "error_by_age.svg",
        "error_matrix.json",
        "error_matrix.svg",
        MANIFEST_FILE,
    }


def test_a_steady_cycle_fits_one_model(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    task = drifting_task()
    schema = define(engine, task, 10)
    first, second = Story(), Story()
    assert retrain(engine, registry, schema, 10, tmp_path, report=first).state == "released"
    assert first.of("matrix.missing") == [{"num_kept": 0, "num_to_fit": 5}]
    add_windows(engine, schema, 10, 11)
    assert retrain(engine, registry, schema, 11, tmp_path, report=second).state == "released"
    assert second.of("matrix.missing") == [{"num_kept": 2, "num_to_fit": 0}]
    assert len(second.of("fit.began")) == 1
    assert {epoch["num_members"] for epoch in second.of("epoch.ended")} == {task.training.num_seeds}
    with engine.connect() as connection:
        cells = read_cells(connection, schema.task_id, task.recipe, until=cutoff_after(11))
    assert (cutoff_after(10), cutoff_after(10)) in {(cell.origin, cell.window) for cell in cells}


def test_with_late_labels_too_the_second_cycle_fits_one_model(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(label_delay="PT30M"), 11)
    first, second = Story(), Story()
    assert retrain(engine, registry, schema, 10, tmp_path, report=first).state == "released"
    assert first.of("matrix.missing") == [{"num_kept": 0, "num_to_fit": 6}]
    assert retrain(engine, registry, schema, 11, tmp_path, report=second).state == "released"
    assert second.of("matrix.missing") == [{"num_kept": 2, "num_to_fit": 0}]


def test_a_cycle_over_too_few_rows_is_skipped(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(guard={"min_rows": 200}), 1)
    cycle = retrain(engine, registry, schema, 1, tmp_path)
    assert cycle.state == "skipped"
    assert cycle.reason is not None
    assert cycle.reason.startswith("too few rows (1")
    assert cycle.num_rows == 150
    assert registry.champion(schema.task.name) is None


def test_with_too_short_a_past_a_cycle_is_held_and_says_how_many_windows_are_needed(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(), 3)
    cycle = retrain(engine, registry, schema, 3, tmp_path)
    assert (cycle.state, cycle.reason) == ("held", "1 more complete window is needed")


def test_a_model_that_does_not_beat_naive_is_held_and_its_run_says_so(
    engine: Engine, registry: Registry, mlflow_client: MlflowClient, tmp_path: Path
) -> None:
    task = drifting_task()
    overfit = task.training.model_copy(update={"history": 1, "pretrain_epochs": 40, "pretrain_rate": 0.1})
    schema = define(engine, task.model_copy(update={"training": overfit}), 8, shuffled=True)
    cycle = retrain(engine, registry, schema, 8, tmp_path)
    assert cycle.state == "held"
    assert cycle.reason is not None
    assert "does not beat naive" in cycle.reason
    assert registry.champion(schema.task.name) is None
    assert count_releases(engine, schema) == 0
    assert cycle.run_id is not None
    run = mlflow_client.get_run(cycle.run_id)
    assert run.info.status == "FINISHED"
    assert "does not beat naive" in run.data.tags["morrow.verdict"]


def test_whoever_lost_the_lease_releases_nothing(
    engine: Engine, registry: Registry, mlflow_client: MlflowClient, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(), 10)

    def lose(event: str, /, **facts: object) -> None:
        if event == "cycle.step" and facts["step"] == "register":
            with engine.begin() as connection:
                assert len(expire_leases(connection, now() + timedelta(hours=1))) == 1

    cycle = claim(engine, schema, cutoff_after(10))
    assert run_cycle(engine, registry, cycle, settings=settings(tmp_path), now=now, report=lose) is None
    assert registry.champion(schema.task.name) is None
    assert count_releases(engine, schema) == 0
    with engine.connect() as connection:
        (ended,) = list_cycles(connection, schema.task_id)
    assert ended.state == "failed"
    assert ended.run_id is not None
    assert mlflow_client.get_run(ended.run_id).info.status == "FAILED"


def test_a_regression_is_released_and_judged_by_its_absolute_error(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    task = drifting_task(target={"name": "y", "kind": "regression"})
    schema = define(engine, task, 0)
    add_windows(engine, schema, 0, 10, as_numbers=True)
    cycle = retrain(engine, registry, schema, 10, tmp_path)
    assert cycle.state == "released"
    assert cycle.verdict is not None
    verdict = encode(cycle.verdict)
    assert verdict["error_name"] == "mean_absolute_error"
    assert json.dumps(verdict, allow_nan=False)


def test_a_gap_in_the_events_shortens_the_horizon_and_then_ends_it(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(), 10)
    assert retrain(engine, registry, schema, 11, tmp_path).state == "released"
    manifest = read_manifest(candidate_folder(tmp_path, schema.task, cutoff_after(11)))
    assert (manifest.horizon, [age.age for age in manifest.ages]) == (1, [0])
    cycle = retrain(engine, registry, schema, 12, tmp_path)
    assert cycle.state == "held"
    assert cycle.reason == "no event of the newest 2 windows is known, and the validated horizon is 2 windows"


@pytest.mark.parametrize("absurd", [1e30, -1e300])
def test_one_absurd_label_costs_no_release(engine: Engine, registry: Registry, tmp_path: Path, absurd: float) -> None:
    schema = define(engine, drifting_task(target={"name": "y", "kind": "regression"}), 0)
    rows = list(drifting_events(0, 10, as_numbers=True))
    for place in (2 * ROWS_PER_WINDOW + 1, 8 * ROWS_PER_WINDOW + 1):
        rows[place] = replace(rows[place], label=repr(absurd))
    with engine.begin() as connection:
        append_events(connection, schema, rows, START)
    assert retrain(engine, registry, schema, 10, tmp_path).state == "released"


def test_no_transaction_stays_open_while_a_model_is_fitted(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(), 10)
    open_transactions: list[Any] = []

    def look(event: str, /, **facts: object) -> None:
        if event == "epoch.ended":
            with engine.connect() as connection:
                open_transactions.append(connection.scalar(text(IDLE_IN_TRANSACTION)))

    cycle = claim(engine, schema, cutoff_after(10))
    assert run_cycle(engine, registry, cycle, settings=settings(tmp_path), now=now, report=look) == "released"
    assert open_transactions
    assert set(open_transactions) == {0}
