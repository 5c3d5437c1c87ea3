"""Integers and booleans through a whole cycle, and what earlier rows are worth after a kind was changed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
from mlflow import pyfunc
from sqlalchemy import Engine

from contracts.clock import format_moment
from contracts.task import Task
from store.events.reading.columns import EventColumns, read_events
from store.events.writes import append_events
from store.tasks.catalog import define_task
from tests.integration.drifting_task import START, cutoff_after, define, drifting_events, drifting_task, retrain
from tests.integration.published_versions import wait_for
from tests.integration.service_app import service_settings, serving
from trainer.tracking.registry import Registry

NUM_WINDOWS = 6
FEATURES: list[dict[str, Any]] = [
    {"name": "x", "kind": "number"},
    {"name": "kind", "kind": "category"},
    {"name": "holiday", "kind": "boolean"},
    {"name": "docks", "kind": "integer", "optional": True},
]


def kinds_task() -> Task:
    task = drifting_task(features=FEATURES)
    return task.model_copy(update={"guard": task.guard.model_copy(update={"min_pairs": 2})})


@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType")
async def test_a_version_of_integers_and_booleans_answers_by_the_api_and_in_a_notebook(
    engine: Engine, database_url: str, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = kinds_task()
    with engine.begin() as connection:
        schema, _ = define_task(connection, task, START)
        rows = [
            replace(
                event, numbers=(*event.numbers, float(place % 2), float("nan") if place % 5 == 0 else float(place % 7))
            )
            for place, event in enumerate(drifting_events(0, NUM_WINDOWS))
        ]
        append_events(connection, schema, rows, START)
    cycle = retrain(engine, registry, schema, NUM_WINDOWS, tmp_path)
    assert cycle.state == "released", cycle.reason
    at = format_moment(cutoff_after(NUM_WINDOWS) + 1)
    asked: dict[str, Any] = {"x": 2.0, "kind": "a", "holiday": True, "docks": 3}
    async with serving(service_settings(database_url, tmp_path / "api", mlflow_url=registry.url)) as client:
        await wait_for(client, f"/tasks/{task.name}", lambda found: found["champion"] is not None)

        async def ask(**changes: Any) -> httpx.Response:
            return await client.get("/predict", params={"task": task.name, "at": at, **asked, **changes})

        one = (await ask()).json()
        (many,) = (
            await client.post("/predict", params={"task": task.name}, json={"at": at, "features": asked})
        ).json()["answers"]
        assert one["probabilities"] == pytest.approx(many["probabilities"], rel=1e-5)
        assert "unseen" not in one
        assert (await ask(kind="z")).json()["unseen"] == ["kind"]
        assert (await ask(docks="2.5")).status_code == 422
        assert "feature docks" not in str((await client.get(f"/tasks/{task.name}")).json()["warnings"])
    monkeypatch.setenv("MLFLOW_TRACKING_URI", registry.url)
    loaded: Any = pyfunc.load_model(f"models:/{task.name}@champion")
    answers = loaded.predict(pd.DataFrame([{"at": at, **asked}]))
    assert answers["probability_yes"].tolist() == pytest.approx([one["probabilities"]["yes"]], rel=1e-5)


def read(engine: Engine, task: Task) -> EventColumns:
    """The rows of a revision of a task that is defined now."""
    with engine.begin() as connection:
        schema, _ = define_task(connection, task, START)
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection, connection.begin():
        return read_events(connection, schema.task_id, task, cutoff_after(1))


@pytest.mark.parametrize(("kind", "is_kept"), [("integer", True), ("boolean", True), ("category", False)])
def test_earlier_rows_keep_a_value_whose_kind_is_still_a_number(engine: Engine, kind: str, is_kept: bool) -> None:
    task = drifting_task()
    define(engine, task, 1)
    before = read(engine, task).numbers[:, 0]
    features = [{"name": "x", "kind": kind}, {"name": "kind", "kind": "category"}]
    after = read(engine, Task.model_validate(task.model_dump(mode="json") | {"features": features}))
    if is_kept:
        np.testing.assert_array_equal(after.numbers[:, 0], before)
    else:
        assert {after.vocabularies[0][place] for place in after.categories[:, 0]} == {""}
