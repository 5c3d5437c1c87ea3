"""Connections that stay open: longer than proxies keep theirs, and after a stop until their requests are answered."""

import json
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from service.settings import ServiceSettings
from tests.integration.api_keys import make_key
from tests.integration.api_process import Running, define_flights, running
from tests.integration.service_app import an_event
from tests.integration.sockets import stored

EVENT = json.dumps(an_event("late"))
JSON = {"Content-Type": "application/json"}


@contextmanager
def kept(api: Running) -> Iterator[HTTPConnection]:
    """A connection on which one request was answered."""
    connection = HTTPConnection("127.0.0.1", api.port, timeout=30)
    try:
        connection.request("GET", "/livez")
        answer = connection.getresponse()
        assert answer.read()
        assert answer.getheader("connection") is None
        yield connection
    finally:
        connection.close()


def test_idle_connections_are_kept_longer_than_by_usual_proxies() -> None:
    assert ServiceSettings().keep_alive_seconds >= 75


def test_an_idle_connection_is_closed_after_the_time_that_is_set_and_one_that_has_asked_nothing_too(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    define_flights(engine)
    with running(database_url, tmp_path, MORROW_KEEP_ALIVE_SECONDS="2") as api, kept(api) as connection:
        fresh = socket.create_connection(("127.0.0.1", api.port), timeout=30)
        began = time.monotonic()
        assert connection.sock.recv(1) == b""
        assert fresh.recv(1) == b""
        assert time.monotonic() - began > 1
        fresh.close()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_request_on_an_open_connection_after_a_stop_is_answered_and_then_hung_up_on(
    database_url: str, engine: Engine, tmp_path: Path, workers: str
) -> None:
    define_flights(engine)
    with running(database_url, tmp_path, MORROW_WORKERS=workers) as api, kept(api) as one, kept(api) as other:
        api.process.send_signal(signal.SIGTERM)
        wait_until_stopping(api, int(workers))
        one.request("POST", "/events?task=flights", EVENT, JSON)
        answer = one.getresponse()
        assert (answer.status, answer.getheader("connection")) == (200, "close")
        other.request("GET", "/predict?task=flights&at=2026-02-01T00:00:00Z&distance=1400&carrier=UA")
        answer = other.getresponse()
        assert (answer.status, answer.getheader("connection")) == (200, "close")
        api.process.wait(30)
    assert stored(engine) == ["late"]


def test_connections_that_ask_nothing_hold_a_stop_up_for_seconds_only(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    define_flights(engine)
    with running(database_url, tmp_path) as api, kept(api) as connection:
        api.process.send_signal(signal.SIGTERM)
        assert connection.sock.recv(1) == b""
        api.process.wait(10)
    assert "Traceback" not in (tmp_path / "log").read_text()


def wait_until_stopping(api: Running, workers: int) -> None:
    """Wait until every worker has begun to stop."""
    deadline = time.monotonic() + 10
    while api.log.read_text().count("Shutting down") < workers:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_two_authorization_headers_are_refused_in_any_order(database_url: str, engine: Engine, tmp_path: Path) -> None:
    define_flights(engine)
    key = make_key(engine, "admin")
    with running(database_url, tmp_path) as api:
        good, bad = f"Bearer {key}", "Bearer morrow-0-none"
        for path in ("/tasks", "/predict?task=flights&at=2026-02-01T00:00:00Z&distance=1&carrier=UA", "/metrics"):
            assert httpx.get(f"{api.url}{path}", headers={"Authorization": good}).status_code == 200
            for pair in ((good, bad), (bad, good), (good, good)):
                answer = httpx.get(f"{api.url}{path}", headers=[("Authorization", one) for one in pair])
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), path
                assert "more than one Authorization header" in answer.json()["detail"]
            assert httpx.get(f"{api.url}{path}", headers={"Authorization": f"{good}, {bad}"}).status_code == 401


def records(log: Path) -> list[dict[str, Any]]:
    """The answers in the log of a process that has ended: a request is logged after its answer was sent."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "request.answered"]


def test_the_log_shows_each_answer_with_its_status_problem_task_and_time(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    define_flights(engine)
    asked = {"at": "2026-02-01T00:00:00Z", "distance": "1400", "carrier": "UA"}
    with running(database_url, tmp_path) as api:
        httpx.get(f"{api.url}/predict", params=asked)
        httpx.get(f"{api.url}/predict", params={**asked, "at": "2099-01-01T00:00:00Z"})
        httpx.post(f"{api.url}/events", params={"task": "flights"}, json=an_event())
        httpx.get(f"{api.url}/tasks/nowhere")
        httpx.get(f"{api.url}/nowhere")
        httpx.get(f"{api.url}/livez")
        with socket.create_connection(("127.0.0.1", api.port)) as connection:
            connection.sendall(b"noise\r\n\r\n")
            assert connection.recv(4096)
        httpx.get(f"{api.url}/tasks/flights")
    answered = records(api.log)
    assert [(one.get("route"), one["status"], one.get("problem"), one.get("task")) for one in answered] == [
        ("/predict", 200, None, "flights"),
        ("/predict", 422, "/problems/outside-horizon", "flights"),
        ("/events", 200, None, "flights"),
        ("/tasks/{task}", 404, "/problems/not-found", "nowhere"),
        ("none", 404, "/problems/no-such-path", None),
        (None, 400, "/problems/malformed", None),
        ("/tasks/{task}", 200, None, "flights"),
    ]
    assert all(one["ms"] >= 0 for one in answered if "route" in one)


def test_the_access_log_can_be_turned_off(database_url: str, engine: Engine, tmp_path: Path) -> None:
    define_flights(engine)
    with running(database_url, tmp_path, MORROW_ACCESS_LOG="off") as api:
        assert httpx.get(f"{api.url}/tasks/flights").status_code == 200
    assert records(api.log) == []
