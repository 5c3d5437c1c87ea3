"""Versions that leave memory: they go on answering, and everything that describes them stays as it was."""

from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine

from contracts.clock import format_moment
from contracts.errors import NotLoaded, OutsideHorizon
from service.models.follower import Follower
from store.tasks.catalog import Schema
from tests.integration.artefacts import CUTOFF, WEEK
from tests.integration.make_follower import MakeFollower, ask
from tests.integration.published_versions import define, note, publish_and_release, wait_for
from tests.integration.service_app import service_settings, serving
from tests.integration.watched_registry import overheard

LOADS = "morrow_model_loads_total"


@pytest.fixture
def schemas(engine: Engine, mlflow_url: str, tmp_path: Path) -> list[Schema]:
    """Three tasks with a released version."""
    found = sorted((define(engine) for _ in range(3)), key=lambda one: one.task.name)
    for schema in found:
        publish_and_release(mlflow_url, engine, schema, tmp_path)
    return found


def in_memory(follower: Follower, schemas: list[Schema]) -> list[bool]:
    return [not follower.must_load(schema.task.name) for schema in schemas]


def test_versions_that_nobody_asks_for_leave_memory_and_answer_after_being_loaded(
    make_follower: MakeFollower, schemas: list[Schema]
) -> None:
    names = [schema.task.name for schema in schemas]
    follower = make_follower(models_in_memory=2)
    follower.poll(0)
    assert in_memory(follower, schemas).count(True) == 2
    assert set(follower.forecasters) == set(names)
    assert follower.is_ready
    for name in names:
        follower.load(name)
        assert ask(follower, name).version == "1"
    assert in_memory(follower, schemas) == [False, True, True]
    follower.poll(1)
    ask(follower, names[1])
    follower.poll(2)
    follower.load(names[0])
    assert in_memory(follower, schemas) == [True, True, False]


def test_a_restart_with_more_versions_than_fit_loads_each_at_its_first_question(
    make_follower: MakeFollower, schemas: list[Schema]
) -> None:
    make_follower(models_in_memory=3).poll(0)
    restarted = make_follower(models_in_memory=2)
    assert in_memory(restarted, schemas) == [False] * 3
    assert restarted.is_ready
    with pytest.raises(NotLoaded, match="not in memory"):
        restarted.find(schemas[0].task.name)
    restarted.load(schemas[0].task.name)
    assert ask(restarted, schemas[0].task.name).version == "1"
    restarted.poll(0)
    assert in_memory(restarted, schemas) == [True, False, False]
    assert make_follower(models_in_memory=3).must_load(schemas[0].task.name) is False


def test_an_override_of_a_version_that_is_not_in_memory_holds_once_it_is_loaded(
    make_follower: MakeFollower, engine: Engine, schemas: list[Schema]
) -> None:
    make_follower(models_in_memory=3).poll(0)
    follower, first = make_follower(models_in_memory=2), schemas[0]
    follower.poll(0)
    note(engine, first, "1", "override", valid_until=CUTOFF + WEEK)
    follower.poll(1)
    assert follower.must_load(first.task.name)
    assert follower.forecasters[first.task.name].valid_until == CUTOFF + WEEK
    follower.load(first.task.name)
    with pytest.raises(OutsideHorizon):
        ask(follower, first.task.name, CUTOFF + WEEK + 1)


def test_a_copy_that_is_damaged_while_its_version_is_not_in_memory_is_downloaded_again(
    make_follower: MakeFollower, schemas: list[Schema], tmp_path: Path
) -> None:
    make_follower(models_in_memory=3).poll(0)
    follower, name = make_follower(models_in_memory=2), schemas[0].task.name
    graph = tmp_path / "home" / "models" / name / "1" / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:-100])
    with pytest.raises(NotLoaded, match="local copy of version 1 was refused"):
        follower.load(name)
    follower.poll(0)
    assert ask(follower, name).version == "1"
    assert follower.registries[name].state == "ok"


@pytest.mark.anyio
async def test_status_metrics_and_readiness_are_those_of_a_version_in_memory(
    make_follower: MakeFollower,
    database_url: str,
    mlflow_url: str,
    tmp_path: Path,
    schemas: list[Schema],
) -> None:
    make_follower(models_in_memory=3).poll(0)
    names = [schema.task.name for schema in schemas]
    at = format_moment(CUTOFF)

    async def describe(client: httpx.AsyncClient) -> object:
        ready = await wait_for(client, "/readyz", lambda found: set(found["tasks"]) >= set(names))
        shown = [(await client.get(f"/tasks/{name}")).json()["champion"] for name in names]
        lines = [line for line in (await client.get("/metrics")).text.splitlines() if "morrow_model_info" in line]
        return ready, shown, lines

    async def load_count(client: httpx.AsyncClient) -> float:
        lines = (await client.get("/metrics")).text.splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith(LOADS)))

    home = tmp_path / "home"
    async with serving(service_settings(database_url, home, mlflow_url=mlflow_url)) as client:
        expected = await describe(client)
    async with serving(service_settings(database_url, home, mlflow_url=mlflow_url, models_in_memory=1)) as client:
        assert await describe(client) == expected
        assert await load_count(client) == 0
        for name in [*names, *names]:
            answer = await client.get("/predict", params={"task": name, "at": at, "distance": "1", "carrier": "UA"})
            assert (answer.status_code, answer.json()["version"]) == (200, "1")
        body = {"features": {"distance": 1, "carrier": "UA"}, "at": [at]}
        assert (await client.post("/predict", params={"task": names[0]}, json=body)).status_code == 200
        assert await load_count(client) >= 7
        assert await describe(client) == expected


@pytest.mark.parametrize("num_tasks", [3, 30])
def test_a_look_asks_the_registry_once_for_all_tasks(
    make_follower: MakeFollower, engine: Engine, mlflow_url: str, tmp_path: Path, num_tasks: int
) -> None:
    schemas = [define(engine) for _ in range(num_tasks)]
    for schema in schemas[:2]:
        publish_and_release(mlflow_url, engine, schema, tmp_path)
    make_follower(models_in_memory=3).poll(0)
    paths: list[str] = []
    with overheard(mlflow_url, lambda _, path: paths.append(path)) as url:
        follower = make_follower(registry=url)
        for now in range(3):
            paths.clear()
            follower.poll(now)
            assert len(paths) <= 2
            assert all("registered-models/search" in path for path in paths)
