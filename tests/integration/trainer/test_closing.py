"""From a label to an answer: a released version is closed by what comes in, and the API obeys."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import httpx
import pytest
from sqlalchemy import Engine

from contracts.clock import format_moment
from store.events.writes import correct_event
from store.releases import list_releases
from store.tasks.catalog import Schema
from tests.integration.drifting_task import (
    Story,
    claim,
    cutoff_after,
    define,
    drifting_events,
    drifting_task,
    now,
    settings,
)
from tests.integration.live_job import append, live, moment
from tests.integration.service_app import DEAD_DATABASE, DEAD_REGISTRY, service_settings, serving
from trainer.retraining.cycle import run_cycle
from trainer.tracking.registry import Registry

pytestmark = pytest.mark.anyio


@pytest.fixture
def schema(engine: Engine, mlflow_url: str, tmp_path: Path) -> Schema:
    """A task whose version of 8 windows is released, with a horizon of two."""
    schema = define(engine, drifting_task(), 8)
    state = run_cycle(
        engine,
        Registry(mlflow_url),
        claim(engine, schema, cutoff_after(8)),
        settings=settings(tmp_path),
        now=now,
        report=Story(),
    )
    assert state == "released"
    return schema


async def ask(client: httpx.AsyncClient, schema: Schema, num_windows: float) -> httpx.Response:
    at = format_moment(cutoff_after(0) + round(num_windows * schema.task.clock.window))
    return await client.get("/predict", params={"task": schema.task.name, "at": at, "x": "0.5", "kind": "a"})


async def until(client: httpx.AsyncClient, schema: Schema, num_windows: float, status: int) -> httpx.Response:
    """Ask for a moment until it is answered so; within seconds, or it fails."""
    with anyio.fail_after(10):
        while (answer := await ask(client, schema, num_windows)).status_code != status:
            await anyio.sleep(0.05)
    return answer


@pytest.fixture
async def online(database_url: str, mlflow_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(service_settings(database_url, tmp_path, mlflow_url=mlflow_url)) as client:
        yield client


async def test_a_closed_horizon_is_obeyed_within_seconds_and_after_an_offline_restart(
    engine: Engine, schema: Schema, online: httpx.AsyncClient, tmp_path: Path
) -> None:
    job = live(engine, tmp_path)
    before = await until(online, schema, 9.5, 200)
    assert before.json()["valid_until"] == "2026-01-01T10:00:00Z"

    append(engine, schema, drifting_events(8, 9))
    poisoned = [replace(event, label={"yes": "no", "no": "yes"}[event.label]) for event in drifting_events(9, 10)]
    append(engine, schema, poisoned)
    await anyio.to_thread.run_sync(job.score_new_labels, moment(10))
    refused = await until(online, schema, 9.5, 422)
    assert refused.json()["valid_until"] == "2026-01-01T09:00:00Z"
    assert (await ask(online, schema, 8.5)).status_code == 200

    offline = service_settings(DEAD_DATABASE, tmp_path, mlflow_url=DEAD_REGISTRY)
    async with serving(offline) as client:
        assert (await ask(client, schema, 9.5)).status_code == 422
        assert (await ask(client, schema, 8.5)).json()["version"] == before.json()["version"]

    with engine.begin() as connection:
        for event in drifting_events(9, 10):
            correct_event(connection, schema, event, moment(10.5))
    await anyio.to_thread.run_sync(job.score_new_labels, moment(11))
    await until(online, schema, 9.5, 200)
    with engine.connect() as connection:
        actions = [row.action for row in list_releases(connection, schema.task_id)]
    assert actions == ["reopen", "close", "release"]


async def test_arrived_labels_give_the_served_version_new_quantiles(
    engine: Engine, schema: Schema, online: httpx.AsyncClient, tmp_path: Path
) -> None:
    await until(online, schema, 8.5, 200)
    with engine.connect() as connection:
        (released,) = list_releases(connection, schema.task_id)
    append(engine, schema, drifting_events(8, 9))
    live(engine, tmp_path).score_new_labels(moment(9))
    with engine.connect() as connection:
        calibrated, _ = list_releases(connection, schema.task_id)
    assert calibrated.action == "calibrate"
    assert calibrated.valid_until == released.valid_until
    assert calibrated.calibration is not None
    assert released.calibration is not None
    assert calibrated.calibration.temperature == released.calibration.temperature
    (former, *_), (found, *_) = released.calibration.ages, calibrated.calibration.ages
    assert found.num_rows > former.num_rows
