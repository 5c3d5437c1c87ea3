"""The real processes of Morrow, started as an operator would, and what the outside sees of them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import Engine

from cli.local.stack import free_port
from store.cycles.ledger import Cycle, list_cycles
from store.cycles.requests import request_cycle
from store.tasks.catalog import Schema
from tests.servers import stop


def impatient_environment(database_url: str, mlflow_url: str, home: Path) -> dict[str, str]:
    """Settings under which leases run out, retries come and polls follow each other within seconds."""
    return {
        **os.environ,
        "MORROW_DATABASE_URL": database_url,
        "MORROW_MLFLOW_URL": mlflow_url,
        "MORROW_HOME": str(home),
        "MORROW_LEASE_SECONDS": "3",
        "MORROW_RETRY_SECONDS": "0.2",
        "MORROW_TICK_SECONDS": "0.5",
        "MORROW_POLL_SECONDS": "1",
        "MORROW_MAX_ATTEMPTS": "50",
        "MORROW_THREADS": "1",
        "MORROW_PORT": str(free_port()),
    }


@contextmanager
def process(module: str, environment: dict[str, str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """`python -m MODULE` in a process group of its own."""
    started = start(module, environment, log)
    try:
        yield started
    finally:
        stop(started)


def start(module: str, environment: dict[str, str], log: Path) -> "subprocess.Popen[bytes]":
    """The same, for a test that ends the process in another way."""
    with log.open("ab") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", module], env=environment, stdout=stream, stderr=stream, start_new_session=True
        )


def kill(started: "subprocess.Popen[bytes]") -> None:
    """kill -9 a process and its group."""
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()


def wait_for(what: str, check: Callable[[], Any], log: Path, seconds: float = 120) -> Any:
    """Ask until the check finds something; the log's end explains a failure."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen within {seconds} s; the log ends:\n{log.read_text()[-3000:]}")


def tell(line: str) -> None:
    """A figure for readers of the test's output: `pytest -s`, or the report of a failure."""
    print(line)  # noqa: T201


def request(engine: Engine, schema: Schema, cutoff: int) -> None:
    """Ask for a cutoff as the API does."""
    with engine.begin() as connection:
        request_cycle(connection, schema.task_id, cutoff, datetime.now(UTC))


def released(engine: Engine, schema: Schema, cutoff: int) -> Cycle | None:
    """The one released cycle of a cutoff."""
    with engine.connect() as connection:
        found = [
            cycle
            for cycle in list_cycles(connection, schema.task_id)
            if cycle.cutoff == cutoff and cycle.state == "released"
        ]
    assert len(found) <= 1
    return found[0] if found else None


def champion(mlflow_url: str, name: str) -> str:
    """The version that the alias names."""
    answer = httpx.get(
        f"{mlflow_url}/api/2.0/mlflow/registered-models/alias", params={"name": name, "alias": "champion"}, timeout=20
    )
    version: str = answer.raise_for_status().json()["model_version"]["version"]
    return version


def run_statuses(mlflow_url: str, name: str) -> list[str]:
    """The states of a task's runs, newest first."""
    experiment = httpx.get(
        f"{mlflow_url}/api/2.0/mlflow/experiments/get-by-name", params={"experiment_name": name}, timeout=20
    )
    found = httpx.post(
        f"{mlflow_url}/api/2.0/mlflow/runs/search",
        json={"experiment_ids": [experiment.raise_for_status().json()["experiment"]["experiment_id"]]},
        timeout=20,
    )
    return [run["info"]["status"] for run in found.raise_for_status().json().get("runs", [])]
