"""Corrections and definitions in an order: with `If-Match`, what is sent late cannot replace what is newer."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, select

from store.database import events
from tests.integration.service_app import TASK, an_event, service_settings, serving

pytestmark = pytest.mark.anyio

EVENT = "/events/e1?task=flights"


@pytest.fixture
async def client(database_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(service_settings(database_url, tmp_path)) as client:
        defined = await client.put("/tasks/flights", json=TASK)
        assert (defined.status_code, defined.headers["etag"]) == (201, '"1"')
        assert (await client.post("/events?task=flights", json=an_event())).status_code == 200
        yield client


def labels(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.execute(select(events.c.label).order_by(events.c.revision)).scalars())


async def correct(client: httpx.AsyncClient, label: str, **headers: str) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.put(EVENT, json=an_event(label=label), headers=sent)


async def test_a_correction_that_is_sent_late_does_not_replace_a_newer_one(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    first = await correct(client, "late", If_Match='"1"')
    assert (first.status_code, first.json()["status"], first.headers["etag"]) == (200, "corrected", '"2"')
    newer = await correct(client, "on_time", If_Match='"2"')
    assert (newer.status_code, newer.headers["etag"]) == (200, '"3"')
    resent = await correct(client, "late", If_Match='"1"')
    assert (resent.status_code, resent.json()["type"]) == (412, "/problems/precondition-failed")
    assert resent.headers["etag"] == '"3"'
    assert 'If-Match: "1" does not hold, because the current ETag is "3"' in resent.json()["detail"]
    assert labels(engine) == ["on_time", "late", "on_time"]


async def test_a_correction_that_is_already_the_newest_may_be_sent_again(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    for status in ("corrected", "duplicate"):
        answer = await correct(client, "late", If_Match='"1"')
        assert (answer.status_code, answer.json()["status"], answer.headers["etag"]) == (200, status, '"2"')
    assert labels(engine) == ["on_time", "late"]


async def test_an_event_that_is_there_fails_what_asks_for_none(client: httpx.AsyncClient, engine: Engine) -> None:
    assert (await correct(client, "late", If_None_Match="*")).status_code == 412
    assert (await correct(client, "late", If_None_Match='"1"')).status_code == 412
    assert (await correct(client, "late", If_Match="1")).json()["type"] == "/problems/malformed"
    assert labels(engine) == ["on_time"]
    assert (await correct(client, "late", If_Match="*", If_None_Match='"7"')).status_code == 200


async def test_a_definition_replaces_only_the_revision_that_it_names(client: httpx.AsyncClient) -> None:
    async def define(window: str, **headers: str) -> tuple[int, str | None]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await client.put("/tasks/flights", json={**TASK, "window": window}, headers=sent)
        return answer.status_code, answer.headers.get("etag")

    assert await define("P1D", If_None_Match="*") == (412, '"1"')
    assert await define("P1D", If_Match='"1"') == (200, '"2"')
    assert await define("P2D", If_Match='"1"') == (412, '"2"')
    assert await define("P1D", If_Match='"1"') == (200, '"2"')  # it is so already
    assert (await client.get("/tasks/flights")).headers["etag"] == '"2"'
    created = {**TASK, "name": "trains"}
    assert (await client.put("/tasks/trains", json=created, headers={"If-Match": "*"})).status_code == 412
    assert (await client.get("/tasks/trains")).status_code == 404
    assert (await client.put("/tasks/trains", json=created, headers={"If-None-Match": "*"})).status_code == 201


WRITES: list[tuple[str, str, Any]] = [
    ("POST", "/events?task=flights", an_event("e2")),
    ("POST", "/events?task=flights", [an_event("e2")]),
    ("PUT", EVENT, an_event(label="late")),
    ("PUT", "/tasks/flights", {**TASK, "window": "P1D"}),
    ("POST", "/tasks/flights/cycles", {}),
    ("POST", "/tasks/flights/rollback", {"actor": "a", "reason": "r"}),
    ("POST", "/tasks/flights/erasures", {"event_ids": ["e1"], "actor": "a", "reason": "r"}),
]


@pytest.mark.parametrize(
    ("name", "status"),
    [("If-Unmodified-Since", 412), ("If-Modified-Since", 412), ("Range", 400), ("Content-Range", 400)],
)
async def test_no_write_ignores_a_condition_that_it_does_not_know(
    client: httpx.AsyncClient, engine: Engine, name: str, status: int
) -> None:
    for method, path, body in WRITES:
        answer = await client.request(method, path, json=body, headers={name: "bytes 0-1/2"})
        assert answer.status_code == status, (method, path)
        assert name in answer.json()["detail"]
    assert labels(engine) == ["on_time"]
    assert (await client.get("/tasks/flights")).json()["revision"] == 1


@pytest.mark.parametrize("name", ["If-Match", "If-None-Match"])
async def test_a_write_without_revisions_takes_no_condition(client: httpx.AsyncClient, name: str) -> None:
    for method, path, body in WRITES:
        if method == "POST":
            answer = await client.request(method, path, json=body, headers={name: '"1"'})
            assert (answer.status_code, answer.json()["type"]) == (412, "/problems/precondition-failed"), path
