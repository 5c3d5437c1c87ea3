"""A task whose features change: the old form is answered and taken until a version of the new schema is released."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from sqlalchemy import Engine, select

from contracts.clock import format_moment
from store.database import events
from store.events.batches import Event
from store.events.writes import append_events
from store.tasks.catalog import Schema, find_task
from tests.integration.drifting_task import START, cutoff_after, define, drifting_events, drifting_task, retrain
from tests.integration.published_versions import wait_for
from tests.integration.service_app import service_settings, serving
from trainer.tracking.registry import Registry

pytestmark = pytest.mark.anyio

NUM_WINDOWS = 10
# The category is dropped, one number is added that every new row has, and another that a row may have.
NEW_FEATURES = [
    {"name": "x", "kind": "number"},
    {"name": "shade", "kind": "category"},
    {"name": "extra", "kind": "number", "optional": True},
]
OLD, NEW = {"x": 2.0, "kind": "a"}, {"x": 2.0, "shade": "dark"}


def outcome(engine: Engine, registry: Registry, schema: Schema, num_windows: int, home: Path) -> str:
    """How the cycle ended, and why where it released nothing."""
    ended = retrain(engine, registry, schema, num_windows, home)
    return ended.reason or ended.state


def in_new_form(window: int) -> Iterator[Event]:
    """The events of a window as they come with the new features."""
    for event in drifting_events(window, window + 1):
        yield Event(event.event_id, event.at, event.at, (*event.numbers, 0.5), ("dark",), event.label)


def an_event(event_id: str, features: dict[str, Any]) -> dict[str, Any]:
    at = format_moment(cutoff_after(NUM_WINDOWS) + 1_000_000)
    return {"event_id": event_id, "at": at, "features": features, "label": "yes"}


async def predict(client: httpx.AsyncClient, task: str, features: dict[str, Any]) -> tuple[int, Any]:
    """Status, and the version that answered or the faults."""
    at = format_moment(cutoff_after(NUM_WINDOWS + 1))
    answer = await client.get("/predict", params={"task": task, "at": at, **features})
    document = answer.json()
    return answer.status_code, document.get("version") or sorted(fault["field"] for fault in document["errors"])


async def post(client: httpx.AsyncClient, task: str, body: Any) -> Any:
    """What became of one event or of each of several."""
    answer = await client.post("/events", params={"task": task}, json=body)
    return [row["status"] for row in answer.json()["results"]] if answer.status_code == 200 else answer.status_code


def stored(engine: Engine, event_id: str) -> tuple[list[float], list[str], int]:
    """Numbers, categories and schema of an event's newest revision."""
    with engine.connect() as connection:
        row = connection.execute(
            select(events.c.numbers, events.c.categories, events.c.schema_id)
            .where(events.c.event_id == event_id)
            .order_by(events.c.revision.desc())
            .limit(1)
        ).one()
    return row.numbers, row.categories, row.schema_id


async def test_the_old_form_serves_and_is_taken_until_a_version_of_the_new_schema_is_released(
    engine: Engine, database_url: str, registry: Registry, tmp_path: Path
) -> None:
    task = drifting_task()
    old = define(engine, task, NUM_WINDOWS)
    assert outcome(engine, registry, old, NUM_WINDOWS, tmp_path) == "released"
    changed = task.model_dump(mode="json") | {"features": NEW_FEATURES}
    async with serving(service_settings(database_url, tmp_path, mlflow_url=registry.url)) as client:
        await wait_for(client, f"/tasks/{task.name}", lambda found: found["champion"] is not None)
        assert (await client.put(f"/tasks/{task.name}", json=changed)).json()["revision"] == 2
        with engine.connect() as connection:
            new = find_task(connection, task.name)

        assert await predict(client, task.name, OLD) == (200, "1")
        assert await predict(client, task.name, NEW) == (422, ["features.kind", "features.shade"])
        assert await post(client, task.name, an_event("old", OLD)) == ["created"]
        assert await post(client, task.name, an_event("new", NEW)) == ["created"]
        assert await post(client, task.name, an_event("old", OLD)) == ["duplicate"]
        both = [an_event("a", NEW), an_event("b", OLD), an_event("c", {"x": 1.0}), an_event("d", NEW | {"extra": 1})]
        assert await post(client, task.name, both) == ["created", "created", "rejected", "created"]
        lines = b"\n".join(httpx.Request("POST", "http://x", json=one).content for one in both)
        answer = await client.post(
            "/events",
            params={"task": task.name},
            content=lines,
            headers={"content-type": "application/x-ndjson"},
        )
        assert (answer.json()["duplicates"], answer.json()["rejected"]) == (3, 1)
        mended = an_event("old", OLD | {"x": 3.0})
        assert (await client.put(f"/events/old?task={task.name}", json=mended)).json()["status"] == "corrected"
        assert stored(engine, "old") == ([3.0], ["a"], old.schema_id)
        assert stored(engine, "d") == ([2.0, 1.0], ["dark"], new.schema_id)

        with engine.begin() as connection:
            append_events(connection, new, list(in_new_form(NUM_WINDOWS)), START)
        assert await anyio.to_thread.run_sync(outcome, engine, registry, new, NUM_WINDOWS + 1, tmp_path) == "released"
        await wait_for(client, f"/tasks/{task.name}", lambda found: found["champion"]["version"] == "2")

        assert await predict(client, task.name, NEW) == (200, "2")
        assert await predict(client, task.name, OLD) == (422, ["features.kind", "features.shade"])
        assert await post(client, task.name, an_event("late", OLD)) == 422
        assert await post(client, task.name, an_event("later", NEW)) == ["created"]


async def test_without_a_version_only_the_newest_form_is_taken(
    engine: Engine, database_url: str, tmp_path: Path
) -> None:
    task = drifting_task()
    define(engine, task, 0)
    changed = task.model_dump(mode="json") | {"features": NEW_FEATURES}
    async with serving(service_settings(database_url, tmp_path)) as client:
        await client.put(f"/tasks/{task.name}", json=changed)
        assert await post(client, task.name, an_event("old", OLD)) == 422
        assert await post(client, task.name, an_event("new", NEW)) == ["created"]
