"""Retraining is another process's work: whoever asks meanwhile is answered as ever."""

import time
from pathlib import Path

import httpx
import numpy as np
from sqlalchemy import Engine

from cli.stack import free_port
from contracts.clock import format_moment
from tests.e2e.processes import process, wait_for
from tests.e2e.test_schedule import environment_for, releases_of, schedule
from tests.servers import wait_until_healthy

NUM_RELEASES = 2
# What a caller may count on, whatever a machine of tests has to do besides; an idle one answers in milliseconds.
MOST_SECONDS_P99 = 1.0


def test_predict_is_answered_in_time_while_a_trainer_retrains(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    schema, log, port = schedule(engine, []), tmp_path / "log", free_port()
    environment = environment_for(database_url, mlflow_url, tmp_path / "home") | {"MORROW_PORT": str(port)}
    url = f"http://127.0.0.1:{port}"
    with process("service", environment, log) as service, process("trainer", environment, log):
        wait_until_healthy(f"{url}/livez", service, seconds=60)
        wait_for("the first release", lambda: releases_of(engine, schema), log)
        at = format_moment(releases_of(engine, schema)[0].cutoff)
        with httpx.Client(base_url=url, timeout=30) as client:
            question = {"task": schema.task.name, "at": at, "x": "0.4", "kind": "a"}
            wait_for("the first answer", lambda: client.get("/predict", params=question).status_code == 200, log)
            seconds: list[float] = []
            versions: set[str] = set()
            deadline = time.monotonic() + 120
            while len(versions) < NUM_RELEASES and time.monotonic() < deadline:
                began = time.monotonic()
                answer = client.get("/predict", params=question)
                seconds.append(time.monotonic() - began)
                assert answer.status_code == 200, answer.text
                versions.add(answer.json()["version"])
                time.sleep(0.01)
    assert len(versions) == NUM_RELEASES
    assert np.quantile(seconds, 0.99) < MOST_SECONDS_P99
