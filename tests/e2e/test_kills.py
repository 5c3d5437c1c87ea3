"""The real trainer is killed -9 before each named step of a cycle; nothing half-released is ever left.

PostgreSQL holds the trainer at a step: a trigger sleeps inside the update that names it. No part of Morrow knows.
"""

import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import get_args

import httpx
import psutil
import pytest
from sqlalchemy import Engine, text

from contracts.clock import format_moment, from_micros
from store.cycles.ledger import Cycle, Step, list_cycles
from tests.e2e.processes import (
    champion,
    impatient_environment,
    process,
    released,
    request,
    run_statuses,
    wait_for,
)
from tests.integration.drifting_task import add_windows, cutoff_after, define, drifting_task
from tests.servers import wait_until_healthy

pytestmark = pytest.mark.story

PAUSE = """
    CREATE FUNCTION pause() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$;
    CREATE TRIGGER pause BEFORE UPDATE ON cycles FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION pause()
"""
CONDITIONS = [f"NEW.step = '{step}' AND OLD.step IS DISTINCT FROM NEW.step" for step in get_args(Step)]
CONDITIONS.append("NEW.state = 'released'")
IS_PAUSED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"

RESUME = """
    SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event = 'PgSleep'
"""


def kill_alone(trainer: "subprocess.Popen[bytes]") -> None:
    """kill -9 the trainer alone; its training process has to notice by itself."""
    children = psutil.Process(trainer.pid).children(recursive=True)
    os.kill(trainer.pid, signal.SIGKILL)
    trainer.wait()
    _, alive = psutil.wait_procs(children, timeout=15)
    assert alive == []


def test_a_trainer_killed_before_any_step_leaves_no_half_release(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    environment = impatient_environment(database_url, mlflow_url, tmp_path / "home")
    log, url = tmp_path / "log", f"http://127.0.0.1:{environment['MORROW_PORT']}"
    task = drifting_task()
    schema = define(engine, task, 8)
    question = {"task": task.name, "at": format_moment(cutoff_after(8)), "x": "0.5", "kind": "a"}

    def serves(version: str) -> Callable[[], bool]:
        def check() -> bool:
            answer = httpx.get(f"{url}/predict", params=question, timeout=20)
            return answer.status_code == 200 and answer.json()["version"] == version

        return check

    def check_release(window: int, condition: str) -> str:
        """The cutoff after `window` windows is released, once, and served; returns its version."""
        cycle: Cycle = wait_for(
            f"the release after {condition}", partial(released, engine, schema, cutoff_after(window)), log
        )
        version = champion(mlflow_url, task.name)
        assert cycle.version == version, condition
        question["at"] = format_moment(cutoff_after(window))
        wait_for(f"the service's swap after {condition}", serves(version), log)
        wait_for(
            f"the end of every run after {condition}",
            lambda: "RUNNING" not in run_statuses(mlflow_url, task.name),
            log,
        )
        with engine.connect() as connection:
            rows = connection.execute(
                text("SELECT valid_until FROM releases WHERE version = :version"), {"version": version}
            ).all()
            states = {cycle.state for cycle in list_cycles(connection, schema.task_id)}
        assert len(rows) == 1, condition
        assert rows[0].valid_until > from_micros(cutoff_after(window)), condition
        assert states <= {"released", "failed"}, condition
        return version

    with process("service", environment, log) as api:
        wait_until_healthy(f"{url}/livez", api, seconds=60)
        window, condition = 8, "nothing"
        request(engine, schema, cutoff_after(window))
        for following in CONDITIONS:
            with process("trainer", environment, log) as trainer:
                former = check_release(window, condition)
                window, condition = window + 1, following
                add_windows(engine, schema, window - 1, window)
                with engine.begin() as connection:
                    connection.execute(text(PAUSE.format(condition=condition)))
                request(engine, schema, cutoff_after(window))
                with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                    wait_for(f"a pause at {condition}", partial(connection.scalar, text(IS_PAUSED)), log)
                kill_alone(trainer)
            with engine.begin() as connection:
                connection.execute(text(RESUME))
                connection.execute(text("DROP FUNCTION pause CASCADE"))
            assert released(engine, schema, cutoff_after(window)) is None, condition
            served = httpx.get(f"{url}/predict", params=question, timeout=20)
            assert served.status_code == 200, (condition, served.text)
            assert served.json()["version"] in (former, champion(mlflow_url, task.name)), condition
        with process("trainer", environment, log):
            check_release(window, condition)
