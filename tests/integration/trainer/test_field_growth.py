"""The field report on growth: what thousands of cycles leave in MLflow and in the store slows no look and cuts no list.

The runs are those of a task with five thousand windows behind it. They are copied in MLflow's own database, for which
cycles would take weeks; a copy has twenty figures, not thousands, since none of these looks reads figures.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import median

import httpx
import pytest
from sqlalchemy import Engine, text

from store.tasks.catalog import Schema
from tests.integration.artefacts import publish, write_version
from tests.integration.make_follower import MakeFollower, ask
from tests.integration.service_app import service_settings, serving
from trainer.tracking.registry import Registry
from trainer.tracking.retention import plan
from trainer.tracking.runs import OpenRun
from trainer.tracking.tags import CUTOFF_TAG, CYCLE_TAG, LEASE_TAG

NUM_RUNS, NUM_FIGURES, NUM_KEPT = 5000, 20, 100
NUM_VERSIONS = 1500
NUM_EXPERIMENTS = 1001
# A look takes milliseconds; a busy machine makes it many more.
MOST_POLL_SECONDS = 1.0


def copy_rows(database: sqlite3.Connection, table: str, key: str, value: str, others: Iterator[str]) -> None:
    """Copy the rows in which a column has this value, once for each other value of it."""
    names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    selected = ", ".join(f":{key}" if name == key else name for name in names)
    database.executemany(
        f"INSERT INTO {table} ({', '.join(names)}) SELECT {selected} FROM {table} WHERE {key} = '{value}'",  # noqa: S608
        ({key: other} for other in others),
    )


@pytest.fixture
def grown(registry: Registry, mlflow_folder: Path, mlflow_url: str, task: str, tmp_path: Path) -> str:
    """A task's open run among thousands of ended ones, and a champion among many versions."""
    tags = {CYCLE_TAG: "7", LEASE_TAG: "mine", CUTOFF_TAG: "2026-01-01T00:00:00Z"}
    ended, still_open = (registry.start_run(task, "a cycle", tags) for _ in range(2))
    registry.log(ended, [("loss", 0.5, step, 1_767_225_600_000) for step in range(NUM_FIGURES)], {"width": "8"}, {})
    registry.end_run(ended, "FINISHED", None)
    publish(mlflow_url, task, write_version(tmp_path / "one", task=task))
    with closing(sqlite3.connect(mlflow_folder / "mlflow.db", timeout=60)) as database, database:
        for table in ("runs", "tags", "params", "metrics", "latest_metrics"):
            copy_rows(database, table, "run_uuid", ended, (f"{k:032x}" for k in range(1, NUM_RUNS)))
        names = [row[1] for row in database.execute("PRAGMA table_info(model_versions)")]
        selected = ", ".join({"version": ":version", "run_id": ":run_id"}.get(name, name) for name in names)
        database.executemany(
            f"INSERT INTO model_versions ({', '.join(names)}) "  # noqa: S608
            f"SELECT {selected} FROM model_versions WHERE name = '{task}' AND version = 1",
            ({"version": k, "run_id": f"{k:032x}"} for k in range(2, NUM_VERSIONS + 1)),
        )
    return still_open


def test_thousands_of_runs_and_versions_slow_no_look_at_the_alias_and_are_pruned_whole(
    grown: str, registry: Registry, make_follower: MakeFollower, task: str
) -> None:
    follower = make_follower()
    follower.poll(0)
    assert ask(follower, task).version == "1"
    assert median(seconds_of(lambda: follower.poll(1)) for _ in range(7)) < MOST_POLL_SECONDS
    assert registry.open_runs(task) == [OpenRun(grown, 7, "mine")]

    runs, registered = list(registry.past_runs(task)), registry.registered_runs(task)
    assert len({run.run_id for run in runs}) == len(runs) == NUM_RUNS + 1
    assert len(registered) == NUM_VERSIONS - 1
    deletable = plan(task, runs, registered, NUM_KEPT).deletable
    assert NUM_RUNS - NUM_VERSIONS - NUM_KEPT <= len(deletable) <= NUM_RUNS + 1 - NUM_VERSIONS
    assert {run.run_id for run in deletable}.isdisjoint({*registered, grown})


@pytest.fixture
def crowded(registry: Registry, mlflow_folder: Path, task: str) -> Iterator[str]:
    """A failed run of a task whose experiment is older than more others than MLflow returns at once."""
    run_id = registry.start_run(task, "a cycle", {CYCLE_TAG: "7", LEASE_TAG: "mine"})
    registry.end_run(run_id, "FAILED", None)
    names = [f"another_{k}" for k in range(NUM_EXPERIMENTS)]
    later = round(time.time() * 1000) + 3_600_000
    with closing(sqlite3.connect(mlflow_folder / "mlflow.db", timeout=60)) as database:
        with database:
            database.executemany(
                "INSERT INTO experiments (name, artifact_location, lifecycle_stage, creation_time, last_update_time) "
                "SELECT ?, artifact_location, lifecycle_stage, ?, ? FROM experiments WHERE name = ?",
                ((name, later, later, task) for name in names),
            )
        yield run_id
        with database:
            database.execute("DELETE FROM experiments WHERE name LIKE 'another\\_%' ESCAPE '\\'")


def test_a_task_among_more_experiments_than_a_page_holds_is_pruned_and_swept(
    crowded: str, registry: Registry, task: str
) -> None:
    known = registry.experiments()
    assert task in known
    assert len([name for name in known if name.startswith("another_")]) == NUM_EXPERIMENTS
    assert [run.run_id for run in registry.ended_runs([task])] == [crowded]


def seconds_of(look: Callable[[], None]) -> float:
    started = time.monotonic()
    look()
    return time.monotonic() - started


@pytest.mark.anyio
async def test_thousands_of_cycles_are_shown_a_bounded_number_at_a_time(
    engine: Engine, database_url: str, schema: Schema, tmp_path: Path
) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("""
                INSERT INTO cycles (task_id, cutoff, attempt, state, requested_at, started_at, ended_at, reason)
                SELECT :task_id, at, 1, 'skipped', at, at, at, 'too few rows'
                FROM generate_series(1, :num_cycles) AS k,
                     LATERAL (SELECT timestamptz '2026-01-01T00:00:00Z' - k * interval '1 hour' AS at) AS moments
            """),
            {"task_id": schema.task_id, "num_cycles": NUM_RUNS},
        )
    name = schema.task.name
    async with serving(service_settings(database_url, tmp_path)) as client:
        cycles = (await client.get(f"/tasks/{name}/cycles")).json()["cycles"]
        assert len(cycles) == 1000
        assert (cycles[0]["cutoff"], cycles[1]["cutoff"]) == ("2025-12-31T23:00:00Z", "2025-12-31T22:00:00Z")
        status = await client.get(f"/tasks/{name}")
        assert 0 < len(status.json()["cycles"]) <= 1000
        page = await client.get(f"/pages/{name}")
        assert page.status_code == 200
        assert len(page.content) < 1_000_000
        assert httpx.codes.is_success((await client.get("/tasks")).status_code)
