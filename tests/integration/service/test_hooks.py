"""Hooks over HTTP: who may make them, what is refused, and where their failures are shown."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine

from contracts.hooks.receivers import read_networks
from store.api_keys import add_key
from store.hooks.outbox import claim_due, note_failed
from store.tasks.catalog import Schema
from tests.integration.api_keys import make_key, problem, sent
from tests.integration.hook_receiver import SECRET, events_of, make_hook
from tests.integration.published_versions import LEASE, NOW, note
from tests.integration.service_app import service_settings, serving

pytestmark = pytest.mark.anyio

URL = "https://example.com/hook"


@pytest.fixture
async def client(database_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(service_settings(database_url, tmp_path)) as client:
        yield client


async def add(client: httpx.AsyncClient, **changes: Any) -> httpx.Response:
    return await client.post("/hooks", json={"name": "ops", "url": URL} | changes)


def give_up(engine: Engine, answer: str = "500 Internal Server Error") -> None:
    """Let all hooks give up their oldest event."""
    with engine.begin() as connection:
        for one in claim_due(connection, NOW, LEASE):
            note_failed(connection, one, answer, NOW, due_at=None)


async def test_a_hook_shows_its_secret_once(client: httpx.AsyncClient, task: str) -> None:
    added = await add(client, tasks=[task, task], types=["morrow.version.released"], actor="Ada")
    assert added.status_code == 201
    secret = added.json().pop("secret")
    assert secret.startswith("whsec_")
    listed = (await client.get("/hooks")).json()
    assert secret not in str(listed)
    (hook,) = listed["hooks"]
    assert (hook["name"], hook["url"], hook["actor"]) == ("ops", URL, "Ada")
    assert (hook["tasks"], hook["types"]) == ([task], ["morrow.version.released"])
    assert [hook[f"num_{what}"] for what in ("waiting", "dead", "delivered", "failed")] == [0, 0, 0, 0]


async def test_a_hook_for_everything_says_so(client: httpx.AsyncClient) -> None:
    hook = (await add(client)).json()
    assert (hook["tasks"], hook["types"], hook["answer"]) == (None, None, None)


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"name": None}, "name", "required"),
        ({"name": "a b"}, "name", "name it a_b"),
        ({"url": None}, "url", "required"),
        ({"url": "http://example.com/"}, "url", "https"),
        ({"url": "https://10.0.0.1/"}, "url", "MORROW_HOOKS_ALLOW_PRIVATE=10.0.0.1"),
        ({"url": "https://user:password@example.com/"}, "url", "password"),
        ({"tasks": []}, "tasks", "leave it out for all tasks"),
        ({"types": ["released"]}, "types", "morrow.version.released"),
        ({"types": ["morrow.version.release"]}, "types", "write morrow.version.released"),
        ({"types": "morrow.version.released"}, "types", "not a list"),
        ({"event": "all"}, "event", "not a field"),
    ],
)
async def test_what_breaks_a_rule_is_named_with_the_remedy(
    client: httpx.AsyncClient, changes: dict[str, Any], field: str, reason: str
) -> None:
    refused = await add(client, **changes)
    assert problem(refused) == (422, "invalid-input")
    assert [fault["field"] for fault in refused.json()["errors"]] == [field]
    assert reason in refused.json()["errors"][0]["reason"]


async def test_a_network_that_is_allowed_may_be_named_also_over_http(database_url: str, tmp_path: Path) -> None:
    allowed = service_settings(database_url, tmp_path, hooks_allow_private=read_networks("10.0.0.0/8"))
    async with serving(allowed) as client:
        assert (await add(client, url="http://10.0.0.1/")).status_code == 201
        assert (await add(client, name="other", url="https://127.0.0.1/")).status_code == 422


async def test_unknown_tasks_taken_names_and_unknown_hooks_are_told_apart(client: httpx.AsyncClient) -> None:
    assert problem(await add(client, tasks=["nothing"])) == (404, "not-found")
    assert (await add(client)).status_code == 201
    assert problem(await add(client)) == (409, "conflict")
    for verb, path in (
        ("DELETE", "/hooks/other"),
        ("GET", "/hooks/other/events"),
        ("POST", "/hooks/other/test"),
        ("POST", "/hooks/other/retry"),
        ("DELETE", "/hooks/%00"),
    ):
        refused = await client.request(verb, path)
        assert problem(refused) == (404, "not-found")
        assert "the hooks are ops" in refused.json()["detail"]


async def test_a_removed_hook_says_what_was_not_delivered(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    await add(client)
    note(engine, schema, "1", "release")
    assert (await client.delete("/hooks/ops")).json()["num_waiting"] == 1
    assert (await client.get("/hooks")).json() == {"hooks": []}


async def test_events_are_listed_with_what_became_of_them(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    make_hook(engine, URL)
    note(engine, schema, "1", "release")
    note(engine, schema, "1", "close")
    give_up(engine)
    newest, oldest = (await client.get("/hooks/ops/events")).json()["events"]
    assert (oldest["type"], oldest["task"], oldest["state"]) == (
        "morrow.version.released",
        schema.task.name,
        "dead",
    )
    assert (oldest["answer"], oldest["num_attempts"], oldest["due_at"]) == ("500 Internal Server Error", 1, None)
    assert (newest["type"], newest["state"], newest["answer"]) == ("morrow.horizon.closed", "waiting", None)
    assert len((await client.get("/hooks/ops/events", params={"limit": 1})).json()["events"]) == 1


async def test_dead_letters_are_on_the_page_and_in_the_status_until_they_are_retried(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    make_hook(engine, URL)
    note(engine, schema, "1", "release")
    give_up(engine, "500 <script>alert(1)</script>")
    page = (await client.get(f"/pages/{schema.task.name}")).text
    assert "The hook ops has given up 1 event about the task" in page
    assert "<script>alert" not in page
    assert "morrow hooks retry ops" in page
    status = (await client.get(f"/tasks/{schema.task.name}")).json()
    assert not any("script" in warning for warning in status["warnings"])  # it may hold a part of the address
    assert (await client.post("/hooks/ops/retry")).json() == {"num_events": 1}
    assert "given up" not in (await client.get(f"/pages/{schema.task.name}")).text
    assert [event.state for event in events_of(engine)] == ["waiting"]


async def test_a_test_waits_for_the_trainer(client: httpx.AsyncClient, engine: Engine) -> None:
    make_hook(engine, URL, types=["morrow.version.released"])
    asked = await client.post("/hooks/ops/test")
    assert asked.status_code == 202
    (event,) = (await client.get("/hooks/ops/events")).json()["events"]
    assert (event["id"], event["type"], event["task"]) == (asked.json()["id"], "morrow.hook.test", None)


async def test_metrics_count_the_events_of_each_hook(client: httpx.AsyncClient, engine: Engine, schema: Schema) -> None:
    make_hook(engine, URL)
    note(engine, schema, "1", "release")
    note(engine, schema, "1", "close")
    give_up(engine)

    async def read() -> dict[str, float]:
        families = text_string_to_metric_families((await client.get("/metrics")).text)
        samples = [sample for family in families for sample in family.samples if sample.labels.get("hook") == "ops"]
        return {sample.name.removeprefix("morrow_hook_"): sample.value for sample in samples}

    expected = {"delivered_total": 0, "failed_total": 1, "waiting": 1, "dead": 1}
    with anyio.fail_after(60):  # until the next poll
        while await read() != expected:
            await anyio.sleep(0.05)


async def test_only_an_admin_of_every_task_may_see_or_change_hooks(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    make_hook(engine, f"{URL}?token=secret")
    reader, admin = make_key(engine, "predict", "ingest", name="reader"), make_key(engine, "admin", name="admin")
    with engine.begin() as connection:
        limited = add_key(connection, "limited", ("admin",), None, NOW, task_ids=[schema.task_id])
    requests = [
        ("GET", "/hooks"),
        ("POST", "/hooks"),
        ("GET", "/hooks/ops/events"),
        ("POST", "/hooks/ops/test"),
        ("POST", "/hooks/ops/retry"),
        ("DELETE", "/hooks/ops"),
    ]

    async def ask(verb: str, path: str, key: str) -> httpx.Response:
        return await client.request(verb, path, headers=sent(key))

    with anyio.fail_after(60):  # until this process knows the keys
        for key in (reader, limited, admin):
            while (await ask("GET", "/hooks/none/events", key)).status_code not in (403, 404):
                await anyio.sleep(0.05)
        while (await client.get("/hooks")).status_code == 200:
            await anyio.sleep(0.05)
    for verb, path in requests:
        assert problem(await ask(verb, path, reader)) == (403, "forbidden")
        assert problem(await ask(verb, path, limited)) == (403, "forbidden")
        assert (await ask(verb, path, admin)).status_code in (200, 202, 422)
    assert "morrow_hook" not in "".join(
        line for line in (await ask("GET", "/metrics", limited)).text.splitlines() if not line.startswith("#")
    )


def test_the_secret_of_tests_is_as_long_as_a_real_one() -> None:
    assert len(SECRET) == 32
