"""Two real API processes are asked around every bound while versions are swapped, closed and reopened."""

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
from sqlalchemy import Engine

from cli.local.stack import free_port
from contracts.clock import format_moment, to_micros
from tests.e2e.load_clients import NUM_VERSIONS, ROW, Deployment, Reply, hammer, judge
from tests.e2e.processes import impatient_environment, process
from tests.integration.published_versions import define
from tests.integration.service_app import DEAD_DATABASE, DEAD_REGISTRY
from tests.servers import wait_until_healthy

SECONDS, MOST_SECONDS = 15.0, 120.0
NUM_WORKERS, CLIENTS_PER_WORKER = 2, 2
LEAST_REPLIES = 30
# The poll is 0.2 s; the rest is for a machine with other work.
LONGEST_CHANGE_SECONDS = 5.0


def test_nothing_is_answered_outside_the_bounds_of_the_version_that_answers(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    log, schema = tmp_path / "log", define(engine)
    given = impatient_environment(database_url, mlflow_url, tmp_path) | {"MORROW_POLL_SECONDS": "0.2"}
    environments = [
        {**given, "MORROW_HOME": str(tmp_path / f"home{k}"), "MORROW_PORT": str(free_port())}
        for k in range(NUM_WORKERS)
    ]
    urls = [f"http://127.0.0.1:{environment['MORROW_PORT']}" for environment in environments]
    task, rng = schema.task.name, np.random.default_rng(0)
    deployment = Deployment(engine, mlflow_url, schema, urls, log)
    cutoff = schema.task.clock.window_start(to_micros(datetime.now(UTC)))
    names = [deployment.publish(tmp_path / f"version{k}", cutoff, k) for k in range(NUM_VERSIONS)]
    versions = deployment.versions
    bounds = [bound for found in versions.values() for bound in (found.trained_from, found.closed, found.promised)]
    moments = [bound + step for bound in bounds for step in (-1, 0, 1)]
    with running(environments, log) as processes:
        deployment.name_champion(names[0])
        stopping, replies = threading.Event(), list[Reply]()
        with ThreadPoolExecutor(NUM_WORKERS * CLIENTS_PER_WORKER) as pool:
            clients = [
                pool.submit(hammer, url, worker, task, replies, moments=moments, stopping=stopping, seed=2 * k + worker)
                for k in range(CLIENTS_PER_WORKER)
                for worker, url in enumerate(urls)
            ]
            try:
                began = time.monotonic()
                while time.monotonic() < began + SECONDS or lacks_replies(replies, time.monotonic() - began):
                    deployment.change(rng)
                    time.sleep(0.3 * rng.random())
            finally:
                stopping.set()
            for client in clients:
                client.result()
        champion = versions[deployment.champion]
        deployment.bound(champion.name, "close", champion.closed)
        assert all(one.poll() is None for one in processes)
        expired = [ask(url, task) for url in urls]

    for reply in replies:
        judge(reply, deployment.states[reply.worker], versions)
    changes = [state for states in deployment.states for state in states]
    slowest = max(state.obeyed - state.began for state in changes[1:])
    assert not lacks_replies(replies)
    assert len({state.version for state in changes}) == NUM_VERSIONS
    assert slowest <= LONGEST_CHANGE_SECONDS

    nowhere = {"MORROW_DATABASE_URL": DEAD_DATABASE, "MORROW_MLFLOW_URL": DEAD_REGISTRY}
    with running([environment | nowhere for environment in environments], log):
        assert [ask(url, task) for url in urls] == expired
        for found in expired:
            status, detail, retry_after = found
            assert (status, retry_after) == (503, "10")
            assert f"Version {champion.name} was valid until {format_moment(champion.closed)}. " in (detail or "")
        assert [ask(url, task, champion.closed)[0] for url in urls] == [200] * NUM_WORKERS
        assert [ask(url, task, champion.closed + 1)[0] for url in urls] == [422] * NUM_WORKERS


def lacks_replies(replies: Sequence[Reply], seconds: float = 0.0) -> bool:
    """Whether too few of a kind have come, as on a machine with other work, and there is time to wait for more."""
    statuses = Counter(reply.status for reply in tuple(replies))
    return min(statuses[status] for status in (200, 422, 503)) < LEAST_REPLIES and seconds < MOST_SECONDS


@contextmanager
def running(environments: Sequence[dict[str, str]], log: Path) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """A worker for each environment, alive."""
    with ExitStack() as stack:
        processes = [stack.enter_context(process("service", environment, log)) for environment in environments]
        for one, environment in zip(processes, environments, strict=True):
            wait_until_healthy(f"http://127.0.0.1:{environment['MORROW_PORT']}/livez", one, seconds=60)
        yield processes


def ask(url: str, task: str, at: int | None = None) -> tuple[int, str | None, str | None]:
    """Status, detail and Retry-After of one request."""
    moment = {} if at is None else {"at": format_moment(at)}
    found = httpx.get(f"{url}/predict", params={"task": task, **ROW, **moment}, timeout=30)
    return found.status_code, found.json().get("detail"), found.headers.get("Retry-After")
