"""A trainer is killed and its disk is lost: another one, on a disk of its own, guards what it had released."""

import shutil
from pathlib import Path

from sqlalchemy import Engine

from store.cycles.ledger import list_cycles
from store.releases import list_releases
from tests.e2e.processes import impatient_environment, kill, process, request, start, wait_for
from tests.integration.drifting_task import cutoff_after, define, drifting_events, drifting_task, flip
from tests.integration.live_job import append

SECONDS = 60


def test_the_versions_of_a_killed_trainer_are_guarded_by_another_within_a_minute(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(), 10)
    log = tmp_path / "trainers.log"
    environments = [
        impatient_environment(database_url, mlflow_url, tmp_path / home)
        | {"MORROW_FITS_URL": f"file://{tmp_path}/fits"}
        for home in ("one", "other")
    ]
    first = start("trainer", environments[0], log)
    try:
        request(engine, schema, cutoff_after(10))
        wait_for("the release", lambda: states(engine, schema.task_id) == ["released"], log, seconds=240)
    finally:
        kill(first)
    shutil.rmtree(tmp_path / "one")
    with process("trainer", environments[1], log):
        wait_for("the start", (tmp_path / "other").is_dir, log)
        append(engine, schema, [*map(flip, drifting_events(10, 11)), *drifting_events(11, 12)])
        wait_for("the guard", lambda: "close" in actions(engine, schema.task_id), log, seconds=SECONDS)


def states(engine: Engine, task_id: int) -> list[str]:
    with engine.connect() as connection:
        return [cycle.state for cycle in list_cycles(connection, task_id)]


def actions(engine: Engine, task_id: int) -> list[str]:
    with engine.connect() as connection:
        return [row.action for row in list_releases(connection, task_id)]
