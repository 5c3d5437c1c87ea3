"""The paper's tables in a real MLflow: a server, or the files of a folder."""

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from benchmarks.__main__ import main
from benchmarks.datasets import default_folder
from benchmarks.paper.mlflow_log import EXPERIMENT, open_registry
from benchmarks.paper.runs import missing_file


def test_every_cell_is_a_run_with_its_recipe(mlflow_url: str, tmp_path: Path) -> None:
    file = tmp_path / "cells.json"
    options = ["--tables", "main", "--sets", "moons_fresh", "--methods", "last_window", "--seeds", "2"]
    main(["paper", *options, "--json", str(file), "--mlflow", mlflow_url])
    (ours,) = json.loads(file.read_text())
    (logged,) = runs(mlflow_url, "main moons_fresh last_window paper")
    assert logged.info.status == "FINISHED"
    assert logged.data.metrics == {
        "mean": ours["mean"],
        "std": ours["std"],
        "published": 14.9,
        "published_std": 0.9,
        "seconds": ours["seconds"],
    }
    assert logged.data.params["pretrain_epochs"] == "30"
    assert logged.data.tags["budget"] == "64,000 row visits a model"
    assert logged.data.tags["chosen_by"] == ours["chosen_by"]


def test_pictures_stand_beside_the_cells_that_they_show(mlflow_url: str, tmp_path: Path) -> None:
    if lacking := missing_file(default_folder(), "moons"):
        pytest.skip(f"{lacking} is not there")
    options = ["--tables", "trelu", "--sets", "moons", "--seeds", "1", "--pictures", str(tmp_path)]
    main(["paper", *options, "--mlflow", mlflow_url])
    (logged,) = runs(mlflow_url, "pictures")
    names = {file.path for file in MlflowClient(mlflow_url).list_artifacts(logged.info.run_id)}
    assert names == {file.name for file in tmp_path.glob("*.png")} == {"boundaries_moons.png", "trelu_moons.png"}


@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")  # MLflow's own query
def test_a_folder_needs_no_server_and_is_found_again(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"x")
    for _ in range(2):
        registry = open_registry(str(tmp_path / "mlflow"))
        run = registry.start_run(EXPERIMENT, "a", {})
        registry.log_file(run, tmp_path / "picture.png")
        registry.end_run(run, "FINISHED", None)
    assert len(list((tmp_path / "mlflow" / "artifacts").rglob("picture.png"))) == 2


def runs(url: str, name: str) -> list[Any]:
    client = MlflowClient(url)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    return [run for run in client.search_runs([experiment.experiment_id]) if run.info.run_name == name]
