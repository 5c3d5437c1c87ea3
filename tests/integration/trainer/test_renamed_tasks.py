"""Renaming a task: everything of it stays, every process follows, and the old name says the new one."""

import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from sqlalchemy import Engine

from contracts.clock import format_moment
from contracts.failure import STOPPED
from store.cycles.leases import claim_cycle, end_cycle
from store.cycles.ledger import list_cycles
from store.cycles.requests import request_cycle
from store.tasks.catalog import Schema, find_task
from store.tasks.deletion import list_deleted
from store.tasks.installation import read_traces
from store.tasks.lifecycle import begin_deletion, rename_task
from tests.integration.artefacts import CUTOFF
from tests.integration.drifting_task import carry_out, cutoff_after, drifting_task, now
from tests.integration.drifting_task import claim as claim_at
from tests.integration.drifting_task import define as define_drifting
from tests.integration.make_follower import MakeFollower
from tests.integration.published_versions import LEASE, NOW, history, publish_and_release, run_cycle, wait_for
from tests.integration.service_app import DEAD_REGISTRY, TASK, an_event, service_settings, serving
from tests.integration.trainer_ticks import settings_for
from trainer.scheduling.deletions import Deletions
from trainer.tracking.registry import Registry
from trainer.tracking.task_removal import rename_task as rename_in_mlflow

pytestmark = pytest.mark.anyio

MOMENT = {"at": format_moment(CUTOFF), "distance": "0", "carrier": "UA"}


@pytest.fixture
async def client(database_url: str, mlflow_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(service_settings(database_url, tmp_path / "home", mlflow_url=mlflow_url)) as client:
        yield client


@pytest.fixture
def deletions(engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path) -> Deletions:
    return Deletions(engine, settings_for(tmp_path, database_url, mlflow_url), threading.Event())


@pytest.fixture
def new_name() -> str:
    return f"flights_{uuid4().hex[:8]}"


async def rename(client: httpx.AsyncClient, task: str, name: str, **body: Any) -> httpx.Response:
    return await client.post(f"/tasks/{task}/rename", json={"name": name, **body})


async def test_a_renamed_task_keeps_everything_and_its_old_name_leads_to_it(
    client: httpx.AsyncClient,
    *,
    mlflow_url: str,
    mlflow_client: MlflowClient,
    engine: Engine,
    schema: Schema,
    task: str,
    new_name: str,
    deletions: Deletions,
    tmp_path: Path,
) -> None:
    version = publish_and_release(mlflow_url, engine, schema, tmp_path)
    run_cycle(engine, schema, CUTOFF, "held", "suspect")
    await client.post("/events", params={"task": task}, json=an_event())
    await wait_for(client, "/predict", lambda found: found.get("version") == version, params={**MOMENT, "task": task})
    if mlflow_client.get_experiment_by_name(task) is None:
        mlflow_client.create_experiment(task)

    done = (await rename(client, task, new_name, actor="Ada")).json()
    assert (done["action"], done["task"], done["new_name"], done["actor"]) == ("rename", task, new_name, "Ada")
    assert (await client.post("/events", params={"task": new_name}, json=an_event())).json()["duplicates"] == 1
    assert (await client.put(f"/tasks/{task}", json=TASK)).json()["type"] == "/problems/task-leaving"
    deletions.tick(now())

    question = {**MOMENT, "task": new_name}
    answer = await wait_for(client, "/predict", lambda found: found.get("version") == version, params=question)
    assert answer["task"] == new_name
    await wait_for(client, f"/tasks/{new_name}", lambda found: found["registry"]["state"] == "ok")
    assert mlflow_client.get_model_version_by_alias(new_name, "champion").version == version
    assert mlflow_client.get_experiment_by_name(new_name) is not None
    assert mlflow_client.get_experiment_by_name(task) is None
    with engine.connect() as connection:
        renamed = find_task(connection, new_name)
    assert (renamed.task_id, renamed.revision, renamed.task.name) == (schema.task_id, schema.revision, new_name)
    assert (await client.get(f"/tasks/{new_name}/changes")).json()["changes"][0]["task"] == task
    assert len((await client.get(f"/tasks/{new_name}/cycles")).json()["cycles"]) == 1
    assert len(history(engine, schema)) == 1

    for method, path, how in (
        ("GET", f"/tasks/{task}", {}),
        ("GET", "/predict", {"params": {**MOMENT, "task": task}}),
        ("POST", "/events", {"params": {"task": task}, "json": an_event()}),
        ("POST", f"/tasks/{task}/cycles", {}),
    ):
        refused = (await client.request(method, path, **how)).json()
        assert (refused["status"], refused["type"], refused["task"]) == (404, "/problems/task-renamed", new_name)
    assert (await client.get(f"/pages/{task}")).status_code == 404

    assert (await client.put(f"/tasks/{task}", json=TASK)).status_code == 201
    assert (await client.get(f"/tasks/{task}")).json()["num_events"] == 0
    await wait_for(
        client, "/predict", lambda found: found.get("type") == "/problems/no-model", params={**MOMENT, "task": task}
    )
    assert (await client.get("/predict", params=question)).json()["version"] == version


def test_a_process_serves_the_same_version_under_the_new_name_also_after_an_offline_restart(
    mlflow_url: str,
    *,
    engine: Engine,
    schema: Schema,
    task: str,
    new_name: str,
    make_follower: MakeFollower,
    tmp_path: Path,
) -> None:
    version = publish_and_release(mlflow_url, engine, schema, tmp_path)
    follower, sibling = make_follower(), make_follower()
    follower.poll(0)
    sibling.poll(0)
    with engine.begin() as connection:
        rename_task(connection, task, new_name, actor="Ada", reason="", now=now())
    for one in (follower, sibling):
        one.poll(1)
        assert one.find(new_name).version == version
        assert one.tasks == (new_name,)
    restarted = make_follower(offline=True)
    assert restarted.find(new_name).version == version
    assert [folder.name for folder in (tmp_path / "home" / "models").iterdir()] == [new_name]


async def test_a_name_that_is_taken_or_no_name_is_refused(client: httpx.AsyncClient, task: str, new_name: str) -> None:
    assert (await client.put(f"/tasks/{new_name}", json=TASK)).status_code == 201
    taken = await rename(client, task, new_name)
    assert (taken.status_code, taken.json()["detail"]) == (409, f"There is a task named {new_name!r} already.")
    for name in ("", "no name", "1st", 7, None):
        assert (await client.post(f"/tasks/{task}/rename", json={"name": name})).status_code == 422
    assert (await rename(client, task, task)).status_code == 409


async def test_no_renaming_crosses_a_cycle(
    client: httpx.AsyncClient, engine: Engine, schema: Schema, task: str, new_name: str
) -> None:
    running = run_cycle(engine, schema, CUTOFF, "running", step="fit")
    refused = await rename(client, task, new_name)
    assert (refused.status_code, f"Cycle {running.cycle_id} of" in refused.json()["detail"]) == (409, True)
    with engine.begin() as connection:
        end_cycle(connection, running, "failed", STOPPED, NOW)
    assert (await rename(client, task, new_name)).status_code == 200
    with engine.begin() as connection:
        request_cycle(connection, schema.task_id, CUTOFF, NOW)
        assert claim_cycle(connection, "a lease", NOW, LEASE) is None


def test_a_renaming_waits_for_mlflow_and_goes_on(
    engine: Engine, *, database_url: str, schema: Schema, task: str, new_name: str, deletions: Deletions, tmp_path: Path
) -> None:
    with engine.begin() as connection:
        rename_task(connection, task, new_name, actor="Ada", reason="", now=now())
    waiting = Deletions(engine, settings_for(tmp_path, database_url, DEAD_REGISTRY), threading.Event())
    waiting.tick(now())
    with engine.connect() as connection:
        assert find_task(connection, new_name).registry_name == task
    deletions.tick(now())
    with engine.connect() as connection:
        assert find_task(connection, new_name).registry_name is None


def test_a_name_that_mlflow_refuses_holds_up_no_other_task(
    engine: Engine, schema: Schema, *, mlflow_client: MlflowClient, new_name: str, deletions: Deletions
) -> None:
    for name in (schema.task.name, new_name):
        mlflow_client.create_registered_model(name)
    other = define_drifting(engine, drifting_task(), 1)
    with engine.begin() as connection:
        rename_task(connection, schema.task.name, new_name, actor="Ada", reason="", now=now())
        begin_deletion(connection, other.task.name, actor="Ada", reason="", now=now())
    deletions.tick(now())
    with engine.connect() as connection:
        assert find_task(connection, new_name).registry_name == schema.task.name
        assert list_deleted(connection) == []


async def test_a_name_that_mlflow_has_already_is_refused_at_the_door(
    client: httpx.AsyncClient, mlflow_client: MlflowClient, task: str, new_name: str
) -> None:
    mlflow_client.create_registered_model(new_name)
    mlflow_client.create_experiment(f"{new_name}_2")
    mlflow_client.delete_experiment(mlflow_client.create_experiment(f"{new_name}_3"))
    for name, holder in (
        (new_name, "a registered model"),
        (f"{new_name}_2", "an experiment"),
        (f"{new_name}_3", "a deleted experiment (`mlflow gc` removes it)"),
        ("Default", "an experiment"),
    ):
        refused = await rename(client, task, name)
        assert (refused.status_code, refused.json()["type"]) == (409, "/problems/conflict")
        assert f"MLflow has {holder} named {name!r} already" in refused.json()["detail"]
        assert "choose another one" in refused.json()["detail"]
    assert (await client.get(f"/tasks/{task}")).status_code == 200


async def test_a_renaming_that_mlflow_refuses_says_why_and_can_be_taken_back(
    client: httpx.AsyncClient,
    *,
    mlflow_client: MlflowClient,
    engine: Engine,
    schema: Schema,
    task: str,
    new_name: str,
    deletions: Deletions,
) -> None:
    mlflow_client.create_registered_model(task)
    assert (await rename(client, task, new_name)).status_code == 200
    mlflow_client.create_registered_model(new_name)  # by someone else, a moment later
    deletions.tick(now())
    (warning,) = [one for one in (await client.get(f"/tasks/{new_name}")).json()["warnings"] if "no cycle" in one]
    assert f"MLflow has a registered model named {new_name!r}" in warning
    assert f"morrow task rename {new_name} {task}" in warning
    assert "No cycle of the task begins until MLflow has its new name" in (await client.get(f"/pages/{new_name}")).text
    with engine.begin() as connection:
        request_cycle(connection, schema.task_id, CUTOFF, NOW)
        assert claim_cycle(connection, "a lease", NOW, LEASE) is None

    assert (await rename(client, new_name, task)).status_code == 200
    assert (await client.put(f"/tasks/{task}", json=TASK)).status_code == 200
    Deletions(engine, deletions._settings, threading.Event()).tick(now())
    with engine.begin() as connection:
        back = find_task(connection, task)
        assert (back.task_id, back.registry_name, back.renaming_trouble) == (schema.task_id, None, None)
        assert claim_cycle(connection, "a lease", NOW, LEASE) is not None
    for name in (task, new_name):
        assert mlflow_client.get_registered_model(name).name == name
    assert (await client.get(f"/tasks/{new_name}")).json()["task"] == task


@pytest.mark.parametrize("goes_back", [True, False])
async def test_a_renaming_that_was_killed_half_way_can_end_under_another_name(
    *,
    mlflow_url: str,
    mlflow_client: MlflowClient,
    engine: Engine,
    schema: Schema,
    task: str,
    new_name: str,
    deletions: Deletions,
    goes_back: bool,
) -> None:
    number = mlflow_client.create_experiment(task)
    mlflow_client.create_registered_model(task, description="ours")
    with engine.begin() as connection:
        rename_task(connection, task, new_name, actor="Ada", reason="", now=now())
        traces = read_traces(connection, schema.task_id)
    rename_in_mlflow(mlflow_url, [task], new_name, schema.task_id, traces)  # and the trainer is killed
    final = task if goes_back else f"{new_name}_2"
    with engine.begin() as connection:
        rename_task(connection, new_name, final, actor="Ada", reason="", now=now())
    deletions.tick(now())
    with engine.connect() as connection:
        assert find_task(connection, final).registry_name is None
    assert mlflow_client.get_registered_model(final).description == "ours"
    assert mlflow_client.get_experiment(number).name == final


def test_the_deletion_of_a_task_whose_renaming_is_refused_leaves_what_others_have(
    *, engine: Engine, mlflow_client: MlflowClient, schema: Schema, task: str, new_name: str, deletions: Deletions
) -> None:
    for name in (task, new_name):
        mlflow_client.create_registered_model(name)
    with engine.begin() as connection:
        rename_task(connection, task, new_name, actor="Ada", reason="", now=now())
    deletions.tick(now())
    with engine.begin() as connection:
        begin_deletion(connection, new_name, actor="Ada", reason="", now=now())
    Deletions(engine, deletions._settings, threading.Event()).tick(now())
    with engine.connect() as connection:
        assert list_deleted(connection) == []
    assert mlflow_client.get_registered_model(new_name).name == new_name
    with pytest.raises(MlflowException, match="not found"):
        mlflow_client.get_registered_model(task)


def test_the_next_cycle_releases_a_version_of_the_new_name(
    engine: Engine,
    *,
    registry: Registry,
    mlflow_client: MlflowClient,
    new_name: str,
    deletions: Deletions,
    tmp_path: Path,
) -> None:
    schema = define_drifting(engine, drifting_task(), 9)
    first = carry_out(engine, registry, claim_at(engine, schema, cutoff_after(8)), tmp_path)
    assert first.state == "released"
    with engine.begin() as connection:
        rename_task(connection, schema.task.name, new_name, actor="Ada", reason="", now=now())
    deletions.tick(now() + timedelta(seconds=1))
    second = carry_out(engine, registry, claim_at(engine, schema, cutoff_after(9)), tmp_path)
    assert (second.state, second.reason) == ("released", None)
    assert {str(one.version) for one in mlflow_client.search_model_versions(f"name='{new_name}'")} == {"1", "2"}
    assert (tmp_path / "candidates" / new_name).is_dir()
    assert not (tmp_path / "candidates" / schema.task.name).exists()
    with engine.connect() as connection:
        assert len(list_cycles(connection, schema.task_id)) == 2
