"""What MLflow's users find of a cycle: its rows, the fits below it, pictures, words; and how old runs go."""

import json
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Run
from sqlalchemy import Engine
from typer.testing import CliRunner

from cli.local.stack_file import StackUrls, stack_file
from cli.main import app
from contracts.manifest import MANIFEST_FILE, read_manifest
from contracts.task import Task
from store.releases import ALIAS
from store.tasks.catalog import Schema
from tests.integration.drifting_task import add_windows, cutoff_after, define, drifting_task, retrain
from trainer.evaluation.fit_store import candidate_folder
from trainer.tracking.registry import Registry
from trainer.tracking.tags import NOTE_TAG, ORIGIN_TAG, PARENT_TAG


def run_of(engine: Engine, registry: Registry, schema: Schema, num_windows: int, home: Path, **how: str) -> str:
    """The id of the run of a cycle that is carried out, whatever comes of it."""
    run_id = retrain(engine, registry, schema, num_windows, home, **how).run_id
    assert run_id is not None
    return run_id


def runs_of(client: MlflowClient, task: Task) -> list[Run]:
    experiment = client.get_experiment_by_name(task.name)
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))


def pictures(client: MlflowClient, run_id: str) -> set[str]:
    return {file.path for file in client.list_artifacts(run_id) if file.path.endswith(".svg")}


def prune(url: str, engine: Engine, task: Task, *options: str) -> str:
    """What the command prints that uses this database."""
    environment = {"COLUMNS": "200", "MORROW_DATABASE_URL": engine.url.render_as_string(hide_password=False)}
    result = CliRunner().invoke(app, ["runs", "prune", task.name, "--mlflow", url, *options], env=environment)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_released_cycle_is_told_whole(
    engine: Engine, registry: Registry, mlflow_client: MlflowClient, tmp_path: Path
) -> None:
    task = drifting_task()
    schema = define(engine, task, 10)
    run_id = run_of(engine, registry, schema, 10, tmp_path, device="auto")
    add_windows(engine, schema, 10, 11)
    second_id = run_of(engine, registry, schema, 11, tmp_path)
    run = mlflow_client.get_run(run_id)
    manifest = read_manifest(candidate_folder(tmp_path, task, cutoff_after(10)))

    (given,) = run.inputs.dataset_inputs if run.inputs else []
    profile, source, columns = (
        json.loads(part or "") for part in (given.dataset.profile, given.dataset.source, given.dataset.schema)
    )
    assert (given.dataset.name, given.dataset.digest) == (task.name, manifest.rows_digest[:36])
    assert (profile["num_rows"], profile["num_windows"]) == (1500, 10)
    assert "known_at <= '2026-01-01T10:00:00Z'" in source["tags"]["query"]
    assert [column["name"] for column in columns["mlflow_colspec"]] == ["at", "x", "kind", "y"]

    assert run.data.metrics["system/cpu_seconds"] > 0
    assert run.data.metrics["system/peak_memory_megabytes"] > 1
    assert run.data.tags["morrow.state"] == "released"

    fits = {
        one.data.tags[ORIGIN_TAG]: one
        for one in runs_of(mlflow_client, task)
        if one.data.tags.get(PARENT_TAG) == run_id
    }
    assert sorted(fits) == [f"2026-01-01T{hour:02}:00:00Z" for hour in (5, 6, 7, 8, 9, 10)]
    assert {fit.data.tags["morrow.device"] for fit in fits.values()} == {manifest.device}
    oldest = fits["2026-01-01T05:00:00Z"]
    assert oldest.info.status == "FINISHED"
    assert oldest.data.params["rows"] == "750"
    assert oldest.data.metrics["gi.loss"] > 0
    assert oldest.data.metrics["naive.loss"] > 0
    for told in (run, oldest):
        history = mlflow_client.get_metric_history(told.info.run_id, "loss.pretrain")
        assert [point.step for point in history] == [1, 2, 3, 4]
        assert 0 < told.data.metrics["delta.finetune_1"] <= task.training.delta_max
        assert "delta.pretrain" not in told.data.metrics

    assert pictures(mlflow_client, run_id) == {
        "confusion.svg",
        "error_by_age.svg",
        "error_matrix.svg",
        "paths.svg",
        "reliability.svg",
    }
    # The first version has been asked about the window that the second cycle knows the labels of.
    assert pictures(mlflow_client, second_id) == pictures(mlflow_client, run_id) | {"expected_and_realised.svg"}

    version = mlflow_client.get_model_version(task.name, "1")
    assert version.run_id == run_id
    assert version.tags["morrow.horizon"] == "2"
    assert version.tags["morrow.valid_until"] == "2026-01-01T12:00:00Z"
    words = version.description
    assert words is not None
    assert "fitted by gi to the 1,500 rows from" in words
    assert "Valid until **2026-01-01T12:00:00Z**: 2 windows of PT1H after its cutoff" in words
    assert "* the error matrix validates 2 windows" in words
    assert f"models:/{task.name}@champion" in words
    assert run.data.tags[NOTE_TAG] == words
    assert {file.path for file in mlflow_client.list_artifacts(run_id)} > {MANIFEST_FILE}


def test_a_release_waits_for_no_picture(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(), 10)
    folder = candidate_folder(tmp_path, schema.task, cutoff_after(10))
    drawn: list[int] = []

    def note(event: str, /, **_facts: object) -> None:
        if event == "cycle.ended":
            drawn.append(len(list(folder.glob("*.svg"))))

    assert retrain(engine, registry, schema, 10, tmp_path, report=note).state == "released"
    assert drawn == [0]
    assert len(list(folder.glob("*.svg"))) == 5


def test_a_regression_has_residuals_in_place_of_classes(
    engine: Engine, registry: Registry, mlflow_client: MlflowClient, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(target={"name": "y", "kind": "regression"}), 10, as_numbers=True)
    run_id = run_of(engine, registry, schema, 10, tmp_path)
    assert {"residuals.svg", "paths.svg"} < pictures(mlflow_client, run_id)
    assert not {"reliability.svg", "confusion.svg"} & pictures(mlflow_client, run_id)


def test_old_runs_go_with_their_files_and_those_of_versions_stay(
    engine: Engine, registry: Registry, mlflow_client: MlflowClient, tmp_path: Path
) -> None:
    task = drifting_task()
    schema = define(engine, task, 9)
    held = [run_of(engine, registry, schema, num_windows, tmp_path) for num_windows in (2, 3)]
    released = run_of(engine, registry, schema, 9, tmp_path)
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM cycles")
    skipped = run_of(engine, registry, schema, 1, tmp_path)
    all_runs = {run.info.run_id for run in runs_of(mlflow_client, task)}

    counted = prune(registry.url, engine, task, "--keep", "1")
    assert "Nothing is deleted without --yes." in counted
    assert {run.info.run_id for run in runs_of(mlflow_client, task)} == all_runs

    prune(registry.url, engine, task, "--keep", "1", "--yes")
    left = {run.info.run_id: run for run in runs_of(mlflow_client, task)}
    assert released in left
    assert not {*held, skipped} & set(left)
    assert {run.data.tags.get(PARENT_TAG, released) for run in left.values()} == {released}
    assert mlflow_client.list_artifacts(held[0]) == []
    assert mlflow_client.list_artifacts(released) != []
    assert str(mlflow_client.get_model_version_by_alias(task.name, ALIAS).version) == "1"
    assert "There is nothing to delete." in prune(registry.url, engine, task, "--keep", "1", "--yes")


def test_the_mlflow_of_a_running_stack_is_found(registry: Registry, tmp_path: Path) -> None:
    environment = {"MORROW_HOME": str(tmp_path), "MORROW_MLFLOW_URL": ""}
    with stack_file(tmp_path, StackUrls("http://127.0.0.1:1", registry.url)):
        found = CliRunner().invoke(app, ["runs", "prune", "no-such-task"], env=environment)
    assert (found.exit_code, "no experiment of a task 'no-such-task'" in found.output) == (1, True), found.output
    unfound = CliRunner().invoke(app, ["runs", "prune", "no-such-task"], env=environment)
    assert (unfound.exit_code, "--mlflow" in unfound.output) == (2, True), unfound.output
