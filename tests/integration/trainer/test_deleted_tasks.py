"""Deleting a task: it is gone at once, the trainer removes the rest whatever happens, and its name is free again."""

import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import anyio
import httpx
import pytest
from mlflow import MlflowClient
from mlflow.entities import ViewType
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine, func, select, update
from structlog.testing import capture_logs

from contracts.clock import format_moment
from contracts.errors import LeaseLost, NotFound
from service.models.local_copies import read_current
from store.cycles.leases import begin_step
from store.database import metadata, schemas, task_changes, tasks, touched_tasks
from store.events.writes import append_events
from store.tasks.catalog import Schema, define_task, find_task
from store.tasks.deletion import delete_events, list_deleted
from store.tasks.installation import INSTALLATION_TAG, read_installation
from store.tasks.lifecycle import begin_deletion, count_contents
from tests.integration.artefacts import CUTOFF
from tests.integration.drifting_task import claim, cutoff_after, drifting_events, drifting_task, now
from tests.integration.drifting_task import define as define_drifting
from tests.integration.make_follower import MakeFollower
from tests.integration.published_versions import define, publish_and_release, run_cycle, wait_for
from tests.integration.service_app import DEAD_REGISTRY, TASK, an_event, service_settings, serving
from tests.integration.trainer_ticks import settings_for
from trainer.scheduling.deletions import Deletions

pytestmark = pytest.mark.anyio

MOMENT = {"at": format_moment(CUTOFF), "distance": "0", "carrier": "UA"}
MakeDeletions = Callable[..., Deletions]


@pytest.fixture
async def client(database_url: str, mlflow_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(service_settings(database_url, tmp_path / "home", mlflow_url=mlflow_url)) as client:
        yield client


@pytest.fixture
def make_deletions(engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path) -> MakeDeletions:
    def make(registry: str = mlflow_url) -> Deletions:
        return Deletions(engine, settings_for(tmp_path, database_url, registry), threading.Event())

    return make


def delete(engine: Engine, name: str, actor: str = "Ada") -> None:
    with engine.begin() as connection:
        begin_deletion(connection, name, actor=actor, reason="mistyped", now=now())


def count_rows(engine: Engine, task_id: int) -> dict[str, int]:
    """Rows of a task in every table that refers to tasks, if there are any."""
    found = {}
    with engine.connect() as connection:
        for table in metadata.sorted_tables:
            if "task_id" in table.c and table not in (task_changes, touched_tasks):
                query = select(func.count()).select_from(table).where(table.c.task_id == task_id)
                found[table.name] = connection.execute(query).scalar_one()
        found["tasks"] = connection.execute(
            select(func.count()).select_from(tasks).where(tasks.c.id == task_id)
        ).scalar_one()
    return {name: number for name, number in found.items() if number}


async def test_a_deletion_asks_for_the_name_and_says_how_much_is_lost(client: httpx.AsyncClient, task: str) -> None:
    for name in ("e1", "e2"):
        await client.post("/events", params={"task": task}, json=an_event(name))
    await client.post("/events", params={"task": task}, json={"event_id": "e3"})
    await client.post(f"/tasks/{task}/cycles")
    for confirm in ({}, {"confirm": "yes"}):
        refused = await client.delete(f"/tasks/{task}", params=confirm)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "confirm")
        assert "2 events, 1 refused row, 1 cycle and 0 versions for ever" in refused.json()["detail"]
    assert (await client.get(f"/tasks/{task}")).status_code == 200
    held = (await client.get(f"/tasks/{task}/contents")).json()
    done = await client.delete(f"/tasks/{task}", params={"confirm": task, "reason": "mistyped", "actor": "Ada"})
    assert done.status_code == 202
    assert done.json()["contents"] == held
    assert (held["num_events"], held["num_rejected"], held["num_cycles"], held["num_versions"]) == (2, 1, 1, 0)
    assert (done.json()["actor"], done.json()["reason"]) == ("Ada", "mistyped")


async def test_a_deleted_task_is_gone_at_once_and_calls_without_a_task_work_again(
    client: httpx.AsyncClient, *, mlflow_url: str, engine: Engine, schema: Schema, task: str, tmp_path: Path
) -> None:
    version = publish_and_release(mlflow_url, engine, schema, tmp_path)
    assert (await client.put("/tasks/mistyped", json=TASK)).status_code == 201
    assert (await client.get("/predict", params=MOMENT)).status_code == 422
    assert (await client.post("/events", json=an_event())).status_code == 422
    assert (await client.delete("/tasks/mistyped", params={"confirm": "mistyped"})).status_code == 202
    await wait_for(client, "/predict", lambda found: found.get("version") == version, params=MOMENT)
    assert (await client.post("/events", json=an_event())).json()["created"] == 1
    again = await client.delete("/tasks/mistyped", params={"confirm": "mistyped"})
    assert (again.status_code, again.json()["type"]) == (404, "/problems/not-found")
    assert "it was deleted at " in again.json()["detail"]
    assert " by admin." in again.json()["detail"]
    for path in ("/tasks/mistyped", "/tasks/mistyped/cycles", "/pages/mistyped"):
        assert (await client.get(path)).status_code == 404
    taken = await client.put("/tasks/mistyped", json=TASK)
    assert (taken.status_code, taken.json()["type"]) == (409, "/problems/task-leaving")
    assert taken.headers["retry-after"] == "10"


async def test_no_series_of_a_deleted_task_is_left_not_even_of_a_counter(
    client: httpx.AsyncClient, *, mlflow_url: str, engine: Engine, schema: Schema, task: str, tmp_path: Path
) -> None:
    async def series() -> set[str]:
        text = (await client.get("/metrics")).raise_for_status().text
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return {sample.name for sample in samples if sample.labels.get("task") == task}

    publish_and_release(mlflow_url, engine, schema, tmp_path)
    with anyio.fail_after(10):
        while not {"morrow_model_swaps_total", "morrow_held"} <= await series():
            await anyio.sleep(0.05)
        await client.delete(f"/tasks/{task}", params={"confirm": task})
        while await series():
            await anyio.sleep(0.05)
        while (tmp_path / "home" / "models" / task).exists():
            await anyio.sleep(0.05)


async def test_everything_of_a_task_is_removed_and_a_tombstone_stays(
    client: httpx.AsyncClient,
    *,
    mlflow_url: str,
    mlflow_client: MlflowClient,
    engine: Engine,
    schema: Schema,
    task: str,
    make_deletions: MakeDeletions,
    tmp_path: Path,
) -> None:
    kept = define(engine)
    version = publish_and_release(mlflow_url, engine, schema, tmp_path)
    mlflow_client.set_model_version_tag(task, version, "morrow.manifest", "0" * 64)
    cycle = run_cycle(engine, schema, CUTOFF, "held", "suspect")
    for event_id in ("e1", "e2"):
        await client.post("/events", params={"task": task}, json=an_event(event_id))
    await client.post("/events", params={"task": kept.task.name}, json=an_event())
    await client.post(f"/tasks/{task}/erasures", json={"event_ids": ["e2"], "reason": "asked"})
    experiment = mlflow_client.get_experiment_by_name(task) or mlflow_client.get_experiment(
        mlflow_client.create_experiment(task)
    )
    mlflow_client.create_run(experiment.experiment_id, tags={"morrow.cycle": "1", "morrow.lease": str(cycle.lease)})
    fits = tmp_path / "candidates" / task / "recipe" / "0"
    fits.mkdir(parents=True)

    await client.delete(f"/tasks/{task}", params={"confirm": task, "actor": "Ada"})
    make_deletions().tick(now() + timedelta(hours=1))

    assert count_rows(engine, schema.task_id) == {}
    assert count_rows(engine, kept.task_id) == {"tasks": 1, "schemas": 1, "events": 1, "row_counts": 1}
    assert not mlflow_client.search_registered_models(f"name='{task}'")
    assert mlflow_client.get_experiment_by_name(task) is None
    assert mlflow_client.get_experiment(experiment.experiment_id).lifecycle_stage == "deleted"
    assert not fits.parents[1].exists()
    with engine.connect() as connection:
        rows = connection.execute(select(task_changes).where(task_changes.c.task_id == schema.task_id)).all()
    assert [(row.action, row.name, row.actor) for row in rows] == [
        ("delete", task, "Ada"),
        ("deleted", task, "trainer"),
    ]
    assert rows[0].contents["num_erasures"] == 1


async def test_a_new_task_of_the_same_name_starts_empty_whatever_process_has_the_old_version(
    client: httpx.AsyncClient,
    *,
    mlflow_url: str,
    engine: Engine,
    schema: Schema,
    task: str,
    make_deletions: MakeDeletions,
    make_follower: MakeFollower,
    tmp_path: Path,
) -> None:
    query = {**MOMENT, "task": task}
    version = publish_and_release(mlflow_url, engine, schema, tmp_path)
    await wait_for(client, "/predict", lambda found: found.get("version") == version, params=query)
    elsewhere = make_follower()  # a process that stands still while the task is deleted and made again
    elsewhere.poll(0)
    copy = read_current(tmp_path / "home" / "models" / task)
    assert copy is not None
    assert copy.task_id == schema.task_id

    await client.delete(f"/tasks/{task}", params={"confirm": task})
    make_deletions().tick(now() + timedelta(hours=1))
    assert (await client.put(f"/tasks/{task}", json=TASK)).status_code == 201
    await wait_for(client, "/predict", lambda found: found.get("type") == "/problems/no-model", params=query)
    assert elsewhere.find(task).version == version
    elsewhere.poll(1)
    assert task not in elsewhere.forecasters
    status = (await client.get(f"/tasks/{task}")).json()
    assert (status["revision"], status["num_events"], status["cycles"], status["champion"]) == (1, 0, [], None)

    with engine.connect() as connection:
        newer = find_task(connection, task)
    assert newer.task_id != schema.task_id
    again = publish_and_release(mlflow_url, engine, newer, tmp_path, bias=2.0)
    await wait_for(client, "/predict", lambda found: found.get("version") == again, params=query)


def test_a_restart_does_not_answer_from_the_copy_of_a_deleted_task(
    mlflow_url: str,
    *,
    engine: Engine,
    schema: Schema,
    task: str,
    make_deletions: MakeDeletions,
    make_follower: MakeFollower,
    tmp_path: Path,
) -> None:
    publish_and_release(mlflow_url, engine, schema, tmp_path)
    make_follower().poll(0)
    delete(engine, task)
    make_deletions().tick(now() + timedelta(hours=1))
    with engine.begin() as connection:
        define_task(connection, schema.task, now())
    restarted = make_follower()
    assert task in restarted.forecasters
    restarted.poll(0)
    assert task not in restarted.forecasters
    assert not (tmp_path / "home" / "models" / task / "current.json").exists()


def test_a_database_that_merely_lacks_a_task_takes_no_version_away(
    mlflow_url: str, *, engine: Engine, schema: Schema, task: str, make_follower: MakeFollower, tmp_path: Path
) -> None:
    publish_and_release(mlflow_url, engine, schema, tmp_path)
    make_follower().poll(0)
    with engine.begin() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())
    restarted = make_follower()
    restarted.poll(0)
    assert task in restarted.forecasters


def test_a_removal_that_was_killed_goes_on_where_it_was(engine: Engine, make_deletions: MakeDeletions) -> None:
    schema = define_drifting(engine, drifting_task(), 1)
    delete(engine, schema.task.name)
    with engine.begin() as connection:
        batch = delete_events(connection, schema.task_id, size=3)
    assert (batch.num_rows, batch.num_current) == (3, 3)
    assert count_rows(engine, schema.task_id)["events"] > 0
    make_deletions().tick(now())
    make_deletions().tick(now())
    assert count_rows(engine, schema.task_id) == {}
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(task_changes)).scalar_one() == 2


def test_without_mlflow_the_rows_go_the_name_stays_taken_and_a_later_look_frees_it(
    engine: Engine, schema: Schema, task: str, make_deletions: MakeDeletions, caplog: pytest.LogCaptureFixture
) -> None:
    delete(engine, task)
    waiting = make_deletions(DEAD_REGISTRY)
    waiting.tick(now())
    assert count_rows(engine, schema.task_id).keys() == {"tasks", "schemas"}
    with engine.connect() as connection:
        assert [one.name for one in list_deleted(connection)] == [task]
    make_deletions().tick(now())
    assert count_rows(engine, schema.task_id) == {}


def test_two_trainers_remove_a_task_once(engine: Engine, make_deletions: MakeDeletions) -> None:
    schema = define_drifting(engine, drifting_task(), 2)
    delete(engine, schema.task.name)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda one: one.tick(now()), [make_deletions(), make_deletions()]))
    make_deletions().tick(now())
    assert count_rows(engine, schema.task_id) == {}
    with engine.connect() as connection:
        ends = select(func.count()).select_from(task_changes).where(task_changes.c.action == "deleted")
        assert connection.execute(ends).scalar_one() == 1


def test_rows_of_a_writer_that_began_before_the_deletion_are_removed_too(
    engine: Engine, make_deletions: MakeDeletions
) -> None:
    schema = define_drifting(engine, drifting_task(), 0)
    with engine.connect() as writer, ThreadPoolExecutor(1) as threads:
        transaction = writer.begin()
        append_events(writer, schema, list(drifting_events(0, 1)), now())
        delete(engine, schema.task.name)
        removal = threads.submit(make_deletions().tick, now())
        with pytest.raises(TimeoutError):
            removal.result(timeout=1)  # the last step waits for the writer
        transaction.commit()
        removal.result(timeout=20)
    assert count_rows(engine, schema.task_id)["events"] > 0
    make_deletions().tick(now())
    assert count_rows(engine, schema.task_id) == {}


async def test_events_that_arrive_during_the_removal_are_refused_as_of_no_task(
    client: httpx.AsyncClient, engine: Engine, task: str, make_deletions: MakeDeletions
) -> None:
    answers: list[httpx.Response] = []

    async def send(number: int) -> None:
        for k in range(20):
            answers.append(await client.post("/events", params={"task": task}, json=an_event(f"{number}-{k}")))

    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(send, number)
        await anyio.sleep(0.05)
        await client.delete(f"/tasks/{task}", params={"confirm": task})
        for _ in range(5):
            await anyio.to_thread.run_sync(make_deletions().tick, now())
    await anyio.to_thread.run_sync(make_deletions().tick, now())
    assert {answer.status_code for answer in answers} <= {200, 404}
    with engine.connect() as connection, pytest.raises(NotFound, match="was deleted"):
        find_task(connection, task)


def test_a_running_cycle_loses_its_lease_and_the_removal_waits_until_its_process_is_gone(
    engine: Engine, make_deletions: MakeDeletions
) -> None:
    schema = define_drifting(engine, drifting_task(), 2)
    cycle = claim(engine, schema, cutoff_after(2))
    delete(engine, schema.task.name)
    with engine.begin() as connection, pytest.raises(LeaseLost):
        begin_step(connection, cycle, "register", now(), timedelta(minutes=1))
    make_deletions().tick(now())
    assert "cycles" in count_rows(engine, schema.task_id)


def test_a_model_that_others_use_too_keeps_their_versions_and_runs(
    mlflow_url: str,
    *,
    mlflow_client: MlflowClient,
    engine: Engine,
    schema: Schema,
    task: str,
    make_deletions: MakeDeletions,
    tmp_path: Path,
) -> None:
    theirs = publish_and_release(mlflow_url, engine, schema, tmp_path)  # without our tags
    known = mlflow_client.get_experiment_by_name(task)
    experiment = mlflow_client.create_experiment(task) if known is None else known.experiment_id
    run = mlflow_client.create_run(experiment)
    with engine.begin() as connection:
        mark = read_installation(connection)
    ours = mlflow_client.create_run(experiment, tags={"morrow.cycle": "3", INSTALLATION_TAG: mark})
    delete(engine, task)
    make_deletions().tick(now())
    assert count_rows(engine, schema.task_id) == {}
    assert mlflow_client.get_model_version(task, theirs).aliases == []
    left = mlflow_client.search_runs([experiment], run_view_type=ViewType.ACTIVE_ONLY)
    assert [one.info.run_id for one in left] == [run.info.run_id]
    assert mlflow_client.get_run(ours.info.run_id).info.lifecycle_stage == "deleted"


def test_the_log_says_how_much_a_deletion_removed_also_if_a_kill_interrupted_it(
    engine: Engine, make_deletions: MakeDeletions
) -> None:
    schema = define_drifting(engine, drifting_task(), 2)
    with engine.begin() as connection:
        num_events = count_contents(connection, schema.task_id).num_events
    delete(engine, schema.task.name)
    with engine.begin() as connection:
        delete_events(connection, schema.task_id)  # and the trainer is killed
    with capture_logs() as lines:
        make_deletions().tick(now())
    (line,) = [one for one in lines if one["event"] == "task.deleted"]
    assert (line["num_events"], line["num_revisions"]) == (num_events, num_events)
    assert num_events > 0


async def test_a_task_whose_spec_cannot_be_read_can_be_deleted(
    client: httpx.AsyncClient, engine: Engine, schema: Schema, task: str, make_deletions: MakeDeletions
) -> None:
    with engine.begin() as connection:
        connection.execute(update(schemas).where(schemas.c.id == schema.schema_id).values(spec={"name": task}))
    assert (await client.get(f"/tasks/{task}")).status_code == 503
    assert (await client.get(f"/tasks/{task}/contents")).json()["num_events"] == 0
    for move in ("pause", "archive"):
        assert (await client.post(f"/tasks/{task}/{move}")).status_code == 200
    assert (await client.delete(f"/tasks/{task}", params={"confirm": task})).status_code == 202
    make_deletions().tick(now())
    assert (await client.put(f"/tasks/{task}", json=TASK)).status_code == 201
