"""Bodies of all connections share a budget: beyond it, large ones are refused unread, and small requests go on."""

import gzip
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import httpx
import pytest
from pydantic import ValidationError
from sqlalchemy import Engine

from service.settings import BODY_BUDGET_BYTES, ServiceSettings
from service.web.body_budget import FREE_BYTES
from tests.integration.api_process import MIB, Running, define_flights, running
from tests.integration.service_app import TASK, an_event, service_settings, serving
from tests.integration.sockets import HEAD, SECONDS, read_answer, say, stored

pytestmark = pytest.mark.anyio

NDJSON = {"content-type": "application/x-ndjson"}
QUESTION = "/predict?task=flights&distance=1400&carrier=UA&wind=3&at=2026-01-30T00:00:00Z"


@pytest.fixture
def api(database_url: str, engine: Engine, tmp_path: Path) -> Iterator[Running]:
    """A process that holds bodies of 256 KiB at once, the largest that it takes."""
    define_flights(engine)
    budget = {"MORROW_MAX_BODY_BYTES": str(4 * FREE_BYTES), "MORROW_BODY_BUDGET_BYTES": str(4 * FREE_BYTES)}
    with running(database_url, tmp_path, **budget) as api:
        yield api


@pytest.fixture
async def client(database_url: str, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service with that budget."""
    settings = service_settings(database_url, tmp_path, max_body_bytes=4 * FREE_BYTES, body_budget_bytes=4 * FREE_BYTES)
    async with serving(settings) as client:
        assert (await client.put("/tasks/flights", json=TASK)).status_code == 201
        yield client


def padded(size: int, event_id: str = "e1") -> bytes:
    """An event in a body of that many bytes."""
    return json.dumps(an_event(event_id)).encode().ljust(size)


def with_length(body: bytes) -> bytes:
    """The head of a request to store a body."""
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body)


def ask(api: Running, path: str = QUESTION) -> int:
    return httpx.get(api.url + path, timeout=SECONDS).status_code


@contextmanager
def saying(api: Running, *pieces: bytes) -> Iterator[tuple[socket.socket, BinaryIO]]:
    """A connection on which these bytes were sent, and what comes back on it."""
    connection, answers = say(api, pieces)
    with connection, answers:
        yield connection, answers


def answer_to(api: Running, *pieces: bytes) -> int | None:
    """The status of the answer to these bytes."""
    with saying(api, *pieces) as (_, answers):
        return read_answer(answers)


def test_a_body_without_room_is_503_before_it_is_read_and_others_are_taken(api: Running, engine: Engine) -> None:
    large = padded(4 * FREE_BYTES)
    with saying(api, with_length(large), large[:10]) as (slow, answers):
        assert ask(api) == 200
        for path in (b"/events?task=flights", b"/predict?task=flights", b"/tasks/flights/erasures"):
            with saying(api, with_length(large).replace(b"/events?task=flights", path)) as (_, refusal):
                assert refusal.readline().split()[1] == b"503"
                lines = {line.strip().lower() for line in iter(refusal.readline, b"\r\n")}
                assert {b"retry-after: 1", b"connection: close"} <= lines
                assert b'"type":"/problems/overloaded"' in (said := refusal.read())
                assert b"MORROW_BODY_BUDGET_BYTES" in said
        for size in (500, FREE_BYTES):
            assert answer_to(api, with_length(padded(size)), padded(size, f"s{size}")) == 200
        slow.sendall(large[10:])
        assert read_answer(answers) == 200
    assert answer_to(api, with_length(large), large) == 200
    assert stored(engine) == ["e1", "s500", "s65536"]


def test_room_is_given_back_by_a_client_that_leaves(api: Running) -> None:
    large = padded(4 * FREE_BYTES)
    for _ in range(3):
        with saying(api, with_length(large), large[:10]):
            assert ask(api) == 200
        until = time.monotonic() + SECONDS
        while (status := answer_to(api, with_length(large), large)) == 503 and time.monotonic() < until:
            time.sleep(0.05)
        assert status == 200


def test_a_body_of_unknown_length_takes_room_as_it_arrives(api: Running, engine: Engine) -> None:
    large = padded(4 * FREE_BYTES)
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(large)
    with saying(api, with_length(large), large[:10]) as (first, answers):
        assert ask(api) == 200
        assert answer_to(api, chunked, large, b"\r\n0\r\n\r\n") == 503
        first.sendall(large[10:])
        assert read_answer(answers) == 200
    assert stored(engine) == ["e1"]


def test_a_client_that_goes_on_sending_reads_why_its_body_is_refused(api: Running) -> None:
    """It reads nothing until all is sent, and more than the buffers of both sides hold."""
    large = padded(4 * FREE_BYTES)
    body = bytes(200 * FREE_BYTES)
    with saying(api, with_length(large), large[:10]):
        assert ask(api) == 200
        for length, status in ((len(large), 503), (len(body), 413)):
            with socket.create_connection(("127.0.0.1", api.port), timeout=SECONDS) as connection:
                connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % length)
                connection.sendall(body[:length])
                with connection.makefile("rb") as answers:
                    assert read_answer(answers) == status


async def test_a_stream_of_lines_needs_room_for_a_part_of_it_only(client: httpx.AsyncClient) -> None:
    lines = [json.dumps(an_event(f"e{number}")).encode().ljust(1000) for number in range(2000)]
    refused = await client.post("/events", params={"task": "flights"}, content=b"\n".join(lines), headers=NDJSON)
    assert refused.status_code == 503
    assert "0 lines before line 1 are stored: send all of them again" in refused.json()["detail"]


async def test_what_compressed_bodies_hold_counts_once_it_is_there(client: httpx.AsyncClient) -> None:
    body = gzip.compress(padded(4 * FREE_BYTES))
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    for _ in range(3):
        answer = await client.post("/events", params={"task": "flights"}, content=body, headers=headers)
        assert answer.status_code == 200


def test_a_budget_has_room_for_the_largest_body() -> None:
    given: dict[str, Any] = {"database_url": "postgresql://nobody@127.0.0.1:9/morrow"}
    assert ServiceSettings(**given).body_budget_bytes == BODY_BUDGET_BYTES
    large = 2 * BODY_BUDGET_BYTES
    assert ServiceSettings(**given, max_body_bytes=large).body_budget_bytes == large
    with pytest.raises(ValidationError, match=f"is 5, in which no body of MORROW_MAX_BODY_BYTES={16 * MIB} has room"):
        ServiceSettings(**given, body_budget_bytes=5)


@pytest.mark.story
def test_many_large_bodies_at_once_stay_within_the_budget_and_hold_up_no_question(
    database_url: str, engine: Engine, tmp_path: Path
) -> None:
    define_flights(engine)
    rows = ",".join(json.dumps(an_event(f"e{number}")).ljust(1600) for number in range(10_000))
    body = f"[{rows}]".encode()
    assert 15 * MIB < len(body) < 16 * MIB
    with running(database_url, tmp_path) as api:
        ask(api)
        before, peak, is_done, asked = api.rss(), 0, threading.Event(), Counter[int]()

        def watch() -> None:
            nonlocal peak
            while not is_done.is_set():
                peak = max(peak, api.rss())

        def question() -> None:
            while not is_done.is_set():
                asked[ask(api)] += 1

        def send(_: int) -> int:
            with suppress(httpx.TransportError):
                given = {"params": {"task": "flights"}, "headers": {"content-type": "application/json"}}
                return httpx.post(f"{api.url}/events", content=body, timeout=SECONDS, **given).status_code  # type: ignore[arg-type]  # a header
            return 0

        with ThreadPoolExecutor(66) as pool:
            others = [pool.submit(watch), pool.submit(question)]
            statuses = Counter(pool.map(send, range(64)))
            is_done.set()
            for other in others:
                other.result()
    assert statuses.keys() == {200, 503}
    assert asked.keys() == {200}
    assert peak - before < BODY_BUDGET_BYTES + 192 * MIB
