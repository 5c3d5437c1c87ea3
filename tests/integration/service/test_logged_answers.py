"""Every answer has an id, and is in the log soon: what was asked, and what was answered. No answer waits for it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import httpx
import pytest
from sqlalchemy import Engine, text

from contracts.clock import format_moment, to_micros
from store.predictions.ids import moment_of
from tests.integration.artefacts import CUTOFF, WEEK, place_version
from tests.integration.service_app import DEAD_DATABASE, TASK, service_settings, serving

pytestmark = pytest.mark.anyio

ROW: dict[str, Any] = {"distance": 1400, "carrier": "UA", "wind": 3.5}
AT = format_moment(CUTOFF + WEEK)


async def ask(client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    given = {"task": "flights", "at": AT, **ROW, **changes}
    params = {name: value for name, value in given.items() if value is not None}
    found: dict[str, Any] = (await client.get("/predict", params=params)).raise_for_status().json()
    return found


async def ask_many(client: httpx.AsyncClient, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    body = {"rows": [{"at": AT, "features": row} for row in rows]}
    found: list[dict[str, Any]] = (await client.post("/predict", json=body)).raise_for_status().json()["answers"]
    return found


async def await_rows(engine: Engine, count: int) -> list[Any]:
    """The rows of the log, once there are `count`, in the order of their ids."""
    with anyio.fail_after(60):
        while len(rows := read_rows(engine)) < count:
            await anyio.sleep(0.02)
    return rows


def read_rows(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        return [*connection.execute(text("SELECT * FROM predictions ORDER BY id"))]


def named(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "id"}


@pytest.fixture
async def client(engine: Engine, database_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    place_version(tmp_path)
    async with serving(service_settings(database_url, tmp_path)) as client:
        (await client.put("/tasks/flights", json=TASK)).raise_for_status()
        yield client


async def test_an_answer_to_one_row_has_an_id_and_is_logged(client: httpx.AsyncClient, engine: Engine) -> None:
    answer = await ask(client)
    (row,) = await await_rows(engine, 1)
    assert str(row.id) == answer["id"]
    assert UUID(answer["id"]).version == 7
    assert (row.task_id, row.version, format_moment(to_micros(row.at)), row.key_name) == (1, "3", AT, None)
    assert (row.features, row.answer) == (ROW, named(answer))


async def test_each_row_of_many_has_an_id_of_its_own(client: httpx.AsyncClient, engine: Engine) -> None:
    asked = [ROW, {"distance": 2, "carrier": 'Köln "x" \\ é', "wind": None}, {"distance": 3, "carrier": "UA"}]
    answers = await ask_many(client, *asked)
    rows = {str(row.id): row for row in await await_rows(engine, 3)}
    assert len(rows) == 3
    for given, answer in zip(asked, answers, strict=True):
        row = rows[answer["id"]]
        assert row.features == {"wind": None, **given}
        assert row.answer == named(answer)


async def test_but_for_the_id_both_ways_answer_the_same_bytes(client: httpx.AsyncClient) -> None:
    one = await client.get("/predict", params={"task": "flights", "at": AT, **ROW})
    many = await client.post("/predict", json={"rows": [{"at": AT, "features": ROW}]})
    first, second = (content.replace(id_in(content), b"") for content in (one.content, many.content))
    assert second == b'{"answers":[%b]}' % first
    assert first.endswith(b',"id":""}')
    assert json.loads(first) == {**named(one.json()), "id": ""}


def id_in(content: bytes) -> bytes:
    return content.rpartition(b'"id":"')[2][:36]


async def test_a_slow_question_is_logged_too(client: httpx.AsyncClient, engine: Engine) -> None:
    """With options, and written so that it is read by pairs."""
    answers = [await ask(client, coverage=None, rate="true"), await ask(client, carrier="A&B")]
    rows = await await_rows(engine, 2)
    assert [(str(row.id), row.answer) for row in rows] == [(one["id"], named(one)) for one in answers]
    assert rows[1].features["carrier"] == "A&B"


async def test_a_refused_question_is_not_logged(client: httpx.AsyncClient, engine: Engine) -> None:
    refused = await client.get("/predict", params={"task": "flights", "at": "2030-01-01T00:00:00Z", **ROW})
    assert refused.status_code == 422
    await ask(client)
    assert len(await await_rows(engine, 1)) == 1


async def test_a_task_says_which_share_of_its_answers_is_logged_and_with_what(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    async def define(**log: Any) -> None:
        (await client.put("/tasks/flights", json={**TASK, "log": log})).raise_for_status()
        await anyio.sleep(0.5)  # some polls

    await define(features=False)
    await ask(client)
    (row,) = await await_rows(engine, 1)
    assert row.features is None
    await define(share=0)
    await ask(client)
    await define(share=0.5)
    ids = [answer["id"] for answer in await ask_many(client, *[ROW] * 400)]
    await define(share=1)
    last = await ask(client)
    rows = await await_rows(engine, 150)
    with anyio.fail_after(5):
        while str(read_rows(engine)[-1].id) != last["id"]:
            await anyio.sleep(0.02)
    rows = read_rows(engine)
    expected = [one for one in ids if int(one[-8:], 16) < 2**31]
    assert sorted(str(one.id) for one in rows[1:-1]) == sorted(expected)
    assert 140 < len(expected) < 260


async def test_the_log_can_be_switched_off(database_url: str, engine: Engine, tmp_path: Path) -> None:
    place_version(tmp_path)
    async with serving(service_settings(database_url, tmp_path, log_predictions=False)) as client:
        (await client.put("/tasks/flights", json=TASK)).raise_for_status()
        assert (await ask(client))["id"]
    assert read_rows(engine) == []
    assert not (tmp_path / "predictions").exists()


async def test_rows_that_wait_when_the_service_stops_are_stored_first(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    place_version(tmp_path)
    async with serving(service_settings(database_url, tmp_path)) as client:
        (await client.put("/tasks/flights", json=TASK)).raise_for_status()
        answers = await ask_many(client, *[ROW] * 50)
    assert {str(row.id) for row in read_rows(engine)} == {answer["id"] for answer in answers}
    assert [*(tmp_path / "predictions").iterdir()] == []


async def test_without_a_database_every_question_is_answered_with_an_id(tmp_path: Path) -> None:
    place_version(tmp_path)
    async with serving(service_settings(DEAD_DATABASE, tmp_path)) as client:
        assert len({(await ask(client))["id"] for _ in range(20)}) == 20


async def test_ids_sort_by_the_time_of_the_answer(client: httpx.AsyncClient) -> None:
    ids = []
    for _ in range(3):
        ids.append((await ask(client))["id"])
        await anyio.sleep(0.002)
    assert ids == sorted(ids)
    assert moment_of(UUID(ids[0])) < moment_of(UUID(ids[2]))
