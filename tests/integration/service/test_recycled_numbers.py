"""A version's number may stand for another model: one that was deleted comes back, or MLflow is set up again.

MLflow then counts from 1 again. What answers, how long, and what a restart loads must be the model that is meant.
"""

from pathlib import Path

import pytest
from mlflow import MlflowClient
from sqlalchemy import Engine

from contracts.clock import format_moment
from service.models.loader import load_forecaster
from store.tasks.catalog import Schema
from tests.integration.artefacts import CUTOFF, WEEK, publish, write_version
from tests.integration.make_follower import QUESTION, MakeFollower, ask
from tests.integration.published_versions import note


@pytest.fixture
def two_models(task: str, tmp_path: Path) -> tuple[Path, Path]:
    """Artefacts that answer differently, of two cutoffs."""
    former = write_version(tmp_path / "former", task=task, horizon=3)
    return former, write_version(tmp_path / "newer", task=task, bias=2.0, cutoff=CUTOFF + WEEK, horizon=1)


def recycle(mlflow_url: str, task: str, folder: Path) -> None:
    """Delete the registered model, and register another one of the same name: its first version is 1 too."""
    MlflowClient(mlflow_url, mlflow_url).delete_registered_model(task)
    assert publish(mlflow_url, task, folder) == "1"


def test_a_number_that_has_come_to_mean_another_model_is_downloaded_anew(
    make_follower: MakeFollower, mlflow_url: str, task: str, two_models: tuple[Path, Path]
) -> None:
    former, newer = two_models
    assert publish(mlflow_url, task, former) == "1"
    follower = make_follower()
    follower.poll(0)
    recycle(mlflow_url, task, newer)
    follower.poll(1)
    said = load_forecaster(newer, task, "1", threads=1).answer(QUESTION)
    assert ask(follower, task) == said
    # A restart without a registry loads the new one, and one with it downloads nothing.
    assert ask(make_follower(offline=True), task) == said
    again = make_follower()
    answering = again.forecasters[task]
    again.poll(0)
    assert again.forecasters[task] is answering


def test_a_copy_whose_number_has_come_to_mean_another_model_is_not_loaded_by_a_restart(
    make_follower: MakeFollower, mlflow_url: str, task: str, two_models: tuple[Path, Path]
) -> None:
    former, newer = two_models
    assert publish(mlflow_url, task, former) == "1"
    make_follower().poll(0)
    recycle(mlflow_url, task, newer)
    restarted = make_follower()
    restarted.poll(0)
    assert ask(restarted, task) == load_forecaster(newer, task, "1", threads=1).answer(QUESTION)


def test_the_bound_of_one_model_never_counts_for_another_of_the_same_number(
    make_follower: MakeFollower, mlflow_url: str, engine: Engine, schema: Schema, two_models: tuple[Path, Path]
) -> None:
    task, (former, newer) = schema.task.name, two_models
    assert publish(mlflow_url, task, former) == "1"
    note(engine, schema, "1", "release", valid_until=CUTOFF + 3 * WEEK)
    note(engine, schema, "1", "override", valid_until=CUTOFF + 9 * WEEK)
    follower = make_follower()
    follower.poll(0)
    assert follower.find(task).valid_until == CUTOFF + 9 * WEEK

    recycle(mlflow_url, task, newer)
    follower.poll(1)
    # Its own row is not written yet; the rows of the former model still are the newest of this number.
    promised = {"cutoff": format_moment(CUTOFF + WEEK), "recipe": schema.task.recipe, "horizon": 1}
    note(engine, schema, "1", "release", valid_until=CUTOFF + 2 * WEEK, verdict=promised)
    follower.poll(2)
    assert follower.find(task).valid_until == CUTOFF + 2 * WEEK
    assert make_follower(offline=True).find(task).valid_until == CUTOFF + 2 * WEEK


def test_a_version_that_cannot_be_replaced_yet_keeps_its_bound_when_its_number_is_released_anew(
    make_follower: MakeFollower, mlflow_url: str, engine: Engine, schema: Schema, two_models: tuple[Path, Path]
) -> None:
    task, (former, _) = schema.task.name, two_models
    assert publish(mlflow_url, task, former) == "1"
    note(engine, schema, "1", "release", valid_until=CUTOFF + 3 * WEEK)
    follower = make_follower()
    follower.poll(0)
    promised = {"cutoff": format_moment(CUTOFF + WEEK), "recipe": schema.task.recipe, "horizon": 8}
    note(engine, schema, "1", "release", valid_until=CUTOFF + 9 * WEEK, verdict=promised)
    follower.poll(1)
    assert follower.find(task).valid_until == CUTOFF + 3 * WEEK
