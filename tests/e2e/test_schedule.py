"""Real trainers and the wall clock: a window is trained once, however its boundary is met.

Windows of seconds whose events are stored ahead of time: an event counts from its own moment on.
"""

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
from mlflow import MlflowClient
from sqlalchemy import Engine, inspect, make_url

from cli.local.postgres import EmbeddedPostgres
from contracts.clock import MICROSECOND, format_moment, to_micros
from contracts.failure import STOPPED
from migrations import migrate
from store.cycles.ledger import Cycle
from store.database import metadata
from store.engine import make_engine
from store.error_cells import read_cells
from store.events.batches import Event
from store.events.writes import append_events
from store.tasks.catalog import Schema, define_task
from tests.e2e.processes import impatient_environment, process, wait_for
from tests.integration.drifting_task import cycles_of, drifting_task
from tests.servers import clone_of, database, wait_until_healthy

pytestmark = pytest.mark.story

WINDOW = timedelta(seconds=20)
MICROS = WINDOW // MICROSECOND
NUM_BEFORE, NUM_AFTER = 10, 20
ROWS = 120
NUM_SERVED = 2
# What a caller may count on, whatever a machine of tests has to do besides; an idle one answers in milliseconds.
MOST_SECONDS_P99 = 1.0
# Why a cycle releases nothing if a newer one is before it.
OVERTAKEN = {"a newer cutoff is due", "a newer cutoff is released"}


def schedule(engine: Engine, rivals: list[str]) -> Schema:
    """A task that is retrained by the clock, with events from ten windows ago to twenty from now."""
    guard = {"max_age": 2, "tolerance": 5.0, "min_rows": 100, "min_pairs": 2, "rivals": rivals}
    task = drifting_task(window="PT20S", schedule="window", guard=guard)
    now = datetime.now(UTC)
    first = task.clock.window_start(to_micros(now)) - NUM_BEFORE * MICROS
    with engine.begin() as connection:
        schema, _ = define_task(connection, task, now)
        append_events(connection, schema, list(_events(first, NUM_BEFORE + NUM_AFTER)), now)
    return schema


def _events(first: int, num_windows: int) -> Iterator[Event]:
    rng = np.random.default_rng(0)
    for k in range(num_windows * ROWS):
        at = first + k * (MICROS // ROWS)
        x = float(rng.normal())
        yield Event(f"{k}", at, at, (x,), ("ab"[k % 2],), "yes" if x > 0 else "no")


def releases_of(engine: Engine, schema: Schema) -> list[Cycle]:
    return [cycle for cycle in cycles_of(engine, schema) if cycle.state == "released"]


def methods_of(engine: Engine, schema: Schema) -> set[str]:
    """Methods that have cells in the task's matrix."""
    with engine.connect() as connection:
        cells = read_cells(connection, schema.task_id, schema.task.recipe, until=to_micros(datetime.now(UTC)))
    return {cell.method for cell in cells}


def settled(engine: Engine, schema: Schema, boundary: int) -> Cycle | None:
    """The cycle of a boundary once it is released; or overtaken by one that is, where a cycle takes a window's time."""
    cycles, is_trained = cycles_of(engine, schema), False
    for cycle in sorted(cycles, key=lambda cycle: -cycle.cutoff):
        is_trained = is_trained or cycle.state == "released"
        if cycle.cutoff == boundary and is_trained:
            return cycle if cycle.state == "released" or cycle.reason in OVERTAKEN else None
    return None


def await_boundary(schema: Schema, seconds_before: float) -> int:
    """Sleep until `seconds_before` the next boundary that is far enough away; returns the boundary."""
    boundary = schema.task.clock.window_start(to_micros(datetime.now(UTC)))
    while (left := (boundary - to_micros(datetime.now(UTC))) / 1e6 - seconds_before) < 0:
        boundary += MICROS
    time.sleep(left)
    return boundary


def lines_of(log: Path) -> list[dict[str, Any]]:
    """Structured lines of a log; tracebacks and what others print is left out."""
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


def share_of_a_core(pid: int, seconds: float) -> float:
    """What a process alone takes of one core, over these seconds."""
    watched = psutil.Process(pid)
    before = watched.cpu_times()
    time.sleep(seconds)
    after = watched.cpu_times()
    return (after.user + after.system - before.user - before.system) / seconds


def environment_for(database_url: str, mlflow_url: str, home: Path) -> dict[str, str]:
    # A lease that outlives a trainer that is stopped for seconds, and ticks that are late by then.
    given = {"MORROW_LEASE_SECONDS": "20", "MORROW_TICK_SECONDS": "0.2"}
    return impatient_environment(database_url, mlflow_url, home) | given


def test_a_store_that_restarts_across_a_boundary_costs_no_window(mlflow_url: str, tmp_path: Path) -> None:
    postgres, log = EmbeddedPostgres(tmp_path / "pg", durable=False), tmp_path / "log"
    try:
        # The link outlives the server, whose socket lies in a new folder after each start.
        url = make_url(postgres.start()).update_query_dict({"host": str(tmp_path / "pg" / "socket")})
        database_url = url.render_as_string(hide_password=False)
        migrate(database_url)
        engine = make_engine(database_url)
        schema = schedule(engine, [])
        with process("trainer", environment_for(database_url, mlflow_url, tmp_path / "home"), log):
            wait_for("the first release", lambda: releases_of(engine, schema), log)
            boundary = await_boundary(schema, seconds_before=3)
            postgres.stop()
            time.sleep(8)
            postgres.start()
            wait_for("the release of the boundary", lambda: settled(engine, schema, boundary), log)
        engine.dispose()
    finally:
        postgres.stop()
    events = [line["event"] for line in lines_of(log)]
    assert events.count("store.unreachable") == 1
    assert events.count("store.reached") == 1


def test_three_trainers_release_each_cutoff_once_and_fill_rivals_once(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    schema, logs = schedule(engine, ["baseline", "last_window", "gbdt"]), [tmp_path / f"log{k}" for k in range(3)]
    with ExitStack() as stack:
        for k, log in enumerate(logs):
            environment = environment_for(database_url, mlflow_url, tmp_path / f"home{k}")
            stack.enter_context(process("trainer", environment, log))
        wait_for("three releases", lambda: len(releases_of(engine, schema)) >= 3, logs[0], seconds=240)
        with engine.begin() as connection:  # rivals make way for cycles, which on a busy machine leave them no time
            define_task(connection, schema.task.model_copy(update={"schedule": "manual"}), datetime.now(UTC))
        wait_for("cells of every rival", lambda: len(methods_of(engine, schema)) == 5, logs[0])
    cutoffs = [cycle.cutoff for cycle in releases_of(engine, schema)]
    assert len(cutoffs) == len(set(cutoffs))
    others = Counter((cycle.state, cycle.reason) for cycle in cycles_of(engine, schema) if cycle.state != "released")
    overtaken = {(state, reason) for state in ("skipped", "held") for reason in OVERTAKEN}
    # At the end one may have been asked for and not begun.
    assert set(others) <= {*overtaken, ("failed", STOPPED.reason), ("requested", None)}
    found = MlflowClient(mlflow_url, mlflow_url).search_model_versions(f"name='{schema.task.name}'")
    versions = {str(version.version) for version in found}
    served = {str(cycle.version) for cycle in releases_of(engine, schema)}
    assert served <= versions
    # One that was overtaken between its registration and the alias has a version too, which nothing serves.
    assert len(versions - served) <= sum(count for (state, _), count in others.items() if state == "held")
    claims = Counter(line["cycle_id"] for log in logs for line in lines_of(log) if line["event"] == "cycle.claimed")
    assert set(claims.values()) == {1}


@dataclass(frozen=True)
class Retrained:
    """A task that a trainer retrains by the clock, its store, and the trainer's log."""

    database_url: str
    engine: Engine
    schema: Schema
    trainer: "subprocess.Popen[bytes]"
    log: Path


@pytest.fixture(scope="module")
def retrained(template: str, mlflow_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Retrained]:
    """A task after its first release. Tests that share it come last: it runs as long as this module."""
    folder = tmp_path_factory.mktemp("retrained")
    with database(template, how=clone_of(template)) as url:
        engine, log = make_engine(url), folder / "log"
        schema = schedule(engine, [])
        with process("trainer", environment_for(url, mlflow_url, folder / "home"), log) as trainer:
            wait_for("the first release", lambda: releases_of(engine, schema), log)
            yield Retrained(url, engine, schema, trainer, log)
        engine.dispose()


def test_predict_is_answered_in_time_while_a_trainer_retrains(
    retrained: Retrained, mlflow_url: str, tmp_path: Path
) -> None:
    """Retraining is another process's work: questions meanwhile are answered as ever."""
    environment, schema = impatient_environment(retrained.database_url, mlflow_url, tmp_path / "home"), retrained.schema
    url, at = f"http://127.0.0.1:{environment['MORROW_PORT']}", releases_of(retrained.engine, schema)[0].cutoff
    question = {"task": schema.task.name, "at": format_moment(at), "x": "0.4", "kind": "a"}
    with process("service", environment, tmp_path / "log") as api, httpx.Client(base_url=url, timeout=30) as client:
        wait_until_healthy(f"{url}/livez", api, seconds=60)
        ask = partial(client.get, "/predict", params=question)
        wait_for("the first answer", lambda: ask().status_code == 200, tmp_path / "log")
        seconds: list[float] = []
        versions: set[str] = set()
        deadline = time.monotonic() + 120
        while len(versions) < NUM_SERVED and time.monotonic() < deadline:
            began = time.monotonic()
            answer = ask()
            seconds.append(time.monotonic() - began)
            assert answer.status_code == 200, answer.text
            versions.add(answer.json()["version"])
            time.sleep(0.01)
    assert len(versions) == NUM_SERVED
    assert np.quantile(seconds, 0.99) < MOST_SECONDS_P99


def test_a_trainer_rests_between_windows_and_trains_late_where_it_was_stopped_and_says_so(retrained: Retrained) -> None:
    engine, schema, log = retrained.engine, retrained.schema, retrained.log
    await_boundary(schema, seconds_before=7)
    assert share_of_a_core(retrained.trainer.pid, seconds=4) < 0.25
    boundary = await_boundary(schema, seconds_before=1.5)
    retrained.trainer.send_signal(signal.SIGSTOP)
    time.sleep(4)
    retrained.trainer.send_signal(signal.SIGCONT)
    cycle = wait_for("the release of the boundary", lambda: settled(engine, schema, boundary), log)
    assert to_micros(cycle.requested_at) - boundary > 2_000_000
    lines = lines_of(log)
    assert max(line["seconds"] for line in lines if line["event"] == "tick.late") > 3
    requested = [line for line in lines if line["event"] == "cycle.requested"]
    assert [line["late_seconds"] > 2 for line in requested if line["cutoff"] == format_moment(boundary)] == [True]
    # The schedule is in no job store that an upgrade could fail to read.
    tables = {name for name in inspect(engine).get_table_names() if not name.startswith("predictions_")}
    assert tables == {*metadata.tables, "alembic_version"}
