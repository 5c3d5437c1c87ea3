"""What is done to a process of the API from outside, and how it must stand it: bodies that would fill the
memory, log lines that would forge others, clocks of containers that are set to another zone.
"""

import gzip
import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
from sqlalchemy import Engine

from tests.integration.api_process import MIB, Running, define_flights, running
from tests.integration.one_version import without_ids
from tests.integration.service_app import TASK

JSON = {"content-type": "application/json"}
# Limit of a body, twice: read and put together; and what the allocator keeps.
ALLOWED_GROWTH = 96 * MIB


def test_the_time_zone_of_a_container_changes_no_answer(database_url: str, engine: Engine, tmp_path: Path) -> None:
    define_flights(engine)
    answers = []
    for zone in ("UTC", "Asia/Tokyo"):
        with running(database_url, tmp_path / zone.replace("/", "_"), TZ=zone) as api:
            found = [
                httpx.get(f"{api.url}/predict", params={"at": at, "distance": "1400", "carrier": "UA"})
                for at in ("2026-02-01T00:00:00Z", "2026-02-01T09:00:00+09:00", "2026-02-01T00:00:00", "2026-02-01")
            ]
        answers.append([(answer.status_code, without_ids(answer.content)) for answer in found])
    assert answers[0] == answers[1]
    assert [status for status, _ in answers[0]] == [200, 200, 422, 422]
    assert answers[0][0] == answers[0][1]
    assert b"an offset such as Z or +02:00 is required" in answers[0][2][1]


def test_what_would_fill_the_memory_is_refused_early_and_leaves_no_trace(api: Running) -> None:
    """A gzip of a gigabyte, a hundred thousand brackets, more than a million rows, and a body without an end."""
    bomb = gzip.compress(bytes(MIB) * 1024, 1)
    rows = b"[" + b"0," * 1_000_000 + b"0]"

    def endless() -> Iterator[bytes]:
        for _ in range(2048):
            yield bytes(MIB)

    answers = {}
    with httpx.Client(base_url=api.url, timeout=60) as client:
        client.post("/events", content=b"[" + b" " * MIB + b"]", headers=JSON)
        before = api.rss()
        for path in ("/events?task=flights", "/predict?task=flights"):
            answers[path, "bomb"] = client.post(path, content=bomb, headers={**JSON, "content-encoding": "gzip"})
            answers[path, "rows"] = client.post(path, content=rows, headers=JSON)
            answers[path, "deep"] = client.post(path, content=b"[" * 100_000, headers=JSON)
            assert client.get("/livez").status_code == 200
            assert _status_of_endless(api.port, path) == 413
    statuses = {what: answer.status_code for (_, what), answer in answers.items()}
    assert statuses == {"bomb": 413, "rows": 413, "deep": 400}
    assert all(answer.headers["content-type"] == "application/problem+json" for answer in answers.values())
    assert api.rss() - before < ALLOWED_GROWTH


def _status_of_endless(port: int, path: str) -> int:
    """The status that a chunked body gets which never ends, sent until somebody answers."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: morrow\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        sent = 0
        connection.settimeout(0.001)
        while sent < 256 * MIB:
            try:
                return int(connection.recv(64).split()[1])
            except TimeoutError:
                pass
            connection.settimeout(60)
            with suppress(ConnectionError):  # who has answered takes no more; the answer is there to be read
                connection.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
            sent += 0x10000
            connection.settimeout(0.001)
    raise AssertionError(f"{sent} bytes were taken")


def test_two_announced_gigabytes_are_refused_before_any_of_them_is_sent(api: Running) -> None:
    before = api.rss()
    for path in ("/events", "/predict", "/tasks/flights/cycles"):
        with socket.create_connection(("127.0.0.1", api.port), timeout=60) as connection:
            head = f"POST {path} HTTP/1.1\r\nHost: morrow\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: 2147483648\r\n\r\n".encode())
            answer = connection.recv(4096)
        assert answer.split()[1] == b"413"
        assert httpx.get(f"{api.url}/livez").status_code == 200
    assert api.rss() - before < ALLOWED_GROWTH


def test_no_request_writes_a_log_line_of_its_own(api: Running) -> None:
    """Line ends and escapes of terminals, wherever a client may put them."""
    forged = "\r\nERROR forged\x1b[31m"
    quoted = "%0d%0aERROR%20forged%1b%5b31m"
    with httpx.Client(base_url=api.url, timeout=30) as client:
        client.get(f"/predict?task=flights&distance=1&carrier={quoted}")
        client.get(f"/predict?task={quoted}&{quoted}=1")
        client.get(f"/tasks/{quoted}")
        client.get(f"/{quoted}")
        client.put(f"/tasks/{quoted}", json=TASK)
        client.post(f"/events?task={quoted}", json={"event_id": forged})
        client.post("/events?task=flights", json=[{"event_id": forged, "label": forged, forged: forged}])
        client.put(f"/events/{quoted}?task=flights", json={"label": forged})
        client.post("/tasks/flights/override", json={"reason": forged, "actor": forged})
        client.post("/tasks/flights/cycles", headers={"user-agent": "x", "x-forwarded-for": "ERROR forged"})
        time.sleep(0.5)
    lines = api.log.read_bytes().decode().splitlines()
    assert lines
    for line in lines:
        assert isinstance(json.loads(line), dict)
        assert not line.startswith("ERROR")
        assert "\x1b" not in line
