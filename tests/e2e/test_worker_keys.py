"""Real workers and keys: each knows them, forgets one that is revoked, and remembers them through an outage."""

import http.client
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import psutil
from sqlalchemy import make_url

from cli.local.postgres import EmbeddedPostgres
from migrations import migrate
from store.api_keys import add_key, revoke_key
from store.engine import make_engine
from tests.e2e.processes import impatient_environment, process, wait_for
from tests.e2e.test_workers import NUM_WORKERS, SLACK_SECONDS, question
from tests.integration.api_keys import sent
from tests.integration.published_versions import define, publish_and_release
from tests.integration.service_app import an_event

RATE, SECONDS = 8.0, 4.0
Connections = Mapping[int, http.client.HTTPConnection]


@contextmanager
def one_connection_each(supervisor: psutil.Process, port: int) -> Iterator[Connections]:
    """A connection to each worker, by its pid: opened until every one of them has taken one."""
    found: dict[int, http.client.HTTPConnection] = {}
    with ExitStack() as opened:
        deadline = time.monotonic() + SLACK_SECONDS
        while len(found) < NUM_WORKERS:
            assert time.monotonic() < deadline, f"only {sorted(found)} took a connection"
            fresh: dict[int, http.client.HTTPConnection] = {}
            for _ in range(2 * NUM_WORKERS):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SLACK_SECONDS)
                opened.callback(connection.close)
                try:
                    connection.request("GET", "/livez")
                    connection.getresponse().read()
                except OSError:  # none of them listens yet
                    time.sleep(0.1)
                    continue
                fresh[connection.sock.getsockname()[1]] = connection
            for child in serving(supervisor):
                for one in child.net_connections("tcp"):
                    if one.raddr and one.raddr.port in fresh:
                        found.setdefault(child.pid, fresh[one.raddr.port])
        yield found


def serving(supervisor: psutil.Process) -> list[psutil.Process]:
    """The workers, and not the process that multiprocessing keeps for them."""
    found = []
    for child in supervisor.children():
        with suppress(psutil.NoSuchProcess):  # it has been killed just now
            if "spawn_main" in " ".join(child.cmdline()):
                found.append(child)
    return found


def ask(connection: http.client.HTTPConnection, path: str, key: str, body: str | None = None) -> int:
    headers = sent(key) | ({} if body is None else {"Content-Type": "application/json"})
    connection.request("GET" if body is None else "POST", path, body, headers)
    answer = connection.getresponse()
    answer.read()
    if answer.status in (429, 503):
        assert int(answer.headers["Retry-After"]) >= 1
    return answer.status


def test_keys_reach_every_worker_and_are_remembered_by_each_while_the_database_is_away(
    mlflow_url: str, tmp_path: Path
) -> None:
    postgres, log = EmbeddedPostgres(tmp_path / "pg", durable=False), tmp_path / "log"
    with ExitStack() as stack:
        stack.callback(postgres.stop)
        # The link outlives the server, whose socket lies in a new folder after each start.
        url = make_url(postgres.start()).update_query_dict({"host": str(tmp_path / "pg" / "socket")})
        database_url = url.render_as_string(hide_password=False)
        migrate(database_url)
        engine = make_engine(database_url)
        stack.callback(engine.dispose)
        schema = define(engine)
        publish_and_release(mlflow_url, engine, schema, tmp_path)
        now = datetime.now(UTC)
        with engine.begin() as connection:
            reader = add_key(connection, "reader", ("predict",), None, now)
            gone = add_key(connection, "gone", ("predict",), None, now)
            slow = add_key(connection, "slow", ("predict",), RATE, now)
            producer = add_key(connection, "producer", ("ingest",), None, now)
        environment = impatient_environment(database_url, mlflow_url, tmp_path / "home")
        environment |= {"MORROW_WORKERS": str(NUM_WORKERS), "MORROW_DATABASE_SECONDS": "3"}
        port = int(environment["MORROW_PORT"])
        supervisor = psutil.Process(stack.enter_context(process("service", environment, log)).pid)
        path = f"/predict?{urlencode(question(schema.task.name))}"
        events = f"/events?task={schema.task.name}"

        def say(status: int, key: str, where: str = path, body: str | None = None) -> bool:
            """Whether every worker answers so."""
            while True:
                # A connection that has long waited for the other workers' is closed by its own.
                with one_connection_each(supervisor, port) as workers, suppress(OSError):
                    return {ask(one, where, key, body) for one in workers.values()} == {status}

        def await_all(status: int, key: str, where: str = path, body: str | None = None) -> None:
            wait_for(f"{status} at every worker", partial(say, status, key, where, body), log, SLACK_SECONDS)

        wait_for("the start of the workers", lambda: len(serving(supervisor)) == NUM_WORKERS, log)
        await_all(200, reader)
        assert say(200, gone)
        assert say(403, reader, events, json.dumps([an_event()]))

        with one_connection_each(supervisor, port) as workers:
            began, heard = time.monotonic(), Counter[int]()
            while time.monotonic() - began < SECONDS:
                time.sleep(0.02)
                for one in workers.values():
                    with suppress(OSError):  # it had waited too long for the others, and is opened again
                        heard[ask(one, path, slow)] += 1
            took = time.monotonic() - began
        # A second's worth may have been saved up before.
        assert RATE * SECONDS / 2 <= heard[200] <= RATE * (took + 1) + NUM_WORKERS
        assert set(heard) == {200, 429}

        with engine.begin() as connection:
            revoke_key(connection, "gone", datetime.now(UTC))
        await_all(401, gone)
        engine.dispose()
        postgres.stop()
        await_all(503, producer, events, json.dumps([an_event()]))
        assert say(200, reader)
        assert say(401, gone)
        victim = serving(supervisor)[0].pid
        os.kill(victim, signal.SIGKILL)
        wait_for("its end", lambda: victim not in [child.pid for child in serving(supervisor)], log, SLACK_SECONDS)
        await_all(200, reader)
        assert say(401, gone)
        postgres.start()
        await_all(200, producer, events, json.dumps([an_event()]))
        assert say(401, gone)
