"""A process that may open no more files answers on the connections that it has, and anybody once it may again."""

import http.client
import json
import resource
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlencode

import httpx
from sqlalchemy import Engine

from contracts.clock import format_moment
from tests.e2e.processes import impatient_environment, process, wait_for
from tests.integration.artefacts import CUTOFF
from tests.integration.published_versions import define, publish_and_release
from tests.servers import wait_until_healthy

NUM_IDLE = 100


def test_a_process_without_descriptors_answers_whom_it_has_and_follows_again_once_it_has_some(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    schema, log = define(engine), tmp_path / "log"
    task, first = schema.task.name, publish_and_release(mlflow_url, engine, schema, tmp_path)
    environment = impatient_environment(database_url, mlflow_url, tmp_path / "home")
    port = int(environment["MORROW_PORT"])
    asked = {"task": task, "at": format_moment(CUTOFF), "distance": "1400", "carrier": "UA"}
    path = f"/predict?{urlencode(asked)}"

    def says(version: str) -> bool:
        """Whether a new connection is answered by it."""
        with suppress(httpx.TransportError):
            found = httpx.get(f"http://127.0.0.1:{port}{path}", timeout=10)
            return found.status_code == 200 and found.json()["version"] == version
        return False

    with process("service", environment, log) as api, ExitStack() as opened:
        wait_until_healthy(f"http://127.0.0.1:{port}/livez", api, seconds=60)
        wait_for("the first version", lambda: says(first), log)
        held = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        opened.callback(held.close)
        held.request("GET", path)
        assert held.getresponse().read()
        num_open = len([*Path(f"/proc/{api.pid}/fd").iterdir()])
        limit, most = resource.prlimit(api.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(api.pid, resource.RLIMIT_NOFILE, (num_open, most))
        for _ in range(NUM_IDLE):
            with suppress(OSError):
                opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=2))
        held.request("GET", path)
        answer = held.getresponse()
        assert (answer.status, json.loads(answer.read())["version"]) == (200, first)
        second = publish_and_release(mlflow_url, engine, schema, tmp_path, bias=1.0)
        wait_for("word of it", lambda: '"registry.degraded"' in log.read_text(), log)
        resource.prlimit(api.pid, resource.RLIMIT_NOFILE, (limit, most))
        wait_for("the second version", lambda: says(second), log)
        assert api.poll() is None
