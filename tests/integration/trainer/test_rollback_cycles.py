"""A rollback between real cycles: it holds until a newer cutoff is released, and the next rollback returns to it."""

from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest
from sqlalchemy import Engine

from contracts.clock import format_moment
from store.releases import list_releases
from store.tasks.catalog import Schema
from tests.integration.drifting_task import cutoff_after, define, drifting_task, retrain
from tests.integration.service_app import service_settings, serving
from trainer.tracking.registry import Registry

pytestmark = pytest.mark.anyio

NUM_KNOWN = 10


def release(engine: Engine, registry: Registry, schema: Schema, num_windows: int, home: Path) -> None:
    assert retrain(engine, registry, schema, num_windows, home).state == "released"


async def wait_for_version(client: httpx.AsyncClient, schema: Schema, num_windows: int, version: str) -> None:
    at = format_moment(cutoff_after(num_windows))
    query = {"task": schema.task.name, "x": "0.5", "kind": "a", "at": at}
    with anyio.fail_after(20):
        while (await client.get("/predict", params=query)).json().get("version") != version:
            await anyio.sleep(0.05)


async def test_a_newer_cutoff_takes_over_from_a_rollback_and_can_be_rolled_back_to_it(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    registry, home = Registry(mlflow_url), tmp_path / "trainer"
    schema = define(engine, drifting_task(), NUM_KNOWN + 2)
    path = f"/tasks/{schema.task.name}/rollback"

    async def train(num_windows: int) -> None:
        await anyio.to_thread.run_sync(retrain, engine, registry, schema, num_windows, home)

    async with serving(service_settings(database_url, tmp_path / "service", mlflow_url=mlflow_url)) as client:
        await train(NUM_KNOWN)
        await train(NUM_KNOWN + 1)
        await wait_for_version(client, schema, NUM_KNOWN + 1, "2")
        back = await client.post(path, json={"reason": "it mispredicts", "actor": "Ada"})
        assert (back.status_code, back.json()["version"]) == (200, "1")
        assert back.json()["valid_until"] == format_moment(cutoff_after(NUM_KNOWN + 2))
        await wait_for_version(client, schema, NUM_KNOWN, "1")
        await train(NUM_KNOWN + 2)
        await wait_for_version(client, schema, NUM_KNOWN + 2, "3")
        again = await client.post(path, json={"reason": "it mispredicts too"})
        assert again.json()["version"] == "1"
        await wait_for_version(client, schema, NUM_KNOWN, "1")
    with engine.connect() as connection:
        rows = [(row.action, row.version, row.actor) for row in list_releases(connection, schema.task_id)]
    assert rows == [
        ("rollback", "1", "admin"),
        ("release", "3", "trainer"),
        ("rollback", "1", "Ada"),
        ("release", "2", "trainer"),
        ("release", "1", "trainer"),
    ]
