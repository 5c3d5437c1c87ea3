"""A whole deployment of which every part can be broken and started again, and the load that goes on meanwhile.

Two API processes, one trainer, an MLflow server and a PostgreSQL that writes to the disk before it acknowledges: what
a kill -9 must not lose. The clients are those of `benchmarks.mixed`.
"""

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from sqlalchemy import create_engine, make_url, text

from benchmarks.mixed.answers import hold
from benchmarks.mixed.clients import PREDICT, Client, Record, Verb, fill_history, traffic
from benchmarks.mixed.ledger import Ledger
from benchmarks.mixed.stream import ROWS_PER_WINDOW, Present, Row, make_row, make_task, window_start
from cli.local.postgres import EmbeddedPostgres
from cli.local.stack import free_port
from contracts.clock import format_moment
from migrations import migrate
from store.cycles.ledger import Cycle, list_cycles
from store.engine import make_engine
from store.tasks.catalog import define_task
from tests.e2e.processes import impatient_environment, kill, released, request, start, tell, wait_for
from tests.integration.drifting_task import now
from tests.servers import start_mlflow, stop, wait_until_healthy

TASK = "faults"
INGEST: tuple[Verb, ...] = ("POST event", "POST events", "POST lines", "PUT event")
NUM_APIS = 2
POOL_SIZE = 4
# Between two requests of a client, so that processes get the cores that faults and repairs need.
PAUSE_SECONDS = 0.3
# A few of each kind of request, before, during and after a fault: it has met everything.
ENOUGH = 20


class House:
    """The parts by name; `__enter__` starts them all and has a first version released."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        self.postgres = EmbeddedPostgres(folder / "pg")
        self.mlflow_url = f"http://127.0.0.1:{free_port()}"
        self.ledger, self.present = Ledger(), Present()
        self._num_loads = 0
        self._cleanup = ExitStack()

    def __enter__(self) -> "House":
        try:
            self._start()
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._cleanup.close()

    def _start(self) -> None:
        self._cleanup.callback(self.postgres.stop)
        self.mlflow = self._launch_mlflow()
        self._cleanup.callback(lambda: stop(self.mlflow))
        # The link outlives the server, whose socket lies in a new folder after each start.
        url = make_url(self.postgres.start()).update_query_dict({"host": str(self.folder / "pg" / "socket")})
        self.database_url = url.render_as_string(hide_password=False)
        migrate(self.database_url)
        self.engine = make_engine(self.database_url)
        self._cleanup.callback(self.engine.dispose)
        with self.engine.begin() as connection:
            self.schema, _ = define_task(connection, make_task(TASK), now())
        self.environments = [self.environment(f"home{k}") for k in range(NUM_APIS)]
        self.urls = [f"http://127.0.0.1:{environment['MORROW_PORT']}" for environment in self.environments]
        wait_until_healthy(f"{self.mlflow_url}/health", self.mlflow, seconds=240)
        self.apis = [start("service", environment, self.log) for environment in self.environments]
        self._cleanup.callback(self._stop_apis)
        self.trainer = start("trainer", self.environment("trainer"), self.log)
        self._cleanup.callback(lambda: stop(self.trainer))
        for k in range(NUM_APIS):
            self.await_api(k)
        client = Client(self.urls[0], TASK, self.ledger, Record(), seed=1000)
        self._cleanup.callback(client.close)
        fill_history(client, "history")
        cutoff = window_start(self.present.window)
        request(self.engine, self.schema, cutoff)
        self.await_release(cutoff)
        self.await_settled()

    def environment(self, home: str) -> dict[str, str]:
        """Of one process with a home of its own."""
        return impatient_environment(self.database_url, self.mlflow_url, self.folder / home) | {
            "MORROW_POOL_SIZE": str(POOL_SIZE),
            "MORROW_DATABASE_SECONDS": "3",
            "MORROW_LEASE_SECONDS": "8",
        }

    def _launch_mlflow(self) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as stream:
            return start_mlflow(self.folder, self.mlflow_url, stream.fileno())

    def _stop_apis(self) -> None:
        for api in self.apis:
            stop(api)

    def kill_database(self) -> None:
        """kill -9 the server; its backends see that and end."""
        pidfile = self.folder / "pg" / "cluster" / "postmaster.pid"
        os.kill(int(pidfile.read_text().splitlines()[0]), signal.SIGKILL)
        self.postgres.stop()

    def kill_registry(self) -> None:
        kill(self.mlflow)

    def restart_registry(self) -> None:
        self.mlflow = self._launch_mlflow()
        wait_until_healthy(f"{self.mlflow_url}/health", self.mlflow, seconds=240)

    def restart_api(self, place: int) -> None:
        self.apis[place] = start("service", self.environments[place], self.log)
        self.await_api(place)

    def restart_trainer(self) -> None:
        self.trainer = start("trainer", self.environment("trainer"), self.log)

    def await_api(self, place: int) -> None:
        wait_until_healthy(f"{self.urls[place]}/livez", self.apis[place], seconds=60)

    def ask(self, place: int) -> dict[str, Any]:
        """The task's status, as one API process knows it."""
        status: dict[str, Any] = httpx.get(f"{self.urls[place]}/tasks/{TASK}", timeout=60).raise_for_status().json()
        return status

    def await_registry(self, state: str) -> None:
        """Until every API process says so of the registry."""
        self._await_everywhere(f"a registry that is {state}", lambda ready: _task(ready).get("registry") == state)

    def await_settled(self) -> None:
        """Until all is well again: every API process reaches both stores and answers from the champion."""
        self.await_registry("ok")
        self._await_everywhere("the database", lambda ready: ready["database"] == "ok")

    def await_served(self, version: str) -> None:
        """Until every API process answers from a version."""
        self._await_everywhere(f"version {version}", lambda ready: _task(ready).get("version") == version)

    def _await_everywhere(self, what: str, is_met: Callable[[dict[str, Any]], bool]) -> None:
        for k, url in enumerate(self.urls):
            self.wait_for(f"{what} at API {k}", partial(_asks, f"{url}/readyz", is_met))

    def wait_for(self, what: str, check: Callable[[], Any]) -> Any:
        return wait_for(what, check, self.log)

    def release(self) -> str:
        """End the present window once it has rows enough; the version of its boundary, once it answers everywhere."""
        start = window_start(self.present.window)
        self.wait_for("a full window", lambda: self.ledger.count_in_window(start) >= ROWS_PER_WINDOW)
        return self.await_release(self.ask_for_cycle())

    def ask_for_cycle(self) -> int:
        """Request the boundary after the present window; returns it."""
        self.present.window += 1
        cutoff = window_start(self.present.window)
        request(self.engine, self.schema, cutoff)
        return cutoff

    def cycle(self, cutoff: int) -> Cycle | None:
        """The newest attempt at a cutoff."""
        with self.engine.connect() as connection:
            cycles = list_cycles(connection, self.schema.task_id)
        return next((cycle for cycle in cycles if cycle.cutoff == cutoff), None)

    def await_release(self, cutoff: int) -> str:
        """The version of a cutoff, once it is released and every API process answers from it.

        One window in a hundred looks odd by chance, and is held: then an admin overrules that.
        """
        cycle: Cycle = self.wait_for(f"the release of {format_moment(cutoff)}", partial(self._find_release, cutoff))
        assert cycle.version is not None
        self.await_served(cycle.version)
        return cycle.version

    def _find_release(self, cutoff: int) -> Cycle | None:
        cycle = self.cycle(cutoff)
        if cycle is not None and cycle.state == "held":
            overrule = {"cycle": cycle.cycle_id, "reason": "held by chance"}
            httpx.post(f"{self.urls[0]}/tasks/{TASK}/override", json=overrule, timeout=60).raise_for_status()
        return released(self.engine, self.schema, cutoff)

    def new_rows(self, prefix: str, count: int) -> list[Row]:
        """Events of the present window, noted as sent."""
        rng, at = np.random.default_rng(0), window_start(self.present.window)
        rows = [make_row(rng, f"{prefix}-{k}", at) for k in range(count)]
        for row in rows:
            self.ledger.send(row)
        return rows

    def post(self, place: int, row: Row) -> httpx.Response:
        """One request with one event in an array, whatever is answered."""
        found = httpx.post(f"{self.urls[place]}/events?task={TASK}", json=[row.document()], timeout=60)
        if found.status_code == 200:
            self.ledger.acknowledge(row)
        return found

    def _is_stored(self, place: int, row: Row) -> bool:
        return self.post(place, row).is_success

    def post_until_stored(self, place: int, rows: Sequence[Row]) -> None:
        for row in rows:
            self.wait_for(f"an acknowledgement of {row.event_id}", partial(self._is_stored, place, row))

    def limit_statements(self, limit: str) -> None:
        """Set the role's limit, and make every process connect again."""
        unlimited = {"options": "-c statement_timeout=0"}
        engine = create_engine(self.database_url, isolation_level="AUTOCOMMIT", connect_args=unlimited)
        with engine.connect() as connection:
            connection.execute(text(f"ALTER ROLE CURRENT_USER SET statement_timeout = '{limit}'"))
            connection.execute(
                text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'morrow'")
            )
        engine.dispose()
        self.engine.dispose()

    @contextmanager
    def load(self) -> Iterator["Load"]:
        """Clients at every API process while the block runs; afterwards all that they sent and heard is judged.

        The block ends with everything in working order: what was not acknowledged then is sent until it is.
        """
        load = Load([Record() for _ in self.urls], self)
        with ExitStack() as stack:
            for url, record in zip(self.urls, load.records, strict=True):
                stack.enter_context(traffic(url, TASK, self.present, self.ledger, record, pause=PAUSE_SECONDS))
            load.await_more(INGEST, 200)
            load.await_more(PREDICT, 200)
            yield load
            self.await_settled()
            load.await_more(INGEST, 200)
            load.await_more(PREDICT, 200)
        self._num_loads += 1
        audit = self.ledger.audit(self.engine, self.schema.task_id)
        heard = [one for record in load.records for one in record.heard]
        verdict = hold(heard, self.engine, self.schema, self.mlflow_url, self.folder / f"versions{self._num_loads}")
        for url, record in zip(self.urls, load.records, strict=True):
            tell(f"{url}: {record.describe()}; slowest {record.slowest_seconds:.1f} s")
        tell(str(audit))
        tell(str(verdict))
        assert [fault for record in load.records for fault in record.faults] == []
        assert audit.is_clean, audit
        assert verdict.faults == []


@dataclass(frozen=True)
class Load:
    """What the clients of each API process have heard."""

    records: Sequence[Record]
    house: House

    def statuses(self, verbs: Sequence[Verb], place: int | None = None) -> Counter[int]:
        """How often each status came, of all processes or of one."""
        records = self.records if place is None else [self.records[place]]
        return sum((record.statuses(verbs) for record in records), Counter[int]())

    def await_more(self, verbs: Sequence[Verb], status: int, place: int | None = None, count: int = ENOUGH) -> None:
        """Until a status has come so often since now, at every process or at one."""
        places = range(NUM_APIS) if place is None else [place]
        least = {k: self.statuses(verbs, k)[status] + count for k in places}
        self.house.wait_for(
            f"{count} more answers of {status} to {verbs}",
            lambda: all(self.statuses(verbs, k)[status] >= few for k, few in least.items()),
        )


def _asks(url: str, is_met: Callable[[dict[str, Any]], bool]) -> bool:
    return is_met(httpx.get(url, timeout=60).json())


def _task(readiness: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = readiness["tasks"].get(TASK, {})
    return found
