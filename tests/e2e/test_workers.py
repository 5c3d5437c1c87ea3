"""Four real workers behind one port: they follow a release together, and one that dies or falls behind is replaced."""

import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from sqlalchemy import Engine

from contracts.clock import format_moment
from store.tasks.catalog import Schema
from tests.e2e.cut_proxy import cuttable
from tests.e2e.processes import impatient_environment, process, wait_for
from tests.integration.artefacts import CUTOFF, WEEK
from tests.integration.published_versions import define, publish_and_release
from tests.servers import wait_until_healthy

NUM_WORKERS, NUM_CLIENTS = 4, 4
STALE_SECONDS = 3.0
# Between two requests of a client: the cores are for workers that start and swap meanwhile.
PAUSE_SECONDS = 0.01
# What a machine with other work may add to any wait.
SLACK_SECONDS = 60.0
ROW = {"distance": "1400", "carrier": "UA"}
# Connections that a kill -9 takes along: a client that waits on one has nothing else to hold against the service.
LOST = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


@dataclass(frozen=True)
class Api:
    """A running API of several workers."""

    url: str
    task: str
    supervisor: "subprocess.Popen[bytes]"
    log: Path

    def ask(self) -> dict[str, Any]:
        """One answer, over a connection of its own."""
        found = httpx.get(f"{self.url}/predict", params=question(self.task), timeout=SLACK_SECONDS)
        answer: dict[str, Any] = found.raise_for_status().json()
        return answer

    def workers(self) -> dict[int, str | None]:
        """The version of each worker, by pid, as any of them says."""
        status = httpx.get(f"{self.url}/tasks/{self.task}", timeout=SLACK_SECONDS).raise_for_status().json()
        return {worker["pid"]: worker["version"] for worker in status["workers"]}

    def await_version(self, version: str, *, without: int = 0) -> dict[int, str | None]:
        """The workers once all of them answer with a version, and every replaced process is gone."""

        def check() -> dict[int, str | None] | None:
            try:
                workers = self.workers()
            except LOST:  # it was asked of the worker that was about to go
                return None
            agreed = len(workers) == NUM_WORKERS and set(workers.values()) == {version} and without not in workers
            return workers if agreed else None

        found: dict[int, str | None] = wait_for(f"version {version} everywhere", check, self.log, SLACK_SECONDS)
        return found

    def counted(self, name: str) -> float:
        """The sum of a counter over its labels, by one scrape."""
        text = httpx.get(f"{self.url}/metrics", timeout=SLACK_SECONDS).raise_for_status().text
        return sum(float(value) for value in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE))


def question(task: str) -> dict[str, str]:
    return {"task": task, "at": format_moment(CUTOFF + WEEK), **ROW}


@contextmanager
def running(
    database_url: str, mlflow_url: str, schema: Schema, folder: Path, poll_seconds: float = 0.5
) -> Iterator[Api]:
    """Workers that have all started."""
    environment = impatient_environment(database_url, mlflow_url, folder / "home") | {
        "MORROW_WORKERS": str(NUM_WORKERS),
        "MORROW_STALE_SECONDS": str(STALE_SECONDS),
        "MORROW_POLL_SECONDS": str(poll_seconds),
        "MORROW_LOG_FORMAT": "json",
        "TMPDIR": str(folder),  # where a killed supervisor leaves what its workers told each other
    }
    log, url = folder / "log", f"http://127.0.0.1:{environment['MORROW_PORT']}"
    with process("service", environment, log) as supervisor:
        wait_until_healthy(f"{url}/livez", supervisor, seconds=120)
        api = Api(url, schema.task.name, supervisor, log)
        wait_for("the start of all workers", lambda: len(api.workers()) == NUM_WORKERS, log)
        yield api


def ask_on(api: Api, stopping: threading.Event, is_patient: Callable[[int], bool]) -> tuple[list[Any], int]:
    """Answers of one client that keeps some of its connections, and how many requests ended without one."""
    answers: list[Any] = []
    num_lost = 0
    while not stopping.is_set():
        with httpx.Client(base_url=api.url, timeout=SLACK_SECONDS) as client:
            while not stopping.wait(PAUSE_SECONDS):
                try:
                    found = client.get("/predict", params=question(api.task))
                except LOST:
                    num_lost += 1
                    break
                assert found.status_code == 200, found.text
                answers.append(found.json())
                if not is_patient(len(answers)):
                    break
    return answers, num_lost


def test_workers_follow_a_release_together_and_a_killed_one_is_replaced_under_load(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    schema = define(engine)
    first = publish_and_release(mlflow_url, engine, schema, tmp_path)
    with running(database_url, mlflow_url, schema, tmp_path) as api, ThreadPoolExecutor(NUM_CLIENTS) as pool:
        pids = set(api.await_version(first))
        assert pids == {child.pid for child in workers_of(api.supervisor)}
        stopping = threading.Event()
        clients = [pool.submit(ask_on, api, stopping, lambda count: count % 7 > 0) for _ in range(NUM_CLIENTS)]
        try:
            second = publish_and_release(mlflow_url, engine, schema, tmp_path, bias=1.0)
            assert set(api.await_version(second)) == pids
            assert {api.ask()["version"] for _ in range(5 * NUM_WORKERS)} == {second}
            victim = min(pids)
            os.kill(victim, signal.SIGKILL)
            replaced = api.await_version(second, without=victim)
            assert len(pids & set(replaced)) == NUM_WORKERS - 1
            time.sleep(1)
        finally:
            stopping.set()
        replies = [client.result() for client in clients]
        answers = [answer for found, _ in replies for answer in found]
        num_lost = sum(lost for _, lost in replies)
        scraped = [api.counted("morrow_predict_seconds_count") for _ in range(2 * NUM_WORKERS)]
        # A worker that starts after another has taken the first version finds it in the home.
        assert 1 + NUM_WORKERS <= api.counted("morrow_model_swaps_total") <= 2 * NUM_WORKERS
        assert api.counted("morrow_worker_model_info") == NUM_WORKERS
        assert (tmp_path / "home" / "models" / schema.task.name / second).is_dir()
    # Each version has one answer to the question, and no client ever hears the former after the newer one's turn.
    said = {(answer["version"], json.dumps(answer["probabilities"], sort_keys=True)) for answer in answers}
    assert sorted(version for version, _ in said) == sorted([first, second])
    assert len({probabilities for _, probabilities in said}) == 2
    # A client holds one connection, and one worker was killed.
    assert num_lost <= NUM_CLIENTS
    # Any scrape is the sum over all workers, the killed one included.
    assert len(set(scraped)) == 1
    assert len(answers) + 5 * NUM_WORKERS <= scraped[0] <= len(answers) + 5 * NUM_WORKERS + num_lost


def test_once_a_worker_answers_from_a_first_version_none_says_that_there_is_none(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    schema = define(engine)
    asked = question(schema.task.name)

    def ask(url: str) -> int:
        return httpx.get(f"{url}/predict", params=asked, timeout=SLACK_SECONDS).status_code

    # Between two looks of a worker there is time for every other one to be asked.
    with running(database_url, mlflow_url, schema, tmp_path, poll_seconds=10.0) as api, ThreadPoolExecutor(8) as pool:
        publish_and_release(mlflow_url, engine, schema, tmp_path)
        wait_for("a first answer", lambda: ask(api.url) == 200, api.log, SLACK_SECONDS)
        assert set(pool.map(ask, [api.url] * 40 * NUM_WORKERS)) == {200}


def test_a_worker_that_cannot_follow_where_others_can_ends_itself_and_is_replaced(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    schema = define(engine)
    first = publish_and_release(mlflow_url, engine, schema, tmp_path)
    with cuttable(mlflow_url) as cut, running(database_url, cut.url, schema, tmp_path) as api:
        pids = set(api.await_version(first))
        victim = max(pids)
        cut.off(victim)
        second = publish_and_release(mlflow_url, engine, schema, tmp_path, bias=1.0)
        replaced = api.await_version(second, without=victim)
        assert len(pids & set(replaced)) == NUM_WORKERS - 1
        assert {api.ask()["version"] for _ in range(5 * NUM_WORKERS)} == {second}
        assert api.counted("morrow_stale_workers_total") == 1
        ended = [line for line in read_log(api.log) if line["event"] == "worker.stale"]
        assert [line["versions"] for line in ended] == [{schema.task.name: [first, second]}]

        # Where nobody reaches the registry, everybody goes on.
        cut.off(*replaced)
        third = publish_and_release(mlflow_url, engine, schema, tmp_path, bias=2.0)
        wait_for("word of the outage", lambda: api.counted("morrow_registry_degraded") == 1, api.log)
        time.sleep(2 * STALE_SECONDS)
        assert api.workers() == replaced
        assert api.ask()["version"] == second != third
        assert api.counted("morrow_stale_workers_total") == 1


def test_a_frozen_worker_is_replaced_while_the_others_follow_and_all_end_when_their_supervisor_is_killed(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    schema = define(engine)
    first = publish_and_release(mlflow_url, engine, schema, tmp_path)
    with running(database_url, mlflow_url, schema, tmp_path) as api:
        victim = max(api.await_version(first))
        os.kill(victim, signal.SIGSTOP)
        second = publish_and_release(mlflow_url, engine, schema, tmp_path, bias=1.0)
        replaced = api.await_version(second, without=victim)
        assert victim not in replaced
        assert {api.ask()["version"] for _ in range(5 * NUM_WORKERS)} == {second}

        everyone = psutil.Process(api.supervisor.pid).children(recursive=True)
        assert len(everyone) >= NUM_WORKERS
        api.supervisor.kill()
        _, alive = psutil.wait_procs(everyone, timeout=SLACK_SECONDS)
        assert alive == []


def test_requests_in_flight_are_answered_after_sigterm_and_nothing_of_the_api_is_left(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    schema = define(engine)
    version = publish_and_release(mlflow_url, engine, schema, tmp_path)
    body = json.dumps({"rows": [{"features": {"distance": 1400, "carrier": "UA"}, "at": question("")["at"]}]}).encode()
    with running(database_url, mlflow_url, schema, tmp_path) as api:
        api.await_version(version)
        everyone = psutil.Process(api.supervisor.pid).children(recursive=True)
        held = [begin_post(api, len(body)) for _ in range(2 * NUM_WORKERS)]
        time.sleep(1)
        api.supervisor.send_signal(signal.SIGTERM)
        time.sleep(1)
        for connection in held:
            connection.send(body)
        answers = [connection.getresponse() for connection in held]
        assert [answer.status for answer in answers] == [200] * len(held)
        assert {json.loads(answer.read())["answers"][0]["version"] for answer in answers} == {version}
        assert api.supervisor.wait(SLACK_SECONDS) == 0
        _, alive = psutil.wait_procs(everyone, timeout=SLACK_SECONDS)
        assert alive == []
    assert sum(line["event"] == "service.stopped" for line in read_log(api.log)) == NUM_WORKERS


def workers_of(supervisor: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """The processes that serve, and not the one that multiprocessing keeps for them."""
    children = psutil.Process(supervisor.pid).children()
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


def begin_post(api: Api, length: int) -> http.client.HTTPConnection:
    """The head of a request; its body is still to come."""
    connection = http.client.HTTPConnection(api.url.removeprefix("http://"), timeout=SLACK_SECONDS)
    connection.putrequest("POST", f"/predict?task={api.task}")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(length))
    connection.endheaders()
    return connection


def read_log(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
