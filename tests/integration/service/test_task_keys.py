"""Keys for some tasks only: every entrance refuses other tasks, and no list, page or metric shows them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import msgspec
import pytest
from sqlalchemy import Engine, text
from typer.testing import CliRunner

from cli.main import app
from contracts.task import Task
from store.api_keys import Key, add_key, digest_key, list_keys
from store.tasks.catalog import define_task, find_task_id
from store.tasks.deletion import delete_events, finish_deletion, finish_renaming, list_deleted, list_renamed
from store.tasks.lifecycle import begin_deletion, rename_task
from tests.integration.api_keys import problem, sent
from tests.integration.artefacts import place_version
from tests.integration.published_versions import NOW
from tests.integration.service_app import TASK, an_event, service_settings, serving

pytestmark = pytest.mark.anyio

MOMENT = {"at": "2026-01-30T00:00:00Z", "distance": "1400", "carrier": "UA"}


@pytest.fixture
async def client(database_url: str, engine: Engine, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service with the tasks `flights`, which a version answers for, and `secret`, and a key each."""
    for name in ("flights", "secret"):
        place_version(tmp_path, task=name)
        with engine.begin() as connection:
            define_task(connection, Task.model_validate({**TASK, "name": name}), NOW)
    with engine.begin() as connection:
        add_key(connection, "all", ["admin"], None, NOW)
    async with serving(service_settings(database_url, tmp_path)) as client:
        yield client


def make_key(engine: Engine, *tasks: str, name: str = "own", scope: Any = "admin") -> dict[str, str]:
    """The headers of a key for these tasks."""
    with engine.begin() as connection:
        task_ids = [find_task_id(connection, task) for task in tasks]
        return sent(add_key(connection, name, [scope], None, NOW, task_ids=task_ids))


ENTRANCES: list[tuple[str, str, Any]] = [
    ("GET", "/predict?task={}&at=2026-01-30T00:00:00Z&distance=1400&carrier=UA", None),
    ("POST", "/predict?task={}", {"features": {"distance": 1400, "carrier": "UA"}, "at": MOMENT["at"]}),
    ("POST", "/events?task={}", an_event()),
    ("POST", "/events?task={}", [an_event("e2")]),
    ("PUT", "/events/e1?task={}", an_event(label="late")),
    ("GET", "/events/e1?task={}", None),
    ("GET", "/tasks/{}/events", None),
    ("GET", "/tasks/{}", None),
    ("HEAD", "/tasks/{}", None),
    ("PUT", "/tasks/{}", TASK),
    ("GET", "/tasks/{}/cycles", None),
    ("POST", "/tasks/{}/cycles", {}),
    ("GET", "/tasks/{}/releases", None),
    ("POST", "/tasks/{}/erasures", {"event_ids": ["e2"], "reason": "asked"}),
    ("GET", "/tasks/{}/erasures", None),
    ("POST", "/tasks/{}/imports", {"source": "x.csv"}),
    ("GET", "/tasks/{}/imports", None),
    ("GET", "/tasks/{}/imports/1", None),
    ("GET", "/tasks/{}/contents", None),
    ("GET", "/tasks/{}/changes", None),
    ("GET", "/tasks/{}/models/3", None),
    ("GET", "/tasks/{}/events/e1/versions", None),
    ("GET", "/pages/{}", None),
    ("GET", "/pages/{}/state", None),
    ("GET", "/pages/{}/events", None),
    ("POST", "/tasks/{}/pause", {}),
    ("POST", "/tasks/{}/resume", {}),
    ("DELETE", "/tasks/{0}?confirm={0}", None),
]


async def test_every_entrance_takes_the_keys_own_task_and_no_other(client: httpx.AsyncClient, engine: Engine) -> None:
    own = make_key(engine, "flights")
    for method, path, body in ENTRANCES:
        for task in ("secret", "missing", "Secret"):
            refused = await client.request(method, path.format(task), json=body, headers=own)
            assert refused.status_code == 403, (method, path, refused.text)
            if method != "HEAD":
                assert problem(refused) == (403, "forbidden")
                assert "morrow keys add … --task NAME" in refused.text
                assert "secret" not in refused.text.lower()
        answered = await client.request(method, path.format("flights"), json=body, headers=own)
        assert answered.status_code < 400, (method, path, answered.text)
    with engine.connect() as connection:
        task_id = find_task_id(connection, "secret")
        for table in ("events", "cycles", "erasures", "imports", "task_changes", "rejected_events"):
            count = text(f"SELECT count(*) FROM {table} WHERE task_id = :task_id")  # noqa: S608 our own tables
            assert connection.execute(count, {"task_id": task_id}).scalar_one() == 0


@pytest.mark.parametrize("query", ["", "?task=flights&task=secret", "?t%61sk=secret", "?task=", "?task=flights%00"])
async def test_a_task_must_be_named_once(client: httpx.AsyncClient, engine: Engine, query: str) -> None:
    own = make_key(engine, "flights")
    for method, path in (("GET", "/predict"), ("POST", "/predict"), ("POST", "/events"), ("PUT", "/events/e1")):
        refused = await client.request(method, path + query, json=None if method == "GET" else an_event(), headers=own)
        assert problem(refused) == (403, "forbidden")
        assert "secret" not in refused.text


async def test_lists_pages_and_metrics_show_the_keys_own_tasks(client: httpx.AsyncClient, engine: Engine) -> None:
    own, both = make_key(engine, "flights"), make_key(engine, "flights", "secret", name="both")
    with anyio.fail_after(30):
        while "secret" not in (await client.get("/metrics", headers=both)).text:
            await anyio.sleep(0.05)
    for path in ("/tasks", "/tasks?archived=true", "/tasks?state=expired", "/", "/metrics", "/?name=secret"):
        for headers, is_seen in ((own, False), (both, True)):
            text = (await client.get(path, headers=headers)).raise_for_status().text
            seen = text.replace('value="secret"', "").replace("name=secret", "")
            assert ("secret" in seen) == is_seen, path
    for path in ("/docs", "/openapi.json", "/problems/forbidden"):
        assert (await client.get(path, headers=own)).status_code == 200
    assert problem(await client.get("/nowhere", headers=own)) == (403, "forbidden")
    assert problem(await client.put("/tasks/another", json=TASK, headers=own)) == (403, "forbidden")


async def test_a_key_follows_its_task_to_a_new_name_and_never_to_another_task(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    own, other = make_key(engine, "flights"), make_key(engine, "secret", name="other")
    with engine.begin() as connection:
        rename_task(connection, "flights", "trips", actor="Ada", reason="", now=NOW)
        (renamed,) = list_renamed(connection)
        finish_renaming(connection, renamed)
    assert (await client.get("/tasks/trips", headers=own)).status_code == 200
    assert problem(await client.get("/tasks/flights", headers=own)) == (404, "task-renamed")
    assert problem(await client.get("/tasks/flights", headers=other)) == (403, "forbidden")
    assert (await client.post("/events?task=trips", json=an_event(), headers=own)).status_code == 200
    with anyio.fail_after(30):
        while (await client.get("/predict", params={"task": "trips", **MOMENT}, headers=own)).status_code == 403:
            await anyio.sleep(0.05)
    with engine.begin() as connection:
        begin_deletion(connection, "trips", actor="Ada", reason="", now=NOW)
        (deleted,) = list_deleted(connection)
        delete_events(connection, deleted.task_id)
        assert finish_deletion(connection, deleted, NOW)
        define_task(connection, Task.model_validate({**TASK, "name": "trips"}), NOW)
    assert problem(await client.get("/tasks/trips", headers=own)) == (403, "forbidden")
    assert problem(await client.post("/events?task=trips", json=an_event(), headers=own)) == (403, "forbidden")
    assert (await client.get("/tasks", headers=own)).json()["tasks"] == []


async def test_a_scope_is_needed_as_well(client: httpx.AsyncClient, engine: Engine) -> None:
    own = make_key(engine, "flights", scope="predict")
    assert (await client.get("/predict", params={"task": "flights", **MOMENT}, headers=own)).status_code == 200
    assert "does not hold the scope ingest" in (await client.post("/events?task=flights", headers=own)).text


def test_the_release_before_refuses_a_key_for_some_tasks(engine: Engine) -> None:
    with engine.begin() as connection:
        token = add_key(connection, "own", ["admin"], None, NOW, task_ids=[7, 3, 3])
        (key,) = list_keys(connection)
    assert key.task_ids == (3, 7)
    assert key.digest != digest_key(token)
    assert msgspec.json.decode(msgspec.json.encode([key]), type=list[Key]) == [key]


def test_the_command_names_the_tasks_of_a_key(
    database_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine.begin() as connection:
        define_task(connection, Task.model_validate({**TASK, "name": "flights"}), NOW)
    monkeypatch.setenv("MORROW_DATABASE_URL", database_url)
    run = CliRunner().invoke
    made = run(app, ["keys", "add", "own", "--scope", "admin", "--task", "flights", "--json"])
    assert '"tasks":["flights"]' in made.stdout.replace(" ", "").replace("\n", "")
    assert "No key has the scope admin for every task" in made.stderr
    assert "flights" in run(app, ["keys", "list"]).stdout
    refused = run(app, ["keys", "add", "other", "--scope", "admin", "--task", "nothing"])
    assert refused.exit_code != 0
    assert "There is no task named 'nothing'." in " ".join(refused.output.split())
