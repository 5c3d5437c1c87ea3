"""What goes wrong when rows come in: section 6 of the field reports, named after the right behaviour."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from sqlalchemy import Engine, func, select, text
from starlette.types import Message

from contracts.task import Task
from service.app import make_app
from store.database import events, rejected_events
from store.events.batches import Event
from store.events.writes import append_events
from store.tasks.catalog import define_task
from tests.integration.service_app import TASK, an_event, post_scope, service_settings, serving

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def num_stored(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(events)).scalar_one()


async def test_of_one_id_with_two_labels_in_a_batch_the_first_is_stored_and_the_other_named(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    batch = [an_event("a"), an_event("b"), an_event("a", label="late"), an_event("c")]
    document = (await client.post("/events", json=batch)).json()
    assert [row["status"] for row in document["results"]] == ["created", "created", "conflict", "created"]
    with engine.connect() as connection:
        stored = dict(connection.execute(select(events.c.event_id, events.c.label)).all())
    assert stored == {"a": "on_time", "b": "on_time", "c": "on_time"}
    refused = await client.post("/events", params={"atomic": True}, json=[an_event("d"), an_event("d", label="late")])
    assert (refused.status_code, num_stored(engine)) == (409, 3)


@pytest.mark.parametrize("num_values", [65_535, 65_536, 200_000])
def test_a_batch_of_more_values_than_a_statement_has_parameters_is_stored_whole(
    engine: Engine, num_values: int
) -> None:
    features = [{"name": f"x{place}", "kind": "number"} for place in range(60)]
    task = Task.model_validate({**TASK, "name": "wide", "features": features})
    num_rows = -(-num_values // (len(features) + len(Event.__slots__) - 2))
    batch = [
        Event(f"e{row}", row, row, tuple(float(row + place) for place in range(60)), (), "late")
        for row in range(num_rows)
    ]
    with engine.begin() as connection:
        schema, _ = define_task(connection, task, NOW)
        assert append_events(connection, schema, batch, NOW) == ["created"] * num_rows
        numbers = connection.execute(select(events.c.event_id, events.c.numbers)).all()
    assert {event_id: tuple(row) for event_id, row in numbers} == {event.event_id: event.numbers for event in batch}


@pytest.mark.parametrize("is_array", [False, True])
async def test_what_was_committed_before_the_answer_was_lost_is_a_duplicate_when_it_is_sent_again(
    client: httpx.AsyncClient, database_url: str, engine: Engine, tmp_path: Path, is_array: bool
) -> None:
    event = an_event("once")
    body = httpx.Request("POST", "http://morrow", json=[event] if is_array else event).content
    app = make_app(service_settings(database_url, tmp_path))
    given = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return given.pop() if given else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        raise OSError("the client has gone")

    scope = post_scope("/events", (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()))
    async with app.router.lifespan_context(app):
        with pytest.raises(OSError, match="gone"):
            await app(scope, receive, send)
    assert num_stored(engine) == 1
    again = (await client.post("/events", json=event)).json()
    assert (again["created"], again["duplicates"], num_stored(engine)) == (0, 1, 1)
    assert (await client.post("/events", json=event | {"label": "late"})).status_code == 409


async def test_one_poisoned_row_of_a_thousand_is_named_every_time_and_blocks_no_other(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    batch = [an_event(f"e{place:03}") for place in range(1000)]
    batch[500]["features"]["distance"] = "far"
    answers = [(await client.post("/events", json=batch)).json() for _ in range(2)]
    assert [(found["created"], found["duplicates"], found["rejected"]) for found in answers] == [
        (999, 0, 1),
        (0, 999, 1),
    ]
    for found in answers:
        (refused,) = [(place, row) for place, row in enumerate(found["results"]) if row["status"] == "rejected"]
        assert (refused[0], refused[1]["errors"][0]["field"]) == (500, "features.distance")
    atomic = [await client.post("/events", params={"atomic": True}, json=batch) for _ in range(2)]
    assert [answer.status_code for answer in atomic] == [422, 422]
    assert atomic[0].json()["errors"] == atomic[1].json()["errors"]
    assert atomic[0].json()["errors"][0]["field"] == "events[500].features.distance"
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(rejected_events)).scalar_one() == 4
    assert num_stored(engine) == 999


async def test_a_hundred_posts_on_a_store_that_stands_still_are_503_and_soon_taken_again(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    answers: list[httpx.Response] = []
    settings = service_settings(database_url, tmp_path, pool_size=2, database_seconds=1.0)
    async with serving(settings) as client:
        await client.put("/tasks/flights", json=TASK)

        async def post(place: int) -> None:
            one: Any = an_event(f"e{place}")
            answers.append(await client.post("/events", json=one if place % 2 else [one]))

        with engine.begin() as connection:
            connection.execute(text("LOCK TABLE events IN ACCESS EXCLUSIVE MODE"))
            with anyio.fail_after(60):
                async with anyio.create_task_group() as group:
                    for place in range(100):
                        group.start_soon(post, place)
                    assert (await client.get("/livez")).status_code == 200
        assert {(answer.status_code, answer.headers.get("retry-after")) for answer in answers} == {(503, "1")}
        with anyio.fail_after(60):
            while (await client.post("/events", json=an_event("after"))).status_code != 200:
                await anyio.sleep(0.1)
        assert num_stored(engine) == 1
