"""What ends a connection: a head that is too large or too slow, what cannot be read, a client that sends no more.

The service is the real process, but where a limit of time would keep the test waiting.
"""

import asyncio
import http.client
import json
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any

import httpx
import pytest
import uvicorn
from sqlalchemy import Engine

from service.server.connection import MAX_HEAD_BYTES, Connection
from tests.integration.api_process import MIB, Running
from tests.integration.service_app import an_event
from tests.integration.sockets import CHUNKED, HEAD, read_answer, say, stored

ALIVE = b"GET /livez HTTP/1.1\r\nHost: morrow\r\n"
TASK = b"GET /tasks/flights HTTP/1.1\r\nHost: morrow\r\n\r\n"
MANY = 64 * MIB
# What the system's buffers of one connection may hold before the client learns that nobody reads.
IN_FLIGHT = 16 * MIB

ENDLESS = {
    "a value": (ALIVE + b"X: ", b"x" * 65_536),
    "a name": (ALIVE, b"x" * 65_536),
    "a path": (b"GET /", b"x" * 65_536),
    "a query": (b"GET /predict?", b"x=1&" * 16_384),
    "headers": (ALIVE, b"X: y\r\n" * 10_000),
    "empty lines": (b"\r\n", b"\r\n" * 32_768),
    "a trailer": (CHUNKED + b"0\r\nX: ", b"x" * 65_536),
    "trailers": (CHUNKED + b"0\r\n", b"X: y\r\n" * 10_000),
    "an extension of a chunk": (CHUNKED + b"1;x=", b"x" * 65_536),
}


def an_ingest(event_id: str) -> bytes:
    body = json.dumps(an_event(event_id)).encode()
    return HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def pour(api: Running, begin: bytes, piece: bytes) -> int:
    """How many bytes the service let itself be sent."""
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as connection, suppress(ConnectionError):
        connection.sendall(begin)
        for size in range(0, MANY, len(piece)):
            try:
                connection.sendall(piece)
            except ConnectionError:
                return size
    return MANY


def test_what_never_comes_to_its_end_is_hung_up_on_and_takes_no_memory(api: Running, engine: Engine) -> None:
    pour(api, *ENDLESS["headers"])
    before = api.rss()
    for name, (begin, piece) in ENDLESS.items():
        assert pour(api, begin, piece) <= IN_FLIGHT, name
        assert api.rss() - before < 8 * MIB, name
    assert stored(engine) == []
    assert httpx.get(f"{api.url}/livez").status_code == 200
    assert "Traceback" not in api.log.read_text()


@pytest.mark.parametrize("num_pieces", [1, 20])
def test_a_head_is_answered_up_to_its_largest_size_and_refused_beyond(api: Running, num_pieces: int) -> None:
    plain = len(b"/livez" + b"hostmorrow" + b"x")
    answers = []
    for size in (MAX_HEAD_BYTES - plain, MAX_HEAD_BYTES - plain + 1):
        wire = ALIVE + b"X: %s\r\n\r\n" % (b"x" * size)
        step = len(wire) // num_pieces + 1
        connection, stream = say(api, [wire[at : at + step] for at in range(0, len(wire), step)])
        with connection, stream:
            answers.append(read_answer(stream))
    assert answers == [200, 431]


def test_a_head_that_comes_in_a_large_piece_and_a_small_one_is_measured_as_a_whole(api: Running) -> None:
    plain = len(b"/livez" + b"hostmorrow" + b"x")
    wire = ALIVE + b"X: %s\r\n\r\n" % (b"x" * (MAX_HEAD_BYTES - plain + 1))
    connection, stream = say(api, [wire[:-10]])
    with connection, stream:
        time.sleep(0.5)  # so that the rest is read apart
        connection.sendall(wire[-10:])
        assert read_answer(stream) == 431


def test_a_head_that_is_too_large_hides_no_request_after_it(api: Running, engine: Engine) -> None:
    long = b"x" * 70_000
    for head in (ALIVE + b"X: " + long, b"GET /%s HTTP/1.1\r\nHost: morrow" % long):
        connection, stream = say(api, [head + b"\r\n\r\n" + an_ingest("hidden")])
        with connection, stream:
            assert read_answer(stream) in (431, None)  # None if the rest came too late to be read
            assert read_answer(stream) is None
    assert stored(engine) == []


def test_who_names_no_host_or_two_is_refused_and_hides_no_request(api: Running, engine: Engine) -> None:
    wrong = (b"", b"Host: a\r\nhost: b\r\n", b"Host: a\r\nHost: a\r\n", b"Host: a b\r\n", b"Host: a, b/c\r\n")
    for hosts in wrong:
        for path in (b"/livez", b"/predict?task=flights", b"/tasks"):
            connection, stream = say(api, [b"GET %s HTTP/1.1\r\n%s\r\n%s" % (path, hosts, an_ingest("hidden"))])
            with connection, stream:
                assert [read_answer(stream), read_answer(stream)] == [400, None], (hosts, path)
    assert stored(engine) == []
    assert "Traceback" not in api.log.read_text()


def test_a_host_is_a_name_or_an_address_and_older_clients_name_none(api: Running) -> None:
    for hosts in (
        b"Host: morrow\r\n",
        b"Host: [::1]:8000\r\n",
        b"Host: 127.0.0.1:8000\r\n",
        b"Host: my_api.x\r\n",
        b"Host:\r\n",
    ):
        connection, stream = say(api, [b"GET /livez HTTP/1.1\r\n%s\r\n" % hosts])
        with connection, stream:
            assert read_answer(stream) == 200, hosts
    connection, stream = say(api, [b"GET /livez HTTP/1.0\r\n\r\n"])
    with connection, stream:
        assert read_answer(stream) == 200


def test_what_came_whole_before_is_answered_first(api: Running, engine: Engine) -> None:
    endings = {"noise": b"\x00 noise\r\n\r\n", "too large": ALIVE + b"X: " + b"x" * 200_000}
    for number, (name, ending) in enumerate(endings.items()):
        connection, stream = say(api, [TASK + an_ingest(f"e-{number}") + ending])
        with connection, stream:
            assert [read_answer(stream) for _ in range(3)] == [200, 200, None], name
    assert stored(engine) == ["e-0", "e-1"]
    assert "Traceback" not in api.log.read_text()


def test_a_client_that_sends_no_more_gets_the_answers_that_it_waits_for(api: Running, engine: Engine) -> None:
    asked = {
        "one": ([an_ingest("a")], [200]),
        "many": ([TASK, an_ingest("b"), ALIVE + b"\r\n", an_ingest("c")], [200, 200, 200, 200]),
        "half of the last": ([an_ingest("d"), ALIVE], [200]),
    }
    for name, (requests, statuses) in asked.items():
        connection, stream = say(api, [b"".join(requests)])
        with connection, stream:
            connection.shutdown(socket.SHUT_WR)
            assert [read_answer(stream) for _ in statuses] == statuses, name
            assert read_answer(stream) is None, name
    assert stored(engine) == ["a", "b", "c", "d"]
    assert "Traceback" not in api.log.read_text()


@pytest.mark.parametrize("other", ["websocket", "h2c"])
def test_who_offers_another_protocol_is_answered_in_this_one_without_a_word_in_the_log(
    api: Running, other: str
) -> None:
    asked = ALIVE + f"Connection: Upgrade\r\nUpgrade: {other}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    connection, stream = say(api, [asked])
    with connection, stream:
        assert read_answer(stream) == 200
        connection.sendall(asked)
        assert read_answer(stream) == 200
    assert "upgrade" not in api.log.read_text().lower()


def test_clients_that_have_left_are_no_error(api: Running) -> None:
    for number in range(50):
        connection, stream = say(api, [TASK + an_ingest(f"e-{number}") + TASK])
        stream.close()
        connection.close()
    assert httpx.get(f"{api.url}/livez").status_code == 200
    assert "Traceback" not in api.log.read_text()


def test_a_question_alone_and_questions_together_are_answered_with_the_same_bytes_and_counted(api: Running) -> None:
    def ask(version: bytes, count: int) -> list[bytes]:
        head = (
            b"GET /predict?at=2026-02-01T00:00:00Z&distance=1400&carrier=UA HTTP/%s\r\nHost: morrow\r\n\r\n" % version
        )
        connection, stream = say(api, [head * count])
        with connection, stream:
            connection.shutdown(socket.SHUT_WR)
            return re.sub(
                rb'((?:date|x-request-id): [^\r]*|connection: close)\r\n|"id":"[^"]*"', b"", stream.read()
            ).split(b"HTTP/1.1 ")[1:]

    (alone,) = ask(b"1.1", 1)
    assert alone.startswith(b"200 OK\r\ncontent-type: application/json\r\ncontent-length: ")
    assert [*ask(b"1.1", 1), *ask(b"1.0", 1), *ask(b"1.1", 50)] == [alone] * 52
    counted = httpx.get(f"{api.url}/metrics").text
    assert 'morrow_requests_total{method="GET",route="/predict",status="200"} 53.0' in counted
    assert 'morrow_predict_seconds_count{method="GET"} 53.0' in counted


def test_each_of_many_who_ask_in_one_turn_gets_its_own_answer_and_who_has_left_none(api: Running) -> None:
    question = b"GET /predict?at=%s&distance=1400&carrier=UA HTTP/1.1\r\nHost: morrow\r\n\r\n"
    moments = [f"20{99 if place % 3 == 1 else 26}-02-01T00:00:{place:02d}Z" for place in range(60)]
    with ExitStack() as opened:
        connections = []
        for _ in moments:
            connection, stream = say(api, [ALIVE + b"\r\n"])
            opened.enter_context(connection)
            assert read_answer(opened.enter_context(stream)) == 200
            connections.append(connection)
        api.process.suspend()  # what is sent meanwhile is all read at once
        for place, (connection, moment) in enumerate(zip(connections, moments, strict=True)):
            connection.sendall(question % moment.encode())
            if place % 3 == 2:
                connection.shutdown(socket.SHUT_RDWR)
        api.process.resume()
        for place, (connection, moment) in enumerate(zip(connections, moments, strict=True)):
            if place % 3 != 2:
                answer = http.client.HTTPResponse(connection)
                answer.begin()
                said = json.load(answer)
                assert (answer.status, said.get("at")) == ((422, None) if place % 3 else (200, moment))
    assert "Traceback" not in api.log.read_text()


def test_a_question_that_must_be_judged_is_counted_by_its_status_too(api: Running) -> None:
    asked = {"at": "2026-02-01T00:00:00Z", "distance": "1400", "carrier": 'a "new" one'}
    assert httpx.get(f"{api.url}/predict", params=asked).status_code == 200
    assert httpx.get(f"{api.url}/predict", params={**asked, "distance": "far"}).status_code == 422
    counted = httpx.get(f"{api.url}/metrics").text
    for status in (200, 422):
        assert f'morrow_requests_total{{method="GET",route="/predict",status="{status}"}} 1.0' in counted


def test_a_proxy_on_the_same_machine_says_how_a_request_came(api: Running) -> None:
    sent = {"X-Forwarded-Proto": "https", "Host": "morrow.example"}
    moved = httpx.get(f"{api.url}/tasks/", headers=sent)
    assert (moved.status_code, moved.headers["location"]) == (307, "https://morrow.example/tasks")


class _Hasty(Connection):
    head_seconds = 0.3
    read_seconds = 0.3


@asynccontextmanager
async def hasty_server(http: type[Connection] = _Hasty) -> AsyncIterator[int]:
    """The port of a server that waits for heads and readers for a moment only; /many is answered by much."""

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        body = bytes(MANY) if scope["path"] == "/many" else b""
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(app, http=http, ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            await serving


@pytest.mark.anyio
async def test_a_head_that_comes_too_slowly_is_408() -> None:
    async with hasty_server() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ALIVE + b"\r\n")
        assert await reader.readuntil(b"\r\n\r\n")
        for byte in ALIVE[:5]:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.01)
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        writer.close()


@pytest.mark.anyio
async def test_a_client_that_connects_and_says_nothing_is_hung_up_on() -> None:
    async with hasty_server() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(reader.read(), 30) == b""
        writer.close()


@pytest.mark.anyio
async def test_a_client_that_does_not_read_its_answer_is_hung_up_on_and_one_that_reads_gets_it_whole() -> None:
    for is_reading in (True, False):
        async with hasty_server(Connection if is_reading else _Hasty) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=65_536)
            writer.write(ALIVE.replace(b"/livez", b"/many") + b"\r\n")
            await reader.readuntil(b"\r\n\r\n")
            if not is_reading:
                await asyncio.sleep(2)
            got = 0
            with suppress(ConnectionError):
                while piece := await reader.read(MIB):
                    got += len(piece)
                    if got == MANY:
                        break
            assert (got == MANY) is is_reading
            writer.close()
