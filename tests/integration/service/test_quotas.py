"""What a task may hold and train within a day, by two settings, and how more is refused."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, text

from contracts.clock import format_moment
from store.tasks.catalog import Schema
from tests.integration.artefacts import CUTOFF, WEEK
from tests.integration.drifting_task import now
from tests.integration.published_versions import define, run_cycle
from tests.integration.service_app import an_event, service_settings, serving

pytestmark = pytest.mark.anyio

NDJSON = {"Content-Type": "application/x-ndjson"}


@asynccontextmanager
async def limited(database_url: str, home: Path, **limits: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(service_settings(database_url, home, **limits)) as client:
        yield client


def assert_refused(answer: httpx.Response, words: str) -> int:
    """The seconds after which a retry may help."""
    assert (answer.status_code, answer.json()["type"]) == (429, "/problems/quota-used")
    assert words in answer.json()["detail"]
    return int(answer.headers["Retry-After"])


async def test_a_full_task_takes_no_event_by_any_entrance_and_corrections_still(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    full, other = define(engine), define(engine)
    to_full, to_other = ({"task": one.task.name} for one in (full, other))
    async with limited(database_url, tmp_path, rows_per_task=3) as client:
        assert (await client.post("/events", params=to_full, json=an_event("e1"))).status_code == 200
        # One request that begins below the limit is stored whole.
        three = [an_event(f"e{k}") for k in range(2, 5)]
        assert (await client.post("/events", params=to_full, json=three)).json()["created"] == 3
        said = f"{full.task.name} holds 4 events, and a task may hold 3"
        assert assert_refused(await client.post("/events", params=to_full, json=an_event("e9")), said) == 3600
        assert_refused(await client.post("/events", params=to_full, json=[an_event("e9")]), said)
        line = json.dumps(an_event("e9"))
        refused = await client.post("/events", params=to_full, content=line, headers=NDJSON)
        assert_refused(refused, "0 lines before line 1 are stored")
        begun = await client.post(f"/tasks/{full.task.name}/imports", json={"source": "file.csv"})
        with_import = to_full | {"import": begun.json()["id"]}
        assert_refused(await client.post("/events", params=with_import, json=[an_event("e9")]), said)
        corrected = await client.put("/events/e1", params=to_full, json=an_event("e1", label="late"))
        assert corrected.status_code == 200
        assert (await client.get("/events/e1", params=to_full)).status_code == 200
        assert (await client.post("/events", params=to_other, json=an_event("e9"))).status_code == 200
        erased = {"event_ids": ["e1", "e2"], "reason": "room"}
        assert (await client.post(f"/tasks/{full.task.name}/erasures", json=erased)).status_code == 200
        assert (await client.post("/events", params=to_full, json=an_event("e9"))).status_code == 200


async def test_a_task_that_has_had_its_cycles_of_a_day_waits_for_the_oldest_to_leave_it(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    schema, other = define(engine), define(engine)

    async def ask(client: httpx.AsyncClient, one: Schema, k: int) -> httpx.Response:
        as_of = format_moment(CUTOFF + k * WEEK)
        return await client.post(f"/tasks/{one.task.name}/cycles", json={"as_of": as_of})

    async with limited(database_url, tmp_path, cycles_per_day=2) as client:
        for k in range(2):
            assert (await ask(client, schema, k)).status_code == 202
        assert (await ask(client, schema, 1)).status_code == 202  # it waits already, and no other is added
        move(engine, schema, hours=23)
        seconds = assert_refused(await ask(client, schema, 2), "has had 2 cycles within 24 hours")
        assert 3500 < seconds <= 3600
        assert count(engine, schema) == 2
        assert (await ask(client, other, 0)).status_code == 202
        move(engine, schema, hours=1)
        assert (await ask(client, schema, 2)).status_code == 202


async def test_cycles_of_the_schedule_count_as_well(database_url: str, engine: Engine, tmp_path: Path) -> None:
    schema = define(engine)
    run_cycle(engine, schema, CUTOFF, "skipped", "too few rows")
    move(engine, schema, to_now=True)
    async with limited(database_url, tmp_path, cycles_per_day=1) as client:
        answer = await client.post(f"/tasks/{schema.task.name}/cycles", json={"as_of": format_moment(CUTOFF + WEEK)})
    assert_refused(answer, "has had 1 cycle")


def move(engine: Engine, schema: Schema, *, hours: int = 0, to_now: bool = False) -> None:
    """Make the task's cycles as if they had been requested earlier, or now."""
    change = ":now" if to_now else "requested_at - :earlier"
    given = {"now": now()} if to_now else {"earlier": timedelta(hours=hours)}
    with engine.begin() as connection:
        connection.execute(
            text(f"UPDATE cycles SET requested_at = {change} WHERE task_id = :task_id"),  # noqa: S608 of our own
            given | {"task_id": schema.task_id},
        )


def count(engine: Engine, schema: Schema) -> int:
    with engine.connect() as connection:
        query = text("SELECT count(*) FROM cycles WHERE task_id = :task_id")
        return int(connection.execute(query, {"task_id": schema.task_id}).scalar_one())
