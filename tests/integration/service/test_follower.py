"""The follower against real MLflow and PostgreSQL: what answers, what is swapped, and what a restart keeps."""

import time
from pathlib import Path

import anyio
import httpx
import pytest
from mlflow import MlflowClient
from sqlalchemy import Engine

from contracts.errors import NoModel, NotFound, NotLoaded
from store.tasks.catalog import Schema
from tests.integration.artefacts import CUTOFF, WEEK, move_alias, publish, remove_alias, write_version
from tests.integration.make_follower import MakeFollower, ask
from tests.integration.published_versions import define, note, publish_and_release
from tests.integration.service_app import service_settings, serving
from tests.integration.watched_registry import overheard


def test_a_task_without_a_champion_is_ok_and_says_that_there_is_no_model(
    make_follower: MakeFollower, task: str
) -> None:
    follower = make_follower()
    follower.poll(0)
    assert follower.registries[task].state == "ok"
    assert follower.is_ready
    with pytest.raises(NoModel):
        follower.find(task)
    with pytest.raises(NotFound):
        follower.find("nosuch")


def test_a_released_version_that_is_not_loaded_yet_is_told_from_none(
    make_follower: MakeFollower, engine: Engine, schema: Schema
) -> None:
    note(engine, schema, "7", "release")
    follower = make_follower()
    follower.poll(0)
    with pytest.raises(NotLoaded, match=r"Version 7 is released\. This process has not loaded it yet\."):
        follower.find(schema.task.name)


def test_the_champion_answers_and_a_restart_offline_answers_the_same(
    make_follower: MakeFollower, task: str, mlflow_url: str, tmp_path: Path
) -> None:
    version = publish(mlflow_url, task, write_version(tmp_path / "one", task=task))
    follower = make_follower()
    follower.poll(0)
    answer = ask(follower, task)
    assert answer.version == version
    assert follower.registries[task].champion == version
    offline = make_follower(offline=True)
    assert ask(offline, task) == answer
    offline.poll(0)
    assert ask(offline, task) == answer
    assert offline.registries[task].state == "degraded"
    assert offline.registries[task].reason == "The registry does not answer."
    assert offline.is_ready


def test_the_follower_swaps_to_the_version_that_the_alias_names_and_keeps_the_previous_one(
    make_follower: MakeFollower, task: str, mlflow_url: str, tmp_path: Path
) -> None:
    follower = make_follower()
    shares = []
    for name, bias in [("one", 0.0), ("two", 1.0), ("three", 2.0)]:
        version = publish(mlflow_url, task, write_version(tmp_path / name, task=task, bias=bias))
        follower.poll(0)
        answer = ask(follower, task)
        assert answer.version == version
        assert isinstance(answer.probabilities, dict)
        shares.append(answer.probabilities["on_time"])
    assert shares == sorted(set(shares))
    kept = {path.name for path in (tmp_path / "home" / "models" / task).iterdir()}
    assert kept == {"2", "3", "current.json"}
    move_alias(mlflow_url, task, "2")
    follower.poll(0)
    assert ask(follower, task).version == "2"


def test_without_the_alias_the_last_version_goes_on_and_the_status_is_degraded(
    make_follower: MakeFollower, task: str, mlflow_url: str, tmp_path: Path
) -> None:
    version = publish(mlflow_url, task, write_version(tmp_path / "one", task=task))
    follower = make_follower()
    follower.poll(0)
    remove_alias(mlflow_url, task)
    follower.poll(1)
    assert ask(follower, task).version == version
    assert "names no champion" in str(follower.registries[task].reason)
    move_alias(mlflow_url, task, version)
    follower.poll(2)
    assert follower.registries[task].state == "ok"


def test_without_the_registered_model_the_last_version_goes_on_and_the_status_is_degraded(
    make_follower: MakeFollower, task: str, mlflow_url: str, tmp_path: Path
) -> None:
    version = publish(mlflow_url, task, write_version(tmp_path / "one", task=task))
    follower = make_follower()
    follower.poll(0)
    MlflowClient(mlflow_url, mlflow_url).delete_registered_model(task)
    follower.poll(1)
    assert ask(follower, task).version == version
    assert follower.registries[task].state == "degraded"


def test_a_registry_that_does_not_answer_costs_a_bounded_time(make_follower: MakeFollower, task: str) -> None:
    follower = make_follower(offline=True)
    follower.add_task(task, 1)
    started = time.monotonic()
    follower.poll(0)
    assert time.monotonic() - started < 10
    assert follower.registries[task].state == "degraded"
    assert not follower.is_ready


def test_a_closed_horizon_is_obeyed_while_the_registry_is_slow_about_another_task(
    make_follower: MakeFollower, engine: Engine, mlflow_url: str, tmp_path: Path
) -> None:
    first, second = sorted([define(engine), define(engine)], key=lambda one: one.task.name)
    publish_and_release(mlflow_url, engine, first, tmp_path)
    version = publish_and_release(mlflow_url, engine, second, tmp_path)
    seen: list[int] = []

    def close_meanwhile(_method: str, path: str) -> None:
        if not seen and f"name={first.task.name}" in path:
            seen.append(follower.forecasters[second.task.name].valid_until)
            note(engine, second, version, "close", valid_until=CUTOFF + WEEK)
            time.sleep(0.5)  # for longer than from one look to the next
        elif len(seen) == 1 and f"name={second.task.name}" in path:
            seen.append(follower.forecasters[second.task.name].valid_until)

    make_follower().poll(0)
    for schema in (first, second):  # each has a version to load
        publish(mlflow_url, schema.task.name, write_version(tmp_path / schema.task.name, task=schema.task.name))
    with overheard(mlflow_url, close_meanwhile) as slow:
        follower = make_follower(registry=slow)
        follower.poll(1)
    assert seen == [CUTOFF + 2 * WEEK, CUTOFF + WEEK]


@pytest.mark.anyio
async def test_no_request_fails_or_mixes_versions_while_versions_are_swapped(
    database_url: str, mlflow_url: str, engine: Engine, task: str, tmp_path: Path
) -> None:
    publish(mlflow_url, task, write_version(tmp_path / "0", task=task))
    settings = service_settings(database_url, tmp_path / "home", mlflow_url=mlflow_url, poll_seconds=0.05)
    query = {"task": task, "at": "2026-02-01T00:00:00Z", "distance": "0", "carrier": "other"}
    shares: dict[str, set[float]] = {}
    done = False

    async def load(client: httpx.AsyncClient) -> None:
        while not done:
            await anyio.sleep(0)
            answer = await client.get("/predict", params=query)
            assert answer.status_code == 200
            found = answer.json()
            shares.setdefault(found["version"], set()).add(found["probabilities"]["on_time"])

    async with serving(settings) as client:
        with anyio.fail_after(20):
            while (await client.get("/predict", params=query)).status_code != 200:
                await anyio.sleep(0.05)
        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(load, client)
            for number in range(1, 5):
                folder = write_version(tmp_path / str(number), task=task, bias=number)
                version = await anyio.to_thread.run_sync(publish, mlflow_url, task, folder)
                with anyio.fail_after(20):
                    while version not in shares:
                        await anyio.sleep(0.02)
            done = True
    assert list(shares) == ["1", "2", "3", "4", "5"]
    assert all(len(found) == 1 for found in shares.values())
    assert len(set.union(*shares.values())) == 5
