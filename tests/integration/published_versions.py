"""Released versions for tests: published in MLflow, and written down in `releases` as a cycle would."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import httpx
from sqlalchemy import Engine

from contracts.calibration import Calibration
from contracts.clock import format_moment
from contracts.failure import Failure, FailureCode
from contracts.task import Task
from contracts.verdict import RowFigures, decode_row, decode_verdict
from store.cycles.leases import begin_step, claim_cycle, end_cycle
from store.cycles.ledger import Cycle, State
from store.cycles.requests import request_cycle
from store.releases import Action, Release, list_releases, record_release
from store.tasks.catalog import Schema, define_task
from tests.integration.artefacts import CUTOFF, WEEK, publish, write_version
from tests.integration.service_app import TASK

NOW = datetime(2026, 2, 1, tzinfo=UTC)
LEASE = timedelta(hours=1)


def define(engine: Engine, **changes: Any) -> Schema:
    """A task of its own name, for the MLflow server is shared."""
    name = f"flights_{uuid4().hex[:8]}"
    with engine.begin() as connection:
        return define_task(connection, Task.model_validate({**TASK, "name": name, **changes}), NOW)[0]


def publish_and_release(
    mlflow_url: str, engine: Engine, schema: Schema, folder: Path, *, horizon: int = 2, **how: Any
) -> str:
    """A new champion, and its row."""
    task = schema.task.name
    version = publish(mlflow_url, task, write_version(folder / uuid4().hex, task=task, horizon=horizon, **how))
    note(engine, schema, version, "release", valid_until=CUTOFF + horizon * WEEK)
    return version


def note(
    engine: Engine,
    schema: Schema,
    version: str,
    action: Action,
    *,
    valid_until: int = CUTOFF + 2 * WEEK,
    reason: str = "test",
    now: datetime = NOW,
    calibration: Calibration | None = None,
    verdict: dict[str, Any] | RowFigures | None = None,
    cutoff: int = CUTOFF,
) -> None:
    """One row; a release says of which cutoff it is and how many windows it promises."""
    horizon = (valid_until - cutoff) // schema.task.clock.window
    promise = {"cutoff": format_moment(cutoff), "recipe": schema.task.recipe, "horizon": horizon}
    figures = verdict or (promise if action == "release" else None)
    with engine.begin() as connection:
        record_release(
            connection,
            schema.task_id,
            version,
            action=action,
            valid_until=valid_until,
            calibration=calibration,
            actor="trainer",
            reason=reason,
            now=now,
            verdict=decode_row(action, figures) if isinstance(figures, dict) else figures,
        )


def run_cycle(
    engine: Engine, schema: Schema, cutoff: int, state: State, reason: str | None = None, **found: Any
) -> Cycle:
    """An attempt at a cutoff that ended so; `running` stays at the step given. A verdict is given as JSON."""
    if "verdict" in found:
        found["verdict"] = decode_verdict(found["verdict"])
    code = FailureCode.CYCLE_ERROR if state == "failed" else FailureCode.RULE_BROKEN
    failure = None if reason is None else Failure(code, reason)
    with engine.begin() as connection:
        asked = request_cycle(connection, schema.task_id, cutoff, NOW)
        if state == "requested":
            return asked
        cycle = claim_cycle(connection, uuid4().hex, NOW, LEASE)
        assert cycle is not None
        assert cycle.cycle_id == asked.cycle_id
        if state == "running":
            begin_step(connection, cycle, found.pop("step"), NOW, LEASE, **found)
        else:
            end_cycle(connection, cycle, state, failure, NOW, **found)
        return cycle


def history(engine: Engine, schema: Schema) -> list[Release]:
    """The task's rows, newest first."""
    with engine.connect() as connection:
        return list_releases(connection, schema.task_id)


async def wait_for(client: httpx.AsyncClient, path: str, is_met: Callable[[Any], bool], **options: Any) -> Any:
    """Ask again and again until the JSON answer is as expected; returns it."""
    with anyio.fail_after(60):
        while True:
            found = (await client.get(path, **options)).json()
            if is_met(found):
                return found
            await anyio.sleep(0.03)


async def status_when(
    client: httpx.AsyncClient, schema: Schema, is_met: Callable[[Any], bool] = lambda _: True
) -> dict[str, Any]:
    """The status of a task, once it meets a condition."""
    found: dict[str, Any] = await wait_for(client, f"/tasks/{schema.task.name}", is_met)
    return found
