"""POST /tasks/{task}/labels: labels join their events or logged predictions, in whatever order the two come."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import Connection, Engine, select

from contracts.clock import to_micros
from service.database import Store
from store.database import events, incomplete_events, predictions, rejected_events
from store.events.batches import UNLABELLED, Event, EventBatch
from store.labels.late_labels import Label, append_labels
from store.labels.unlabelled import append_rows
from store.predictions.ids import PredictionIds
from store.tasks.catalog import Schema, define_task, find_task
from store.tasks.row_counts import count_rows
from tests.integration.service.test_unlabelled_events import an_input
from tests.integration.service_app import an_event
from tests.integration.store.test_corrections import DEMAND, NOW, event

pytestmark = pytest.mark.anyio

PATH = "/tasks/flights/labels"


def rows_of(engine: Engine) -> dict[str, Any]:
    with engine.connect() as connection:
        return {row.event_id: row for row in connection.execute(select(events))}


async def outcomes(client: httpx.AsyncClient, *labels: dict[str, Any]) -> list[str]:
    answer = await client.post(PATH, json=list(labels))
    assert answer.status_code == 200, answer.text
    return [one["status"] for one in answer.json()["results"]]


async def test_a_label_joins_its_event_once(client: httpx.AsyncClient, engine: Engine) -> None:
    await client.post("/events", json=an_input())
    first = await client.post(PATH, json={"event_id": "e1", "label": "late"})
    assert first.json() == {
        "joined": 1,
        "waiting": 0,
        "duplicates": 0,
        "conflicts": 0,
        "erased": 0,
        "rejected": 0,
        "results": [{"event_id": "e1", "status": "joined"}],
    }
    row = rows_of(engine)["e1"]
    assert (row.label, row.revision, row.known_at) == ("late", 1, row.received_at)
    assert await outcomes(client, {"event_id": "e1", "label": "late"}) == ["duplicate"]
    again = await client.post(PATH, json={"event_id": "e1", "label": "on_time"})
    assert (again.status_code, again.json()["type"].rpartition("/")[2]) == (409, "conflict")
    status = (await client.get("/tasks/flights")).json()
    assert (status["num_events"], status["num_unlabelled"], status["num_waiting"]) == (1, 0, 0)


async def test_a_label_that_comes_first_waits_for_its_event(client: httpx.AsyncClient, engine: Engine) -> None:
    said = {"event_id": "e1", "label": "late", "known_at": "2026-01-08T00:00:00Z"}
    assert await outcomes(client, said, said | {"label": "on_time"}) == ["waiting", "conflict"]
    assert await outcomes(client, said) == ["duplicate"]
    assert (await client.get("/tasks/flights")).json()["num_waiting"] == 1
    assert (await client.get("/events/e1")).status_code == 404
    answer = await client.post("/events", json=an_input())
    assert answer.json()["results"] == [{"event_id": "e1", "status": "created"}]
    row = rows_of(engine)["e1"]
    assert (row.label, row.known_at) == ("late", datetime(2026, 1, 8, tzinfo=UTC))
    assert (await client.get("/tasks/flights")).json()["num_waiting"] == 0


async def test_lines_of_labels_are_stored_and_refused_ones_kept(client: httpx.AsyncClient, engine: Engine) -> None:
    await client.post("/events", json=[an_input("a"), an_event("b")])
    lines = [
        {"event_id": "a", "label": "late"},
        {"event_id": "b", "label": "on_time"},
        {"event_id": "c", "label": "sideways"},
        {"event_id": "d"},
        {"event_id": "e", "prediction_id": "x", "label": None},
    ]
    body = "\n".join(map(json.dumps, lines))
    answer = await client.post(PATH, content=body, headers={"content-type": "application/x-ndjson"})
    found = answer.json()
    assert (found["joined"], found["duplicates"], found["rejected"]) == (1, 1, 3)
    faults = {one["line"]: [fault["field"] for fault in one.get("errors", [])] for one in found["results"]}
    assert faults == {2: [], 3: ["label"], 4: ["label"], 5: ["prediction_id", "prediction_id", "label"]}
    with engine.connect() as connection:
        kept = connection.execute(select(rejected_events.c.event_id)).scalars().all()
    assert kept == ["c", "d", "e"]


async def test_a_label_of_an_erased_event_is_not_stored(client: httpx.AsyncClient, engine: Engine) -> None:
    await client.post(PATH, json={"event_id": "e1", "label": "late"})
    await client.post("/tasks/flights/erasures", json={"event_ids": ["e1"], "reason": "asked"})
    assert await outcomes(client, {"event_id": "e1", "label": "late"}) == ["erased"]
    with engine.connect() as connection:
        assert connection.execute(select(incomplete_events)).all() == []


def log_prediction(engine: Engine, features: dict[str, Any] | None) -> str:
    at = datetime(2026, 1, 5, 11, tzinfo=UTC)
    prediction_id = UUID(bytes=PredictionIds().make(to_micros(at)))
    with engine.begin() as connection:
        task_id = find_task(connection, "flights").task_id
        row = {"id": prediction_id, "task_id": task_id, "version": "1", "at": at, "features": features, "answer": {}}
        connection.execute(predictions.insert().values(row))
    return str(prediction_id)


async def test_a_label_of_a_logged_prediction_makes_its_event(client: httpx.AsyncClient, engine: Engine) -> None:
    logged = log_prediction(engine, {"distance": 1400, "carrier": "UA", "wind": None})
    assert await outcomes(client, {"prediction_id": logged, "label": "late"}) == ["joined"]
    assert await outcomes(client, {"event_id": logged, "label": "late"}) == ["duplicate"]
    found = (await client.get(f"/events/{logged}")).json()["event"]
    assert (found["at"], found["label"]) == ("2026-01-05T11:00:00Z", "late")
    assert found["features"] == {"distance": 1400.0, "carrier": "UA", "wind": None}


async def test_a_prediction_that_was_logged_without_features_needs_the_whole_event(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    logged = log_prediction(engine, None)
    answer = await client.post(PATH, json={"prediction_id": logged, "label": "late"})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "prediction_id")
    unknown = str(UUID(bytes=PredictionIds().make(to_micros(NOW))))
    assert await outcomes(client, {"prediction_id": unknown, "label": "late"}) == ["waiting"]


def test_labels_and_inputs_from_many_writers_end_as_one_event_each(engine: Engine) -> None:
    with engine.begin() as connection:
        schema = define_task(connection, DEMAND, NOW)[0]
    ids = [f"e{number}" for number in range(80)]
    store, chance = Store(engine, places=8, seconds=60), random.Random(2)  # noqa: S311 no secret

    def write_labels(connection: Connection, mine: list[str]) -> None:
        append_labels(connection, [schema], [Label(one, "yes") for one in mine], NOW)

    def write_inputs(connection: Connection, mine: list[str]) -> None:
        rows: list[Event] = [event(one, label=UNLABELLED) for one in mine]
        append_rows(connection, schema, EventBatch.of(rows), NOW)

    def write(number: int, schema: Schema = schema) -> None:
        mine = chance.sample(ids, len(ids))
        store.transact(partial(write_labels if number % 2 else write_inputs, mine=mine), [schema.task.name])

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(write, number) for number in range(24)]:
            done.result()
    with engine.connect() as connection:
        rows = connection.execute(select(events)).all()
        halves = connection.execute(select(incomplete_events)).all()
        counts = count_rows(connection, schema.task_id)
    assert (sorted(row.event_id for row in rows), halves) == (sorted(ids), [])
    assert ({row.label for row in rows}, counts.num_unlabelled, counts.num_waiting) == ({"yes"}, 0, 0)
