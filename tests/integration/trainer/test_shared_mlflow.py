"""Two installations on one MLflow: neither deletes, renames, answers from or registers into what the other has."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from sqlalchemy import Engine, text, update
from structlog.testing import capture_logs
from typer.testing import CliRunner

from cli.main import app
from service.database import Store
from service.metrics import Metrics
from service.models.follower import Follower
from store.database import installation
from store.engine import make_engine
from store.tasks.catalog import Schema, find_task
from store.tasks.deletion import list_deleted
from store.tasks.installation import INSTALLATION_TAG, read_installation
from store.tasks.lifecycle import begin_deletion, rename_task
from tests.integration.artefacts import move_alias
from tests.integration.drifting_task import carry_out, claim, cutoff_after, define, drifting_task, now, retrain
from tests.integration.service_app import service_settings
from tests.integration.trainer_ticks import settings_for
from tests.servers import clone_of, database
from trainer.scheduling.deletions import Deletions
from trainer.tracking.registry import Registry

NUM_WINDOWS = 8
MakeDeletions = Callable[[Engine], Deletions]
FollowIn = Callable[[Engine], Follower]


@pytest.fixture
def other(template: str) -> Iterator[Engine]:
    """The database of another installation."""
    with database(template, how=clone_of(template)) as url:
        engine = make_engine(url)
        with engine.begin() as connection:
            connection.execute(update(installation).values(name=text("gen_random_uuid()::text")))
        yield engine
        engine.dispose()


@pytest.fixture
def make_deletions(mlflow_url: str, tmp_path: Path) -> MakeDeletions:
    def make(engine: Engine) -> Deletions:
        url = engine.url.render_as_string(hide_password=False)
        return Deletions(engine, settings_for(tmp_path / "deletions", url, mlflow_url), threading.Event())

    return make


@pytest.fixture
def follow_in(mlflow_url: str, tmp_path: Path) -> Iterator[FollowIn]:
    """A process of the API of the installation with this database."""
    with ExitStack() as opened:

        def follow(engine: Engine) -> Follower:
            home = tmp_path / (engine.url.database or "") / "home"
            store = Store(engine, places=2, seconds=5)
            url = engine.url.render_as_string(hide_password=False)
            follower = Follower(service_settings(url, home, mlflow_url=mlflow_url), store, Metrics())
            opened.callback(follower.close)
            follower.poll(0)
            return follower

        yield follow


@pytest.fixture
def released(engine: Engine, registry: Registry, tmp_path: Path) -> Schema:
    """A task of the first installation with a released version."""
    schema = define(engine, drifting_task(), NUM_WINDOWS)
    assert retrain(engine, registry, schema, NUM_WINDOWS, tmp_path).state == "released"
    return schema


def forget_marks(client: MlflowClient, task: str) -> None:
    """Leave what the release before wrote."""
    client.delete_registered_model_tag(task, INSTALLATION_TAG)
    for version in client.search_model_versions(f"name='{task}'"):
        client.delete_model_version_tag(task, version.version, INSTALLATION_TAG)
    experiment = client.get_experiment_by_name(task)
    assert experiment is not None
    client._tracking_client.store.delete_experiment_tag(experiment.experiment_id, INSTALLATION_TAG)
    for run in client.search_runs([experiment.experiment_id]):
        client.delete_tag(run.info.run_id, INSTALLATION_TAG)


def delete(engine: Engine, name: str, deletions: Deletions) -> None:
    with engine.begin() as connection:
        begin_deletion(connection, name, actor="Ada", reason="mistyped", now=now())
    deletions.tick(now())
    with engine.connect() as connection:
        assert list_deleted(connection) == []


def in_mlflow(client: MlflowClient, task: str) -> tuple[list[str], set[str], str]:
    """Versions, active runs, and the version of the alias."""
    experiment = client.get_experiment_by_name(task)
    assert experiment is not None
    assert experiment.lifecycle_stage == "active"
    runs = {run.info.run_id for run in client.search_runs([experiment.experiment_id])}
    versions = [str(version.version) for version in client.search_model_versions(f"name='{task}'")]
    return versions, runs, str(client.get_model_version_by_alias(task, "champion").version)


def share(
    client: MlflowClient, released: Schema, other: Engine, *, is_marked: bool
) -> tuple[str, tuple[list[str], set[str], str]]:
    """Another installation defines a task of the same name; returns the name, and what MLflow has of it."""
    name = released.task.name
    if not is_marked:
        forget_marks(client, name)
    before = in_mlflow(client, name)
    define(other, released.task, 0)
    return name, before


def test_a_cycle_marks_model_version_experiment_and_runs(
    engine: Engine, mlflow_client: MlflowClient, released: Schema
) -> None:
    name = released.task.name
    with engine.begin() as connection:
        mark = read_installation(connection)
    experiment = mlflow_client.get_experiment_by_name(name)
    assert experiment is not None
    runs = mlflow_client.search_runs([experiment.experiment_id])
    assert len(runs) > 1
    model, version = mlflow_client.get_registered_model(name), mlflow_client.get_model_version(name, "1")
    assert {tags.get(INSTALLATION_TAG) for tags in (model.tags, version.tags, experiment.tags)} == {mark}
    assert {run.data.tags.get(INSTALLATION_TAG) for run in runs} == {mark}


@pytest.mark.parametrize("is_marked", [True, False])
def test_a_deletion_leaves_the_model_experiment_and_runs_of_another_installation(
    engine: Engine,
    other: Engine,
    *,
    mlflow_client: MlflowClient,
    released: Schema,
    make_deletions: MakeDeletions,
    follow_in: FollowIn,
    is_marked: bool,
) -> None:
    name, before = share(mlflow_client, released, other, is_marked=is_marked)
    with capture_logs() as lines:
        delete(other, name, make_deletions(other))
    (line,) = [one for one in lines if one["event"] == "task.left_in_mlflow"]
    assert len(line["left"]) == 2
    assert in_mlflow(mlflow_client, name) == before
    assert follow_in(engine).find(name).version == "1"

    delete(engine, name, make_deletions(engine))
    assert not mlflow_client.search_registered_models(f"name='{name}'")
    assert mlflow_client.get_experiment_by_name(name) is None


@pytest.mark.parametrize("is_marked", [True, False])
def test_a_renaming_leaves_the_model_and_experiment_of_another_installation(
    engine: Engine,
    other: Engine,
    *,
    mlflow_client: MlflowClient,
    released: Schema,
    make_deletions: MakeDeletions,
    is_marked: bool,
) -> None:
    name, before = share(mlflow_client, released, other, is_marked=is_marked)
    for owner, new_name in ((other, f"{name}_b"), (engine, f"{name}_a")):
        with owner.begin() as connection:
            rename_task(connection, name, new_name, actor="Ada", reason="", now=now())
        make_deletions(owner).tick(now())
        with owner.connect() as connection:
            assert find_task(connection, new_name).registry_name is None
        left = name if owner is other else new_name
        assert in_mlflow(mlflow_client, left) == before
    assert not mlflow_client.search_registered_models(f"name='{name}_b'")


def prune(owner: Engine, registry: Registry, task: str) -> dict[str, Any]:
    """What the command says that keeps one cycle and uses this database."""
    environment = {"MORROW_DATABASE_URL": owner.url.render_as_string(hide_password=False)}
    options = ["--mlflow", registry.url, "--keep", "1", "--yes", "--json"]
    result = CliRunner().invoke(app, ["runs", "prune", task, *options], env=environment)
    assert result.exit_code == 0, result.output
    (fact,) = json.loads(result.stdout)["tasks"]
    assert isinstance(fact, dict)
    return fact


@pytest.mark.parametrize("is_marked", [True, False])
def test_old_runs_of_another_installation_are_counted_and_stay(
    engine: Engine,
    other: Engine,
    *,
    registry: Registry,
    mlflow_client: MlflowClient,
    released: Schema,
    tmp_path: Path,
    is_marked: bool,
) -> None:
    name = released.task.name
    for num_windows in (2, 3):
        carry_out(engine, registry, claim(engine, released, cutoff_after(num_windows)), tmp_path / "old")
    if not is_marked:
        forget_marks(mlflow_client, name)
    versions, runs, champion = in_mlflow(mlflow_client, name)
    define(other, released.task, 0)
    theirs = prune(other, registry, name)
    assert (theirs["num_runs"], theirs["num_runs_to_delete"], theirs["num_runs_of_others"]) == (0, 0, len(runs))
    assert in_mlflow(mlflow_client, name) == (versions, runs, champion)
    ours = prune(engine, registry, name)
    assert (ours["num_runs"], ours["num_cycles_to_delete"], ours["num_runs_of_others"]) == (len(runs), 2, 0)
    assert len(in_mlflow(mlflow_client, name)[1]) == len(runs) - ours["num_runs_to_delete"]


def test_a_version_of_another_installation_does_not_answer_and_says_why(
    engine: Engine, other: Engine, *, released: Schema, follow_in: FollowIn
) -> None:
    name = released.task.name
    define(other, released.task, 0)
    theirs = follow_in(other)
    assert name not in theirs.forecasters
    found = theirs.registries[name]
    assert (found.state, found.champion) == ("degraded", None)
    reason = str(found.reason)
    assert "Version 1 of MLflow's model" in reason
    assert "another installation" in reason
    assert "MORROW_MLFLOW_URL" in reason
    assert theirs.is_ready
    assert follow_in(engine).find(name).version == "1"


def test_an_alias_moved_to_a_version_of_another_installation_is_not_followed(
    engine: Engine, mlflow_url: str, *, mlflow_client: MlflowClient, released: Schema, follow_in: FollowIn
) -> None:
    name = released.task.name
    follower = follow_in(engine)
    one = mlflow_client.get_model_version(name, "1")
    source = str(one.source)
    model_id = source.removeprefix("models:/")
    tags = {INSTALLATION_TAG: "somebody else"}
    second = mlflow_client.create_model_version(name, source, tags=tags, model_id=model_id)
    move_alias(mlflow_url, name, second.version)
    follower.poll(1)
    assert follower.find(name).version == "1"
    assert follower.registries[name].state == "degraded"
    mlflow_client.delete_model_version_tag(name, second.version, INSTALLATION_TAG)
    follower.poll(2)
    assert follower.find(name).version == second.version


@pytest.mark.parametrize("is_experiment_left", [True, False])
def test_a_cycle_registers_nothing_in_a_model_of_another_installation(
    engine: Engine,
    other: Engine,
    *,
    registry: Registry,
    mlflow_client: MlflowClient,
    released: Schema,
    follow_in: FollowIn,
    tmp_path: Path,
    is_experiment_left: bool,
) -> None:
    name = released.task.name
    before = in_mlflow(mlflow_client, name)
    if not is_experiment_left:
        experiment = mlflow_client.get_experiment_by_name(name)
        assert experiment is not None
        mlflow_client.rename_experiment(experiment.experiment_id, f"{name}_elsewhere")
    schema = define(other, released.task, NUM_WINDOWS)
    ended = carry_out(other, registry, claim(other, schema, cutoff_after(NUM_WINDOWS)), tmp_path / "other")
    assert (ended.state, ended.version) == ("failed", None)
    assert "another installation" in str(ended.reason)
    assert "MORROW_MLFLOW_URL" in str(ended.reason)
    if is_experiment_left:
        assert in_mlflow(mlflow_client, name) == before
    assert follow_in(engine).find(name).version == "1"
