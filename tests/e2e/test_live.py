"""The real trainer scores what is posted to the real API and closes the horizon; killed -9, it does nothing twice."""

import os
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import Engine, select

from contracts.clock import format_moment
from store.database import error_cells
from store.events.batches import Event
from store.releases import Release, list_releases
from store.tasks.catalog import Schema
from tests.e2e.processes import impatient_environment, process, released, request, wait_for
from tests.integration.drifting_task import cutoff_after, define, drifting_events, drifting_task
from tests.servers import wait_until_healthy

FLIP = {"yes": "no", "no": "yes"}


def body(event: Event, *, flipped: bool) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "at": format_moment(event.at),
        "features": {"x": event.numbers[0], "kind": event.categories[0]},
        "label": FLIP[event.label] if flipped else event.label,
    }


def test_posted_labels_close_the_horizon_once_and_for_all_workers(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    environment = impatient_environment(database_url, mlflow_url, tmp_path / "home")
    log, url = tmp_path / "log", f"http://127.0.0.1:{environment['MORROW_PORT']}"
    task = drifting_task(guard={"max_age": 3, "tolerance": 5.0, "min_rows": 100, "rivals": []})
    schema = define(engine, task, 8)

    def status(num_windows: float) -> int:
        at = format_moment(cutoff_after(0) + round(num_windows * task.clock.window))
        query = {"task": task.name, "at": at, "x": "0.5", "kind": "a"}
        return httpx.get(f"{url}/predict", params=query, timeout=30).status_code

    def post(window: int, *, flipped: bool, rows_of_it: slice = slice(None)) -> None:
        rows = [body(event, flipped=flipped) for event in list(drifting_events(window, window + 1))[rows_of_it]]
        httpx.post(f"{url}/events", params={"task": task.name}, json=rows, timeout=60).raise_for_status()

    with process("service", environment, log) as api:
        wait_until_healthy(f"{url}/livez", api, seconds=60)
        with process("trainer", environment, log) as trainer:
            request(engine, schema, cutoff_after(8))
            wait_for("the release", lambda: released(engine, schema, cutoff_after(8)), log)
            wait_for("the first answer", lambda: status(9.5) == 200, log)
            post(8, flipped=False)
            post(9, flipped=True)
            wait_for("the closing", lambda: status(9.5) == 422, log, seconds=30)
            assert status(8.5) == 200
            os.kill(trainer.pid, signal.SIGKILL)
            trainer.wait()
        scored, rows = when_scored(engine, schema), rows_of(engine, schema)
        post(10, flipped=False, rows_of_it=slice(100))
        with process("trainer", environment, log):
            wait_for("a look of the next trainer", lambda: len(when_scored(engine, schema)) > len(scored), log)
            first = when_scored(engine, schema)
            post(10, flipped=False, rows_of_it=slice(100, None))
            wait_for("its next look", lambda: when_scored(engine, schema) != first, log)
        assert {key: when for key, when in when_scored(engine, schema).items() if key in scored} == scored
        assert rows_of(engine, schema) == rows
        assert [row.action for row in rows] == ["close", "release"]
    assert log.read_text().count('"horizon.closed"') == 1


def when_scored(engine: Engine, schema: Schema) -> dict[tuple[Any, ...], datetime]:
    """(origin, window, method) -> when."""
    columns = (error_cells.c.origin, error_cells.c.window, error_cells.c.method, error_cells.c.scored_at)
    with engine.connect() as connection:
        found = connection.execute(select(*columns).where(error_cells.c.task_id == schema.task_id))
        return {tuple(row[:3]): row[3] for row in found}


def rows_of(engine: Engine, schema: Schema) -> list[Release]:
    with engine.connect() as connection:
        return list_releases(connection, schema.task_id)
