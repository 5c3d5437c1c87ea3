"""What a request for a cycle, a rollback or an override says of the state that it meets."""

import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from sqlalchemy import Engine

from contracts.clock import MICROSECOND, format_moment, to_micros
from contracts.failure import Failure, FailureCode
from store.cycles.leases import end_cycle, expire_leases
from store.cycles.ledger import State, list_cycles
from store.error_cells import Cell, record_cells
from store.events.batches import Event
from store.events.writes import append_events
from store.tasks.catalog import Schema, find_task
from tests.integration.api_process import Running
from tests.integration.artefacts import CUTOFF, WEEK, place_version
from tests.integration.drifting_task import now
from tests.integration.published_versions import LEASE, NOW, define, note, publish_and_release, run_cycle
from tests.integration.service_app import TASK, service_settings, serving

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(database_url: str, mlflow_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(service_settings(database_url, tmp_path / "home", mlflow_url=mlflow_url)) as client:
        yield client


def append(engine: Engine, schema: Schema, moments: list[int]) -> None:
    with engine.begin() as connection:
        rows = [Event(f"e{at}", at, at, (1.0, 2.0), ("UA",), "late") for at in moments]
        append_events(connection, schema, rows, NOW)


async def request(client: httpx.AsyncClient, schema: Schema, **body: Any) -> httpx.Response:
    return await client.post(f"/tasks/{schema.task.name}/cycles", json=body)


async def test_without_a_moment_a_stream_that_ended_is_trained_as_of_its_end_and_the_answer_says_so(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    boundary = schema.task.clock.window_start(to_micros(now()))
    end = boundary - 725 * WEEK
    append(engine, schema, [end - 2 * WEEK, end - 1])
    answer = await request(client, schema)
    # The task's labels are due after a day.
    assert (answer.status_code, answer.json()["cutoff"]) == (202, format_moment(end + WEEK))
    assert answer.json()["note"] == (
        "the newest 724 windows hold no event, so the cutoff is the end of the newest window with events"
    )
    named = await request(client, schema, as_of=format_moment(boundary))
    assert (named.json()["cutoff"], named.json()["note"]) == (format_moment(boundary), None)


async def test_a_stream_that_runs_is_trained_as_of_now(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    boundary = schema.task.clock.window_start(to_micros(now()))
    for moments in ([], [boundary - WEEK]):
        append(engine, schema, moments)
        answer = (await request(client, schema)).json()
        assert (answer["cutoff"], answer["note"]) == (format_moment(boundary), None)


async def test_after_a_release_nothing_older_is_asked_for(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    append(engine, schema, [CUTOFF - 30 * WEEK])
    run_cycle(engine, schema, CUTOFF, "released", version="3")
    refused = await request(client, schema)
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/conflict")
    assert "already, as version 3" in refused.json()["detail"]
    assert '"again": true' in refused.json()["detail"]
    assert refused.json()["title"] == "The present state does not allow this"
    again = await request(client, schema, again=True)
    assert (again.status_code, again.json()["cutoff"], again.json()["attempt"]) == (202, format_moment(CUTOFF), 2)
    first = (await client.get(f"/tasks/{schema.task.name}/cycles")).json()["cycles"][1]
    assert (again.json()["replaces"], first["replaces"]) == (first["id"], None)


async def test_a_refusal_counts_the_new_rows_that_no_fit_of_this_cutoff_reads(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    boundary = schema.task.clock.window_start(to_micros(now()))
    run_cycle(engine, schema, boundary, "released", version="3")
    append(engine, schema, [boundary - 2 * WEEK])
    with engine.begin() as connection:
        moments = [boundary + 1, boundary + 2, boundary - WEEK]
        rows = [Event(f"e{at}", at, at, (1.0, 2.0), ("UA",), "late") for at in moments]
        append_events(connection, schema, rows, NOW + timedelta(hours=1))
    said = (await request(client, schema)).json()["detail"]
    assert said.startswith(
        f"2 of the 3 new rows are dated after the cutoff {format_moment(boundary)}, and can be trained from "
        f"{format_moment(boundary + WEEK)} on. --again takes in only the other new row. This cutoff has been released"
    )


async def test_another_recipe_needs_no_wish(client: httpx.AsyncClient, engine: Engine, schema: Schema) -> None:
    verdict = {"passed": True, "recipe": schema.task.recipe}
    run_cycle(engine, schema, CUTOFF, "released", version="3", verdict=verdict)
    at = format_moment(CUTOFF)
    assert (await request(client, schema, as_of=at)).status_code == 409
    spec = schema.task.model_dump(mode="json")
    await client.put(f"/tasks/{schema.task.name}", json=spec | {"guard": spec["guard"] | {"max_age": 5}})
    assert (await request(client, schema, as_of=at)).status_code == 409
    await client.put(f"/tasks/{schema.task.name}", json=spec | {"training": {"width": 7}})
    assert (await request(client, schema, as_of=at)).status_code == 202


@pytest.mark.parametrize("again", [1, "true", "yes", [], 0.0])
async def test_a_wish_is_true_or_false(client: httpx.AsyncClient, schema: Schema, again: object) -> None:
    refused = await request(client, schema, again=again)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "again")


async def test_a_rollback_without_a_former_champion_names_the_state_and_the_way_out(
    client: httpx.AsyncClient, mlflow_url: str, engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    async def roll_back() -> tuple[int, str]:
        answer = await client.post(f"/tasks/{schema.task.name}/rollback", json={"reason": "a test"})
        return answer.status_code, answer.json().get("detail", "")

    status, said = await roll_back()
    assert (status, "No version has been released yet" in said) == (409, True)
    first = publish_and_release(mlflow_url, engine, schema, tmp_path)
    status, said = await roll_back()
    assert (status, f"Version {first} is the champion, and no version was champion before" in said) == (409, True)
    second = publish_and_release(mlflow_url, engine, schema, tmp_path)
    assert (await roll_back())[0] == 200
    status, said = await roll_back()
    assert (status, said) == (
        409,
        f"Version {first} is the champion, and no version was champion before it was released. Name the version that "
        f"must answer, with --version or as version: {second}.",
    )


async def test_an_override_that_changes_nothing_says_so_and_what_to_pass(
    database_url: str, engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    place_version(tmp_path, "7", task=schema.task.name)
    note(engine, schema, "7", "release")
    async with serving(service_settings(database_url, tmp_path)) as client:
        path, reason = f"/tasks/{schema.task.name}/override", {"reason": "a test"}
        same = (await client.post(path, json=reason)).json()
        assert same["valid_until"] == format_moment(CUTOFF + 2 * WEEK)
        assert same["note"] == (
            f"version 7 was valid until {format_moment(CUTOFF + 2 * WEEK)} already, so its bound has not changed: pass "
            f"another valid_until, at most {format_moment(CUTOFF + 4 * WEEK)}"
        )
        changed = await client.post(path, json={**reason, "valid_until": format_moment(CUTOFF + 3 * WEEK)})
        assert changed.json()["note"] is None


async def test_a_release_after_a_held_cycle_of_a_newer_cutoff_ends_the_alarm(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    run_cycle(engine, schema, CUTOFF + 9 * WEEK, "held", "no age is validated")
    status = (await client.get(f"/tasks/{schema.task.name}")).json()
    assert status["cycles"][0]["state"] == "held"
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE cycles SET ended_at = ended_at - interval '1 hour'")
    run_cycle(engine, schema, CUTOFF, "released", version="3")
    page = (await client.get(f"/pages/{schema.task.name}")).text
    assert "was held" not in page


async def test_the_matrix_of_a_version_is_shown_however_long_ago_its_windows_are(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    task = schema.task
    run_cycle(engine, schema, CUTOFF + 700 * WEEK, "held", "no event of the newest 700 windows is known")
    cells = [Cell(CUTOFF - k * WEEK, CUTOFF - k * WEEK, task.training.method, 10, 0.3123, 0.1) for k in range(20)]
    with engine.begin() as connection:
        record_cells(connection, schema.task_id, task.recipe, cells, NOW)
    page = (await client.get(f"/pages/{schema.task.name}")).text
    assert page.count("0.3123") >= 8


async def test_the_page_of_the_matrix_leads_to_older_windows_and_back(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    task = schema.task
    run_cycle(engine, schema, CUTOFF, "held", "the errors are too large")
    cells = [
        Cell(CUTOFF - k * WEEK, CUTOFF - k * WEEK, task.training.method, 10, 0.1 + k / 1000, 0.1) for k in range(200)
    ]
    with engine.begin() as connection:
        record_cells(connection, schema.task_id, task.recipe, cells, NOW)
    path, seen = f"/pages/{task.name}", set[float]()
    while True:
        page = (await client.get(path)).text
        table = page[page.index('class="heat"') :]
        seen |= set(map(float, re.findall(r"<td class=\"heat-[^>]*>([0-9.]+)</td>", table)))
        assert ("Newest windows" in page) == ("?" in path)
        if (older := re.search(r'href="(pages/[^"]+)#matrix-title">Earlier windows', page)) is None:
            break
        path = f"/{older[1]}"
    assert seen == {round(0.1 + k / 1000, 3) for k in range(200)}
    answer = await client.get(f"/pages/{task.name}", params={"matrix": "yesterday"})
    assert answer.status_code == 422


async def test_the_status_warns_of_far_off_events_and_far_labels_and_counts_them(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    schema = define(engine, target={"name": "delay", "kind": "regression"})
    hour = timedelta(hours=1) // MICROSECOND
    moments = [-62_135_596_800_000_000, 0, *(CUTOFF - k * hour for k in range(400))]
    with engine.begin() as connection:
        rows = [
            Event(f"e{k}", at, at, (1.0, 2.0), ("UA",), "-9999" if k % 50 == 7 else str(k % 29))
            for k, at in enumerate(moments)
        ]
        append_events(connection, schema, rows, NOW)
    status = (await client.get(f"/tasks/{schema.task.name}")).json()
    moment, label = (warning for warning in status["warnings"] if " far " in warning)
    assert moment.startswith("2 events are dated far before the others, the outermost at 0001-01-01T00:00:00Z (e0, e1)")
    assert f"morrow events erase {schema.task.name}" in moment
    assert label.startswith("8 of the newest 402 labels lie far outside the others, which are from 0 to 28: -9999.")


async def test_a_requested_cycle_is_told_which_cycle_of_another_task_runs_before_it(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    other = define(engine)
    path = f"/tasks/{schema.task.name}/cycles"
    running = run_cycle(engine, other, CUTOFF, "running", step="fit")
    assert (await client.get(path)).json()["waits_for"] == []  # nothing of this task waits
    await request(client, schema, as_of=format_moment(CUTOFF))
    (found,) = (await client.get(path)).json()["waits_for"]
    assert (found["task"], found["id"], found["step"]) == (other.task.name, running.cycle_id, "fit")
    assert found["started_at"] is not None


async def test_a_request_says_that_the_running_cycle_trains_an_earlier_revision(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    name, at = schema.task.name, format_moment(CUTOFF)
    running = run_cycle(engine, schema, CUTOFF, "running", step="fit")
    asked = (await request(client, schema, as_of=at)).json()
    assert (asked["id"], asked["note"]) == (running.cycle_id, None)
    asked = (await request(client, schema, as_of=at, again=True)).json()
    assert asked["note"].startswith("this cycle is running already, and no other is added")
    spec = schema.task.model_dump(mode="json")
    await client.put(f"/tasks/{name}", json=spec | {"training": {"width": 7}})
    for again in (False, True):
        asked = (await request(client, schema, as_of=at, again=again)).json()
        assert (asked["id"], asked["followed"]) == (running.cycle_id, True)
        assert asked["note"] == (
            "this cycle was running when revision 2 was stored, and trains the revision before; another attempt at the "
            "same cutoff follows when it has ended"
        )


@pytest.mark.parametrize("end", ["released", "held", "failed", "lease"])
async def test_an_attempt_for_the_newest_revision_follows_a_running_one_of_an_earlier_revision(
    client: httpx.AsyncClient, engine: Engine, schema: Schema, end: str
) -> None:
    name, at = schema.task.name, format_moment(CUTOFF)
    running = run_cycle(engine, schema, CUTOFF, "running", step="fit")
    spec = schema.task.model_dump(mode="json")
    await client.put(f"/tasks/{name}", json=spec | {"training": {"width": 7}})
    assert (await request(client, schema, as_of=at)).json()["followed"]
    with engine.begin() as connection:
        if end == "lease":
            expire_leases(connection, NOW + LEASE)
        else:
            failure = None if end == "released" else Failure(FailureCode.CYCLE_ERROR, "a test")
            version = "1" if end == "released" else None
            end_cycle(connection, running, cast(State, end), failure, NOW, version=version)
    second, first = (await client.get(f"/tasks/{name}/cycles")).json()["cycles"]
    assert (first["state"], second["state"]) == ("failed" if end == "lease" else end, "requested")
    assert (second["attempt"], second["followed"]) == (2, False)
    assert second["replaces"] == (first["id"] if end == "released" else None)
    assert (await request(client, schema, as_of=at)).json()["id"] == second["id"]
    run_cycle(engine, schema, CUTOFF, "released", version="2")
    assert len((await client.get(f"/tasks/{name}/cycles")).json()["cycles"]) == 2


async def test_a_request_during_a_renaming_says_what_the_cycle_waits_for(
    client: httpx.AsyncClient, engine: Engine, schema: Schema
) -> None:
    name = schema.task.name
    run_cycle(engine, schema, CUTOFF, "released", version="1", verdict={"passed": True, "recipe": "another"})
    renamed = await client.post(f"/tasks/{name}/rename", json={"name": f"{name}_new"})
    assert renamed.status_code == 200, renamed.text
    asked = await client.post(f"/tasks/{name}_new/cycles", json={"as_of": format_moment(CUTOFF)})
    assert (asked.status_code, asked.json()["note"]) == (
        202,
        f"no cycle of {name}_new can begin before a trainer has renamed it in MLflow, where it is still called {name}",
    )


def test_the_command_waits_for_the_attempt_that_follows(engine: Engine, api: Running) -> None:
    at = format_moment(CUTOFF)
    with engine.connect() as connection:
        schema = find_task(connection, "flights")
    first = run_cycle(engine, schema, CUTOFF, "running", step="fit")
    changed = httpx.put(f"{api.url}/tasks/flights", json={**TASK, "training": {"width": 7}})
    assert changed.status_code == 200, changed.text
    command = [sys.executable, "-m", "cli.main", "cycle", "flights", "--as-of", at, "--url", api.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with engine.connect() as connection:
            while not list_cycles(connection, schema.task_id)[0].followed:
                connection.rollback()
                time.sleep(0.1)
        with engine.begin() as connection:
            end_cycle(connection, first, "released", None, NOW, version="1")
        run_cycle(engine, schema, CUTOFF, "held", "too few windows")
        said, noted = process.communicate(timeout=60)
    assert (process.returncode, said.strip()) == (1, f"Cycle as of {at}: held: too few windows")
    assert "another attempt at the same cutoff follows" in noted
    assert "once more" not in noted
