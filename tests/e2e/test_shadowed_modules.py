"""Morrow works in a folder whose own modules bear the names of its packages and of the standard library."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from cli.client.wait import await_version, follow_cycle, request_cycle
from cli.local.stack import HOST, free_port
from contracts.clock import format_moment
from store.events.batches import Event
from tests.e2e.test_up import GONE_SECONDS, READY_SECONDS, running
from tests.integration.drifting_task import cutoff_after, drifting_events, drifting_task
from tests.servers import stop, wait_until_healthy

MORROW = Path(sys.executable).with_name("morrow")
PACKAGES = ("contracts", "trainer", "cli", "service", "store")
MODULES = (
    *("sitecustomize", "logging", "types", "json", "random"),
    *("migrations", "mlflow", "torch", "uvicorn", "uvloop", "httptools"),
)
DECOY = 'raise RuntimeError(f"decoy {__name__}")\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory whose every module raises once it is imported."""
    made = tmp_path / "own work"
    for package in PACKAGES:
        (made / package).mkdir(parents=True)
        (made / package / "__init__.py").write_text(DECOY)
    for module in MODULES:
        (made / f"{module}.py").write_text(DECOY)
    return made


def test_up_serves_trains_and_stops(folder: Path, tmp_path: Path) -> None:
    port, home = free_port(), tmp_path / "home"
    with (
        running(home, port, command=[str(MORROW)], cwd=folder, workers="2", threads="1") as (process, printed),
        httpx.Client(base_url=f"http://{HOST}:{port}", timeout=60) as api,
    ):
        assert "Ctrl-C stops everything" in printed
        train_and_ask(api)
        process.send_signal(signal.SIGINT)
        assert process.wait(GONE_SECONDS) == 0
    assert "decoy" not in "".join(log.read_text() for log in (home / "logs").iterdir())


def test_the_command_and_the_workers_of_the_api_start(folder: Path, database_url: str, tmp_path: Path) -> None:
    """uvicorn writes the command line of a worker."""
    port = free_port()
    given = {
        "MORROW_HOME": str(tmp_path / "home"),
        "MORROW_DATABASE_URL": database_url,
        "MORROW_PORT": str(port),
        "MORROW_WORKERS": "2",
    }
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [MORROW, "serve"], cwd=folder, env=os.environ | given, stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_until_healthy(f"http://{HOST}:{port}/livez", process, READY_SECONDS)
    finally:
        stop(process)
    assert "decoy" not in (tmp_path / "log").read_text()


def train_and_ask(api: httpx.Client) -> None:
    """Store events, carry out a cycle and get an answer of its version."""
    task = drifting_task()
    api.put(f"/tasks/{task.name}", json=task.model_dump(mode="json")).raise_for_status()
    events = [_document(event) for event in drifting_events(0, 6)]
    assert api.post("/events", params={"task": task.name}, json=events).json()["created"] == len(events)
    cycle = request_cycle(api, task.name, format_moment(cutoff_after(6)))
    ended = follow_cycle(api, task.name, cycle, lambda _step: None)
    assert ended["state"] == "released", ended
    assert await_version(api, task.name, ended["version"])
    question = {"at": format_moment(cutoff_after(6)), "x": "0.5", "kind": "a"}
    assert api.get("/predict", params=question).json()["version"] == ended["version"]


def _document(event: Event) -> dict[str, object]:
    """As POST /events takes it."""
    (x,), (kind,) = event.numbers, event.categories
    return {
        "event_id": event.event_id,
        "at": format_moment(event.at),
        "features": {"x": x, "kind": kind},
        "label": event.label,
    }
