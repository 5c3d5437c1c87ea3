"""The primary PostgreSQL is killed under load, its standby is promoted, and Morrow goes on by itself.

Commits wait for the standby, so every acknowledged event is there. The URL lists both servers, and no process of Morrow
is started again or told anything.
"""

import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import select

from cli.local.postgres_cluster import DATABASE
from migrations import migrate
from store.database import cycles, events
from store.engine import make_engine
from tests.e2e.morrow_command import MORROW
from tests.e2e.processes import impatient_environment, process, tell, wait_for
from tests.integration.service_app import TASK, an_event
from tests.servers import wait_until_healthy
from tests.standby import Server, primary_and_standby

NUM_CLIENTS = 4
ENOUGH = 100


class Producers:
    """Clients that post an event, or an array of three, and repeat nothing; what they were told."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self.acknowledged: set[str] = set()
        self.num_refused = 0

    def stop(self) -> None:
        self._stopping.set()

    def post(self, number: int) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as client:
            for k in range(10**6):
                if self._stopping.wait(0.01):
                    return
                names = [f"{number}-{k}-{part}" for part in range(3 if k % 4 == 0 else 1)]
                body: Any = [an_event(name) for name in names]
                answer = client.post("/events", params={"task": "flights"}, json=body[0] if len(body) == 1 else body)
                with self._lock:
                    if answer.status_code == 200:
                        self.acknowledged.update(names)
                    else:
                        assert (answer.status_code, "Retry-After" in answer.headers) == (503, True), answer.text
                        self.num_refused += 1


def test_a_killed_primary_costs_no_acknowledged_event_and_its_standby_is_found(mlflow_url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    with primary_and_standby(tmp_path) as (primary, standby):
        url = f"postgresql://{DATABASE}@{primary.place},{standby.place}/{DATABASE}"
        migrate(primary.url)
        primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.run("SELECT pg_reload_conf()")
        environment = impatient_environment(url, mlflow_url, tmp_path / "home") | {"MORROW_DATABASE_SECONDS": "3"}
        api = f"http://127.0.0.1:{environment['MORROW_PORT']}"
        with process("service", environment, log) as service, process("trainer", environment, log) as trainer:
            wait_until_healthy(f"{api}/livez", service, seconds=120)
            httpx.put(f"{api}/tasks/flights", json=TASK, timeout=60).raise_for_status()
            producers = Producers(api)
            with ThreadPoolExecutor(NUM_CLIENTS) as pool:
                running = [pool.submit(producers.post, number) for number in range(NUM_CLIENTS)]
                try:
                    await_more(producers, log)
                    primary.kill()
                    wait_for("refused events", lambda: producers.num_refused >= NUM_CLIENTS, log)
                    examine(environment, level="fail")
                    standby.run("SELECT pg_promote()")
                    await_more(producers, log)
                finally:
                    producers.stop()
            for one in running:
                one.result()
            examine(environment, level="ok")
            httpx.post(f"{api}/tasks/flights/cycles", json={}, timeout=60).raise_for_status()
            wait_for("the end of a cycle", lambda: has_ended_cycle(standby), log)
            assert service.poll() is None
            assert trainer.poll() is None
        stored = stored_events(standby)
        assert producers.acknowledged <= stored
        tell(f"{len(producers.acknowledged)} acknowledged, {producers.num_refused} refused, {len(stored)} stored")


def await_more(producers: Producers, log: Path) -> None:
    enough = len(producers.acknowledged) + ENOUGH
    wait_for(f"{ENOUGH} more events", lambda: len(producers.acknowledged) >= enough, log)


def examine(environment: dict[str, str], *, level: str) -> None:
    """What `morrow doctor` finds of the database."""
    done = subprocess.run([*MORROW, "doctor", "--json"], env=environment, capture_output=True, check=False, timeout=120)
    found = {one["subject"]: one for one in json.loads(done.stdout)["findings"]}
    assert found["database"]["level"] == level, found["database"]


def stored_events(server: Server) -> set[str]:
    engine = make_engine(server.url)
    with engine.connect() as connection:
        found = set(connection.execute(select(events.c.event_id)).scalars())
    engine.dispose()
    return found


def has_ended_cycle(server: Server) -> bool:
    engine = make_engine(server.url)
    with engine.connect() as connection:
        states = set(connection.execute(select(cycles.c.state)).scalars())
    engine.dispose()
    return states == {"skipped"}
