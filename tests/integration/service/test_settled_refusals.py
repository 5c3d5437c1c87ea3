"""Refused rows that nobody need send again are told apart from those that still wait for somebody."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from store.tasks.catalog import Schema
from tests.integration.published_versions import define
from tests.integration.service_app import an_event, service_settings, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
def schema(engine: Engine) -> Schema:
    return define(engine)


@pytest.fixture
async def client(database_url: str, tmp_path: Path, schema: Schema) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(service_settings(database_url, tmp_path)) as client:
        yield client


async def send(client: httpx.AsyncClient, task: str, *events: dict[str, Any], **options: Any) -> None:
    (await client.post("/events", params={"task": task, **options}, json=events)).raise_for_status()


async def begin(client: httpx.AsyncClient, task: str, source: str) -> int:
    answer = await client.post(f"/tasks/{task}/imports", json={"source": source})
    import_id: int = answer.raise_for_status().json()["id"]
    return import_id


async def counted(client: httpx.AsyncClient, task: str) -> str:
    page = (await client.get(f"/pages/{task}/events")).raise_for_status().text
    return page.partition("Rows refused in the last day: ")[2].partition("</p>")[0]


async def test_a_row_that_was_stored_since_is_settled(client: httpx.AsyncClient, schema: Schema) -> None:
    name = schema.task.name
    await send(client, name, an_event("a", label="perhaps"), an_event("b", label="perhaps"), an_event("c"))
    await client.put("/events/c", params={"task": name}, json=an_event("c", label="perhaps"))
    assert (await counted(client, name)).startswith("3.")
    await send(client, name, an_event("a"))
    assert (await counted(client, name)).startswith("2. A row counts each time")
    await client.put("/events/c", params={"task": name}, json=an_event("c", label="late"))
    told = await counted(client, name)
    assert told.startswith("1.")
    assert "2 more need nothing: they were stored since, or their import was retracted or repeated." in told
    await send(client, name, an_event("b"))
    assert await counted(client, name) == (
        "0. 3 more need nothing: they were stored since, or their import was retracted or repeated."
    )


async def test_rows_of_a_retracted_import_are_settled(client: httpx.AsyncClient, schema: Schema) -> None:
    name = schema.task.name
    mistaken, other = await begin(client, name, "a.csv"), await begin(client, name, "b.csv")
    for number, import_id in enumerate((mistaken, other)):
        rows = an_event(f"good-{number}"), an_event(f"bad-{number}", label="perhaps")
        await send(client, name, *rows, **{"import": import_id})
    assert (await counted(client, name)).startswith("2.")
    (await client.post(f"/tasks/{name}/imports/{mistaken}/retract", json={"reason": "why"})).raise_for_status()
    assert (await counted(client, name)).startswith("1.")


@pytest.mark.parametrize(("source", "left"), [("a.csv", "0."), ("other.csv", "1."), ("stdin", "1.")])
async def test_a_later_import_of_the_same_file_settles_rows_whose_ids_were_digests(
    client: httpx.AsyncClient, schema: Schema, source: str, left: str
) -> None:
    name = schema.task.name
    first = await begin(client, name, "stdin" if source == "stdin" else "a.csv")
    lines = b'{"event_id": "row-1", "at": "2026-01-05T12:00:00Z", "label": "perhaps", "features": {}}\n'
    given = {"task": name, "import": str(first)}
    ndjson = {"content-type": "application/x-ndjson"}
    (await client.post("/events", params=given, content=lines, headers=ndjson)).raise_for_status()
    assert (await counted(client, name)).startswith("1.")
    second = await begin(client, name, source)
    await send(client, name, an_event("row-2"), **{"import": second})
    assert (await counted(client, name)).startswith(left)
    (await client.post(f"/tasks/{name}/imports/{second}/retract", json={"reason": "why"})).raise_for_status()
    assert (await counted(client, name)).startswith("1.")
