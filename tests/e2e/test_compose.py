"""The compose file without Docker: its commands and environments as local processes, ordered by its health checks."""

import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import make_url

from cli.local.postgres import EmbeddedPostgres
from cli.local.stack import free_port
from tests.e2e.containers import (
    ONE_SHOT,
    READY_SECONDS,
    SERVICES,
    STARTED,
    STORE,
    Machine,
    backup_blocks,
    drop_everything,
    in_order,
    make_secrets,
    run_first_script,
    run_line,
)
from tests.integration.one_version import unnamed


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """All services, started in order."""
    folder = tmp_path_factory.mktemp("compose")
    with EmbeddedPostgres(folder / "cluster", durable=False) as postgres:
        # The folder of its socket stays where it is when the server is started again.
        database = make_url(postgres.url).update_query_dict({"host": str(folder / "cluster" / "socket")})
        machine = Machine(
            folder,
            postgres,
            database.render_as_string(hide_password=False),
            {"mlflow": free_port(), "api": free_port()},
            {},
        )
        run_first_script(machine.database)
        make_secrets(folder / "secrets")
        try:
            for service in in_order(SERVICES):
                for needed, how in SERVICES[service].get("depends_on", {}).items():
                    machine.await_condition(needed, how["condition"])
                if service != STORE:
                    machine.start(service)
            yield machine
        finally:
            for service in machine.processes:
                machine.clear(service)


def test_every_service_gets_healthy(machine: Machine) -> None:
    for service in SERVICES:
        if service not in ONE_SHOT:
            machine.await_condition(service, "service_healthy")


def test_an_event_and_a_question_go_through_them(machine: Machine) -> None:
    """Only with the first key. No model is there at first; after one cycle, which crosses every service, the question
    is answered."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    assert httpx.put(f"{machine.address('api')}/tasks/signs", json=TASK).status_code == 401
    with _first_client(machine) as api:
        assert api.put("/tasks/signs", json=TASK).status_code == 201
        first, *others = _events(now)
        assert api.post("/events", json=first).json()["created"] == 1
        question: dict[str, str | float] = {"at": (now + timedelta(minutes=1)).isoformat(), "x": 0.5}
        refused = api.get("/predict", params=question)
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/no-model")
        assert "Retry-After" in refused.headers

        assert api.post("/events", json=others).json()["created"] == len(others)
        assert api.post("/tasks/signs/cycles", json={}).status_code == 202
        cycle = _await_end(api)
        assert cycle["state"] == "released", cycle["reason"]
        answer = _await_answer(api, question)
        assert (answer["prediction"], answer["version"]) == ("plus", cycle["version"])


def test_a_database_restarted_alone_is_found_again(machine: Machine) -> None:
    """By the API, which takes events again, and by MLflow, whose alias the API goes on to follow."""
    event = _events(datetime.now(UTC))[0] | {"event_id": "row-after-the-restart"}
    with _first_client(machine) as api:
        machine.postgres.stop()
        assert api.post("/events", json=event).status_code == 503
        machine.postgres.start()
        _await("events", lambda: api.post("/events", json=event).status_code == 200)
        _await("the registry", lambda: _registry_state(api) == "ok")


def test_a_registry_restarted_alone_is_found_again(machine: Machine) -> None:
    with _first_client(machine) as api:
        machine.stop("mlflow")
        _await("the registry's absence", lambda: _registry_state(api) == "degraded")
        machine.start("mlflow")
        machine.await_condition("mlflow", "service_healthy")
        _await("the registry", lambda: _registry_state(api) == "ok")


def test_the_lines_of_the_page_bring_everything_back(machine: Machine) -> None:
    """What lies in both databases and in the volume of artefacts is dropped between backup and restore."""
    back_up, restore = backup_blocks()
    question: dict[str, str | float] = {"at": datetime.now(UTC).isoformat(), "x": 0.5}
    with _first_client(machine) as api:
        answer = api.get("/predict", params=question).raise_for_status().json()
        num_events = api.get("/tasks/signs").json()["num_events"]
        for line in back_up:
            run_line(machine, line)
        for service in reversed(STARTED):
            machine.stop(service)
        drop_everything(machine)
        for line in restore:
            run_line(machine, line)
        assert unnamed(_await_answer(api, question)) == unnamed(answer)
        assert api.get("/tasks/signs").json()["num_events"] == num_events > 300
        _await("the registry", lambda: _registry_state(api) == "ok")


def test_each_service_ends_on_sigterm_within_its_grace(machine: Machine) -> None:
    assert {service: machine.stop(service) for service in ("trainer", "api")} == {"trainer": 0, "api": 0}
    assert machine.stop("mlflow") in (0, -signal.SIGTERM)


TASK = {
    "features": [{"name": "x", "kind": "number"}],
    "target": {"name": "sign", "kind": "classification", "classes": ["minus", "plus"]},
    "window": "PT1H",
    "schedule": "manual",
    "guard": {"max_age": 1, "min_pairs": 2, "min_rows": 20, "rivals": []},
    "training": {"num_seeds": 1, "width": 8, "pretrain_epochs": 40, "finetune_windows": 0, "batch_size": 32},
}


def _events(until: datetime) -> list[dict[str, Any]]:
    """A row a minute for six hours; the label is the sign of the one number."""
    return [
        {
            "event_id": f"row-{minute}",
            "at": (until - timedelta(minutes=minute)).isoformat(),
            "features": {"x": 1.0 if minute % 2 else -1.0},
            "label": "plus" if minute % 2 else "minus",
        }
        for minute in range(1, 361)
    ]


def _first_client(machine: Machine) -> httpx.Client:
    """A client with the key that the first start made."""
    key = (machine.folder / "key" / "morrow" / "first.key").read_text().strip()
    return httpx.Client(base_url=machine.address("api"), headers={"Authorization": f"Bearer {key}"}, timeout=30)


def _registry_state(api: httpx.Client) -> str:
    state: str = api.get("/readyz").json()["tasks"]["signs"]["registry"]
    return state


def _await(what: str, check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not check():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.5)


def _await_end(api: httpx.Client) -> dict[str, Any]:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        cycle: dict[str, Any] = api.get("/tasks/signs/cycles").json()["cycles"][0]
        if cycle["state"] not in ("requested", "running"):
            return cycle
        assert time.monotonic() < deadline, cycle
        time.sleep(0.5)


def _await_answer(api: httpx.Client, question: dict[str, str | float]) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while (response := api.get("/predict", params=question)).status_code == 503:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer
