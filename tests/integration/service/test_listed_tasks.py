"""GET /tasks: pages and filters, as many statements for many tasks as for few, and no task that hides another."""

import json
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, text
from typer.testing import CliRunner

from cli.commands.task import PAGE_SIZE
from cli.main import app
from contracts.task import Task
from service.admin.listed_tasks import MAX_TASKS, Wanted, read_page
from store.tasks.catalog import define_task
from store.tasks.lifecycle import move_task
from tests.integration.api_process import Running
from tests.integration.make_follower import MakeFollower
from tests.integration.published_versions import NOW
from tests.integration.service_app import TASK, service_settings, serving
from tests.integration.statements import counting_statements

pytestmark = pytest.mark.anyio


def define(engine: Engine, names: Sequence[str]) -> None:
    with engine.begin() as connection:
        for name in names:
            define_task(connection, Task.model_validate({**TASK, "name": name}), NOW)


@pytest.fixture
async def client(database_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(service_settings(database_url, tmp_path)) as client:
        yield client


async def listed(client: httpx.AsyncClient, **params: Any) -> tuple[list[str], str | None]:
    """The names of a page, and the name after which the next one begins."""
    answer = (await client.get("/tasks", params=params)).raise_for_status().json()
    return [one["task"] for one in answer["tasks"]], answer["next"]


async def test_pages_hold_every_task_once_in_one_order(client: httpx.AsyncClient, engine: Engine) -> None:
    names = [f"{kind}_{number}" for kind in ("a", "B", "ab") for number in range(7)]
    define(engine, names)
    whole, last = await listed(client)
    assert (sorted(whole), last) == (sorted(names), None)
    for limit in (1, 5, 7, 20, 21, 22):
        found, after = list[str](), ""
        while after is not None:
            page, after = await listed(client, limit=limit, after=after)  # type: ignore[assignment]  # JSON
            assert len(page) == limit or after is None
            found += page
        assert found == whole


async def test_tasks_are_found_by_state_and_name(client: httpx.AsyncClient, engine: Engine) -> None:
    define(engine, ["ab_1", "abx", "Cab_2", "d"])
    with engine.begin() as connection:
        move_task(connection, "d", "archive", actor="Ada", reason="", now=NOW)
    assert await listed(client, prefix="ab_") == (["ab_1"], None)
    assert sorted((await listed(client, q="AB_"))[0]) == ["Cab_2", "ab_1"]
    assert await listed(client, q="%") == ([], None)
    assert sorted((await listed(client, archived=True))[0]) == ["Cab_2", "ab_1", "abx", "d"]
    assert await listed(client, state="valid") == ([], None)
    found, after = await listed(client, state="no_model", limit=2)
    assert (len(found), after) == (2, found[-1])
    assert len((await listed(client, state="no_model", limit=2, after=after))[0]) == 1


async def test_a_browser_with_a_wrong_address_gets_a_page_that_leads_to_the_tasks(client: httpx.AsyncClient) -> None:
    for path, status, said in (
        ("/?state=foo", 422, "state: is &#39;foo&#39;, and can be"),
        ("/?colour=red", 422, "is not a parameter of this path; it takes name, state, page, archived"),
        ("/pages/nothing", 404, "There is no task named &#39;nothing&#39;"),
        ("/problems/nothing", 404, "There is no such type of problem."),
    ):
        page = await client.get(path, headers={"Accept": "text/html,*/*;q=0.8"})
        assert page.status_code == status, path
        assert page.headers["Content-Type"].startswith("text/html"), path
        assert said in page.text, path
        assert "Show all tasks" in page.text, path
        answer = await client.get(path)
        assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json"), path


async def test_the_list_and_its_page_take_the_same_states_and_archived_tasks(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    define(engine, ["active", "resting", "former"])
    with engine.begin() as connection:
        move_task(connection, "resting", "pause", actor="Ada", reason="", now=NOW)
        move_task(connection, "former", "archive", actor="Ada", reason="", now=NOW)
    for query, names in (
        ({"state": "paused"}, ["resting"]),
        ({"state": "archived"}, ["former"]),
        ({"state": "expiring"}, []),
        ({"archived": True}, ["active", "former", "resting"]),
        ({}, ["active", "resting"]),
    ):
        assert sorted((await listed(client, **query))[0]) == names, query
        page = (await client.get("/", params=query)).raise_for_status().text
        assert sorted(re.findall('data-name="([a-z]+)"', page)) == names, query


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("limit", "0"),
        ("limit", str(MAX_TASKS + 1)),
        ("state", "good"),
        ("prefix", "\x00"),
        ("after", "a\x00"),
        ("x", "1"),
    ],
)
async def test_what_no_page_can_be_is_422(client: httpx.AsyncClient, name: str, value: str) -> None:
    answer = await client.get("/tasks", params={name: value})
    assert (answer.status_code, [fault["field"] for fault in answer.json()["errors"]]) == (422, [name])


def test_a_page_takes_as_many_statements_for_many_tasks_as_for_few(engine: Engine, make_follower: MakeFollower) -> None:
    follower, counts = make_follower(offline=True), set[int]()
    define(engine, ["a", "b"])
    for names in ([], [f"t{number}" for number in range(120)]):
        define(engine, names)
        for limit in (2, MAX_TASKS):
            with counting_statements(engine) as statements, engine.connect() as connection:
                found = read_page(connection, follower, Wanted(limit), NOW)
            assert len(found.tasks) == min(limit, 2 + len(names))
            counts.add(len(statements))
    assert max(counts) == min(counts) <= 20


# What a client could write past the API before revision 0007, or with the constraints taken away.
GARBAGE = {
    "spec": "UPDATE schemas SET spec = '{\"name\": 7}' WHERE task_id = :task_id",
    "cell": "INSERT INTO error_cells VALUES (:task_id, 'r', 'infinity', '-infinity', 'gi', -1, 'nan', 'infinity', -5, "
    "true, '{NULL}', '{}', 'infinity')",
    "release": "INSERT INTO releases (task_id, version, action, valid_until, verdict, calibration, actor, reason, at) "
    "VALUES (:task_id, '', 'release', 'infinity', '[7]', '\"x\"', '', '', '-infinity')",
    "cycle": "INSERT INTO cycles (task_id, cutoff, attempt, state, verdict, requested_at, ended_at) "
    "VALUES (:task_id, 'infinity', -1, 'held', '{\"matrix\": 7}', '-infinity', 'infinity')",
    "event": "INSERT INTO events SELECT :task_id, 'e', 1, 'infinity', 'infinity', 'infinity', NULL, id, '{}', '{}', "
    "'x' FROM schemas WHERE task_id = :task_id",
    "task": "UPDATE tasks SET created_at = 'infinity' WHERE id = :task_id",
}


def write_past(engine: Engine, name: str, statement: str) -> None:
    """Run a statement for a task without the constraints that would refuse it.

    Each is dropped in a transaction of its own: one that locks two tables may deadlock with a look of the service.
    """
    with engine.begin() as connection:
        # Those of a partition go with the one of its table.
        own = "SELECT conrelid::regclass, conname FROM pg_constraint WHERE contype = 'c' AND coninhcount = 0"
        kept = connection.execute(text(own))
        named = [(str(table), constraint) for table, constraint in kept.all()]
    for table, constraint in named:
        if not table.startswith(("information_schema", "pg_")) and table != "-":
            with engine.begin() as connection:
                connection.execute(text(f'ALTER TABLE {table} DROP CONSTRAINT "{constraint}"'))
    with engine.begin() as connection:
        task_id = connection.execute(text("SELECT id FROM tasks WHERE name = :name"), {"name": name}).scalar_one()
        connection.execute(text(statement), {"task_id": task_id})


@pytest.mark.parametrize("what", GARBAGE)
async def test_a_task_of_which_something_cannot_be_read_hides_no_other(
    client: httpx.AsyncClient, engine: Engine, what: str
) -> None:
    define(engine, ["bad", "good"])
    write_past(engine, "bad", GARBAGE[what])
    answer = await client.get("/tasks")
    assert answer.status_code == 200, answer.text
    bad, good = answer.json()["tasks"]
    assert (bad["task"], bad["state"], good["task"], good["spec"]["name"]) == ("bad", "no_model", "good", "good")
    if what == "spec":
        assert (bad["spec"], bad["registry"]["state"]) == (None, "degraded")
        assert "cannot be read by this release" in bad["registry"]["reason"]


def test_the_command_walks_all_pages(api: Running, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t_{number:04}" for number in range(PAGE_SIZE + 2)]
    with engine.begin() as connection:
        spec = json.dumps({**TASK, "name": "t_0000"})
        insert = "INSERT INTO tasks (name, created_at) SELECT unnest(CAST(:names AS text[])), now()"
        connection.execute(text(insert), {"names": names})
        connection.execute(
            text(
                "INSERT INTO schemas (task_id, revision, spec, row_schema, created_at) "
                "SELECT id, 1, CAST(:spec AS jsonb), 'x', now() FROM tasks WHERE name LIKE 't%'"
            ),
            {"spec": spec},
        )
    monkeypatch.setenv("MORROW_URL", api.url)
    done = CliRunner().invoke(app, ["task", "list", "--json", "--prefix", "t_"])
    assert done.exit_code == 0, done.output
    assert [one["task"] for one in json.loads(done.stdout)["tasks"]] == names
    assert "There is no such task." in CliRunner().invoke(app, ["task", "list", "--search", "zzz"]).stdout
