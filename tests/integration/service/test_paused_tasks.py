"""Pausing and archiving a task: what goes on, what stops, and what is refused in which words."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine

from contracts.clock import format_moment
from store.cycles.leases import claim_cycle
from store.tasks.catalog import Schema
from tests.integration.artefacts import CUTOFF
from tests.integration.published_versions import NOW, define, publish_and_release, wait_for
from tests.integration.service_app import TASK, an_event, service_settings, serving

pytestmark = pytest.mark.anyio

MOMENT = {"at": format_moment(CUTOFF), "distance": "0", "carrier": "UA"}


@pytest.fixture
async def client(database_url: str, mlflow_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(service_settings(database_url, tmp_path / "home", mlflow_url=mlflow_url)) as client:
        yield client


@pytest.fixture
async def answering(
    client: httpx.AsyncClient, mlflow_url: str, engine: Engine, schema: Schema, tmp_path: Path
) -> httpx.AsyncClient:
    """The client, once a version of the task answers."""
    version = publish_and_release(mlflow_url, engine, schema, tmp_path)
    query = {**MOMENT, "task": schema.task.name}
    await wait_for(client, "/predict", lambda found: found.get("version") == version, params=query)
    return client


async def change(client: httpx.AsyncClient, task: str, move: str, **body: Any) -> httpx.Response:
    return await client.post(f"/tasks/{task}/{move}", json=body)


async def scrape(client: httpx.AsyncClient, task: str) -> set[str]:
    """The names of the metrics that have a series of a task."""
    text = (await client.get("/metrics")).raise_for_status().text
    return {
        sample.name
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("task") == task
    }


def claimed(engine: Engine) -> bool:
    with engine.begin() as connection:
        return claim_cycle(connection, "a lease", NOW, timedelta(hours=1)) is not None


async def test_a_paused_task_answers_and_takes_events_while_no_cycle_of_it_begins(
    answering: httpx.AsyncClient, engine: Engine, task: str
) -> None:
    assert (await answering.post(f"/tasks/{task}/cycles", json={"as_of": "2026-01-09T00:00:00Z"})).status_code == 202
    paused = await change(answering, task, "pause", reason="the sensors are being moved", actor="Ada")
    assert paused.status_code == 200
    done = paused.json()
    assert (done["action"], done["actor"], done["reason"]) == ("pause", "Ada", "the sensors are being moved")
    assert "No cycle begins until the task is resumed" in done["effect"]

    assert not claimed(engine)
    asked = await answering.post(f"/tasks/{task}/cycles")
    assert (asked.status_code, asked.json()["type"]) == (409, "/problems/task-paused")
    assert f"`morrow task resume {task}`" in asked.json()["detail"]
    assert (await answering.post("/events", params={"task": task}, json=an_event())).json()["created"] == 1
    assert (await answering.get("/predict", params={**MOMENT, "task": task})).status_code == 200
    status = (await answering.get(f"/tasks/{task}")).json()
    assert (status["lifecycle"], status["next_cycle"], status["stale"]) == ("paused", None, False)
    assert [one["task"] for one in (await answering.get("/tasks")).json()["tasks"]] == [task]
    assert "The task is paused" in (await answering.get(f"/pages/{task}")).text

    assert (await change(answering, task, "resume")).status_code == 200
    assert claimed(engine)
    history = (await answering.get(f"/tasks/{task}/changes")).json()["changes"]
    assert [(one["action"], one["actor"]) for one in history] == [("resume", "admin"), ("pause", "Ada")]


async def test_the_alerts_on_cycles_are_silent_while_a_task_is_paused(answering: httpx.AsyncClient, task: str) -> None:
    on_cycles = {"morrow_seconds_since_release", "morrow_cycles_failed", "morrow_held"}
    with anyio.fail_after(10):
        while not on_cycles <= await scrape(answering, task):
            await anyio.sleep(0.05)
        await change(answering, task, "pause")
        while on_cycles & (shown := await scrape(answering, task)):
            await anyio.sleep(0.05)
    assert {"morrow_paused", "morrow_valid_seconds", "morrow_horizon_closed"} <= shown


async def test_an_archived_task_takes_nothing_and_is_neither_listed_nor_measured(
    answering: httpx.AsyncClient, engine: Engine, task: str, tmp_path: Path
) -> None:
    other = define(engine).task.name
    assert (await change(answering, task, "archive")).status_code == 200
    question = {**MOMENT, "task": task}
    await wait_for(answering, "/predict", lambda found: found.get("type") == "/problems/task-archived", params=question)
    assert await scrape(answering, task) == set()
    many = await answering.post("/predict", params={"task": task}, json={"rows": [{"features": {}}]})
    for refused in (
        many,
        await answering.post("/events", params={"task": task}, json=an_event()),
        await answering.post("/events", params={"task": task}, json=[an_event()]),
        await answering.put("/events/e1", params={"task": task}, json=an_event()),
        await answering.post(f"/tasks/{task}/cycles"),
        await answering.post(f"/tasks/{task}/rollback", json={"reason": "no"}),
        await answering.post(f"/tasks/{task}/override", json={"reason": "no"}),
        await answering.put(f"/tasks/{task}", json=TASK),
    ):
        assert (refused.status_code, refused.json()["type"]) == (409, "/problems/task-archived"), refused.url
        assert f"`morrow task unarchive {task}`" in refused.json()["detail"]
    assert [one["task"] for one in (await answering.get("/tasks")).json()["tasks"]] == [other]
    everyone = (await answering.get("/tasks", params={"archived": "true"})).json()["tasks"]
    assert {one["task"]: one["lifecycle"] for one in everyone} == {other: "active", task: "archived"}
    assert (await answering.get(f"/tasks/{task}")).json()["lifecycle"] == "archived"
    assert f"pages/{task}" not in (await answering.get("/")).text
    assert "The task is archived" in (await answering.get(f"/pages/{task}")).text
    assert not (tmp_path / "home" / "models" / task).exists()
    # Only the other task counts if none is named.
    assert (await answering.post("/events", json=an_event())).json()["created"] == 1
    assert (await answering.get("/predict", params=MOMENT)).json()["type"] == "/problems/no-model"
    assert (await answering.get("/readyz")).json()["tasks"].keys() == {other}

    assert (await change(answering, task, "unarchive")).status_code == 200
    await wait_for(answering, "/predict", lambda found: "version" in found, params=question)
    assert (await answering.post("/events", params={"task": task}, json=an_event())).json()["created"] == 1


@pytest.mark.parametrize(
    ("before", "move", "state"),
    [
        ([], "resume", "active"),
        (["pause"], "pause", "paused"),
        (["archive"], "pause", "archived"),
        ([], "unarchive", "active"),
    ],
)
async def test_a_change_that_changes_nothing_is_refused_and_leaves_no_row(
    client: httpx.AsyncClient, task: str, before: list[str], move: str, state: str
) -> None:
    for first in before:
        await change(client, task, first)
    refused = await change(client, task, move)
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/conflict")
    assert f"{task!r} is {state}" in refused.json()["detail"]
    assert len((await client.get(f"/tasks/{task}/changes")).json()["changes"]) == len(before)


async def test_only_reason_and_actor_are_taken(client: httpx.AsyncClient, task: str) -> None:
    assert (await change(client, task, "pause", why="x")).status_code == 422
    assert (await change(client, task, "pause", reason=3)).status_code == 422
    assert (await client.post(f"/tasks/{task}/pause", params={"force": "1"})).status_code == 422
    assert (await client.post("/tasks/nobody/pause")).status_code == 404
