"""Rolling back, through the API and by hand in MLflow: the earlier version answers, and one row says who and why."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from sqlalchemy import Engine, text

from contracts.clock import format_moment
from contracts.verdict import Rollback
from service.database import Store
from service.metrics import Metrics
from service.models.follower import Follower
from service.models.forecaster import Question
from service.models.registry.client import find_champion_version, make_client
from service.validation.question_decoder import Row
from store.releases import note_moved_alias
from store.tasks.catalog import Schema, lock_task
from tests.integration.artefacts import CUTOFF, WEEK, move_alias, publish, write_version
from tests.integration.published_versions import history, note, publish_and_release, run_cycle, wait_for
from tests.integration.service_app import service_settings, serving

pytestmark = pytest.mark.anyio

DEAD = "postgresql+psycopg://someone:secret@127.0.0.1:9/morrow"
DEAD_URL = "http://127.0.0.1:9"


@pytest.fixture
async def client(database_url: str, mlflow_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(service_settings(database_url, tmp_path / "home", mlflow_url=mlflow_url)) as client:
        yield client


def champion(mlflow_url: str, schema: Schema) -> str | None:
    with make_client(mlflow_url) as registry:
        return find_champion_version(registry, schema.task.name)


async def roll_back(client: httpx.AsyncClient, schema: Schema, **body: Any) -> httpx.Response:
    return await client.post(f"/tasks/{schema.task.name}/rollback", json={"reason": "it mispredicts", **body})


async def test_the_earlier_version_answers_within_its_own_horizon_and_the_row_says_who_and_why(
    client: httpx.AsyncClient, mlflow_url: str, engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    first = publish_and_release(mlflow_url, engine, schema, tmp_path, horizon=1)
    second = publish_and_release(mlflow_url, engine, schema, tmp_path, horizon=3, bias=1.0)
    query = {"task": schema.task.name, "distance": "0", "carrier": "UA"}
    late = {**query, "at": format_moment(CUTOFF + 2 * WEEK)}
    await wait_for(client, "/predict", lambda found: found.get("version") == second, params=late)
    answer = await roll_back(client, schema, actor="Ada")
    assert answer.status_code == 200
    row = answer.json()
    assert (row["action"], row["version"], row["actor"], row["reason"]) == ("rollback", first, "Ada", "it mispredicts")
    assert (row["valid_until"], row["verdict"]) == (format_moment(CUTOFF + WEEK), {"replaced": second})
    early = {**query, "at": format_moment(CUTOFF)}
    found = await wait_for(client, "/predict", lambda found: found["version"] == first, params=early)
    assert found["valid_until"] == format_moment(CUTOFF + WEEK)
    beyond = await client.get("/predict", params=late)
    assert (beyond.status_code, beyond.json()["version"]) == (422, first)
    listed = (await client.get(f"/tasks/{schema.task.name}/releases")).json()["releases"]
    assert [(each["action"], each["version"]) for each in listed] == [
        ("rollback", first),
        ("release", second),
        ("release", first),
    ]


async def test_a_closed_version_stays_closed_when_it_is_rolled_back_to(
    client: httpx.AsyncClient, mlflow_url: str, engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    first = publish_and_release(mlflow_url, engine, schema, tmp_path)
    note(engine, schema, first, "close", valid_until=CUTOFF + WEEK)
    publish_and_release(mlflow_url, engine, schema, tmp_path)
    row = (await roll_back(client, schema)).json()
    assert (row["version"], row["valid_until"]) == (first, format_moment(CUTOFF + WEEK))


async def test_rolling_back_again_goes_further_back_and_never_to_what_was_rolled_back(
    client: httpx.AsyncClient, mlflow_url: str, engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    first = publish_and_release(mlflow_url, engine, schema, tmp_path)
    publish_and_release(mlflow_url, engine, schema, tmp_path)
    assert (await roll_back(client, schema)).json()["version"] == first
    publish_and_release(mlflow_url, engine, schema, tmp_path)
    assert (await roll_back(client, schema)).json()["version"] == first
    nothing = await roll_back(client, schema)
    assert (nothing.status_code, nothing.json()["type"]) == (409, "/problems/conflict")
    assert champion(mlflow_url, schema) == first


async def test_what_cannot_be_meant_is_refused_and_changes_nothing(
    client: httpx.AsyncClient, mlflow_url: str, engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    first = publish_and_release(mlflow_url, engine, schema, tmp_path)
    second = publish_and_release(mlflow_url, engine, schema, tmp_path)
    unreleased = publish(
        mlflow_url, schema.task.name, write_version(tmp_path / "x", task=schema.task.name), champion=False
    )
    before = history(engine, schema)
    bodies: list[tuple[dict[str, Any], int]] = [
        ({"version": second}, 409),
        ({"version": unreleased}, 404),
        ({"version": "no"}, 404),
        ({"version": 1}, 422),
        ({"reason": None}, 422),
        ({"reason": ""}, 422),
        ({"reason": "x" * 1001}, 422),
        ({"actor": "a\nb"}, 422),
        ({"actor": "x" * 201}, 422),
        ({"Version": first}, 422),
    ]
    for body, status in bodies:
        answer = await roll_back(client, schema, **body)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    path = f"/tasks/{schema.task.name}/rollback"
    for content, status in ((b"{", 400), (b"[]", 422), (b"", 422), (b'{"reason": "a", "reason": "b"}', 422)):
        answer = await client.post(path, content=content, headers={"content-type": "application/json"})
        assert answer.status_code == status
    assert (await client.post("/tasks/none/rollback", json={"reason": "x"})).status_code == 404
    assert history(engine, schema) == before
    assert champion(mlflow_url, schema) == second


async def test_with_mlflow_away_a_rollback_is_503_and_changes_nothing(
    database_url: str, mlflow_url: str, engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    publish_and_release(mlflow_url, engine, schema, tmp_path)
    second = publish_and_release(mlflow_url, engine, schema, tmp_path)
    before = history(engine, schema)
    for url in (DEAD_URL, None):
        async with serving(service_settings(database_url, tmp_path / "away", mlflow_url=url)) as client:
            answer = await roll_back(client, schema)
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/unavailable")
        assert "retry-after" in answer.headers
    assert history(engine, schema) == before
    assert champion(mlflow_url, schema) == second


async def test_with_the_database_away_a_rollback_is_503_and_leaves_the_alias(
    mlflow_url: str, engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    first = publish_and_release(mlflow_url, engine, schema, tmp_path)
    second = publish_and_release(mlflow_url, engine, schema, tmp_path)
    async with serving(service_settings(DEAD, tmp_path / "away", mlflow_url=mlflow_url)) as client:
        answer = await roll_back(client, schema, version=first)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "secret" not in answer.text
    assert champion(mlflow_url, schema) == second


async def test_a_version_that_mlflow_has_no_more_is_a_404_and_no_row(
    client: httpx.AsyncClient, mlflow_url: str, engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    first = publish_and_release(mlflow_url, engine, schema, tmp_path)
    publish_and_release(mlflow_url, engine, schema, tmp_path)
    gone = {"name": schema.task.name, "version": first}
    httpx.request("DELETE", f"{mlflow_url}/api/2.0/mlflow/model-versions/delete", json=gone, timeout=30)
    answer = await roll_back(client, schema)
    assert answer.status_code == 404
    assert "gone from the registry" in answer.json()["detail"]
    assert [row.action for row in history(engine, schema)] == ["release", "release"]


async def test_of_two_rollbacks_to_one_version_at_once_one_wins(
    client: httpx.AsyncClient, mlflow_url: str, engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    first = publish_and_release(mlflow_url, engine, schema, tmp_path)
    publish_and_release(mlflow_url, engine, schema, tmp_path)
    statuses: list[int] = []

    async def send() -> None:
        statuses.append((await roll_back(client, schema, version=first)).status_code)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(send)
    assert sorted(statuses) == [200, 409, 409]
    assert [row.action for row in history(engine, schema)].count("rollback") == 1
    assert champion(mlflow_url, schema) == first


async def test_of_two_unnamed_rollbacks_at_once_neither_brings_the_bad_version_back(
    client: httpx.AsyncClient, mlflow_url: str, engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    versions = [publish_and_release(mlflow_url, engine, schema, tmp_path) for _ in range(3)]
    async with anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(roll_back, client, schema)
    rows = history(engine, schema)[:2]
    assert [row.version for row in rows] == versions[:2]
    assert [row.verdict for row in rows] == [Rollback(versions[1]), Rollback(versions[2])]
    assert champion(mlflow_url, schema) == versions[0]


async def test_nothing_is_rolled_back_while_a_cycle_is_releasing(
    client: httpx.AsyncClient, mlflow_url: str, engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    publish_and_release(mlflow_url, engine, schema, tmp_path)
    second = publish_and_release(mlflow_url, engine, schema, tmp_path)
    run_cycle(engine, schema, CUTOFF, "running", step="alias")
    answer = await roll_back(client, schema)
    assert answer.status_code == 409
    assert "releasing" in answer.json()["detail"]
    assert champion(mlflow_url, schema) == second


async def test_a_broken_database_tells_nothing_of_itself(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE releases RENAME COLUMN reason TO why"))
    for answer in (
        await roll_back(client, schema),
        await client.get(f"/tasks/{schema.task.name}/releases"),
        await client.get(f"/tasks/{schema.task.name}"),
    ):
        assert (answer.status_code, answer.json()["type"]) == (500, "/problems/internal")
        assert answer.json()["detail"] == "The error is in the log."


def make_followers(engine: Engine, mlflow_url: str, home: Path, count: int) -> list[Follower]:
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    return [
        Follower(
            service_settings(DEAD, home / str(number), mlflow_url=mlflow_url),
            Store(engine, places=2, seconds=10),
            Metrics(),
            clock=lambda: moment,
        )
        for number in range(count)
    ]


async def test_an_alias_moved_in_mlflow_is_followed_and_written_down_once(
    mlflow_url: str, engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    task = schema.task.name
    first = publish_and_release(mlflow_url, engine, schema, tmp_path, horizon=1)
    second = publish_and_release(mlflow_url, engine, schema, tmp_path, horizon=3, bias=1.0)
    note(engine, schema, first, "close", valid_until=CUTOFF + WEEK // 2)
    followers = make_followers(engine, mlflow_url, tmp_path, 4)
    with ThreadPoolExecutor(len(followers)) as pool:
        list(pool.map(Follower.poll, followers, [0] * 4))
        move_alias(mlflow_url, task, first)
        list(pool.map(Follower.poll, followers, [1] * 4))
        list(pool.map(Follower.poll, followers, [2] * 4))
    newest, *rest = history(engine, schema)
    assert (newest.action, newest.version, newest.actor) == ("rollback", first, "mlflow")
    assert newest.reason == "the alias was moved in MLflow"
    assert (newest.valid_until, newest.verdict) == (CUTOFF + WEEK // 2, Rollback(second))
    assert newest.at == datetime(2026, 3, 1, tzinfo=UTC)
    assert [row.action for row in rest] == ["close", "release", "release"]
    for follower in followers:
        answer = follower.find(task).answer(Question(Row(CUTOFF, (0.0, 0.0), ("UA",)), CUTOFF))
        assert (answer.version, answer.valid_until) == (first, format_moment(CUTOFF + WEEK // 2))
        follower.close()


async def test_an_alias_that_a_cycle_has_moved_or_that_names_what_was_never_released_is_not_written_down(
    mlflow_url: str, engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    task = schema.task.name
    first = publish_and_release(mlflow_url, engine, schema, tmp_path)
    publish_and_release(mlflow_url, engine, schema, tmp_path)
    (follower,) = make_followers(engine, mlflow_url, tmp_path, 1)
    publish(mlflow_url, task, write_version(tmp_path / "new", task=task))
    follower.poll(0)
    assert [row.action for row in history(engine, schema)] == ["release", "release"]
    run_cycle(engine, schema, CUTOFF, "running", step="release")
    move_alias(mlflow_url, task, first)
    follower.poll(1)
    assert [row.action for row in history(engine, schema)] == ["release", "release"]
    follower.close()


async def test_a_champion_is_not_noted_twice(engine: Engine, schema: Schema) -> None:
    for version in ("1", "2"):
        note(engine, schema, version, "release")
    outcomes = []
    for version in ("2", "1", "1", "3", "2"):
        with engine.begin() as connection:
            lock_task(connection, schema.task_id)
            outcomes.append(note_moved_alias(connection, schema.task_id, version, datetime(2026, 3, 1, tzinfo=UTC)))
    assert outcomes == [False, True, False, False, True]
