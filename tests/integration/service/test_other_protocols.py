"""A client that offers or begins another protocol: an offer changes nothing, and anything else gets a clear refusal.

Java's HttpClient and `curl --http2` offer HTTP/2 with each first request. The parser of uvicorn takes the body of such
a request for bytes of the other protocol.
"""

import gzip
import json
import socket
from collections.abc import Iterator, Sequence
from http.client import HTTPResponse

import httpx
import pytest
from sqlalchemy import Engine

from tests.integration.api_process import Running
from tests.integration.service_app import TASK, an_event
from tests.integration.sockets import HEAD, read_answer, say, stored

H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\n"
OFFERS = {
    "http/2": H2C,
    "websocket": b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    "two lines": b"Upgrade: h2c, websocket\r\nConnection: upgrade\r\nConnection: keep-alive\r\n",
    "unknown": b"connection:upgrade\r\nupgrade: TLS/1.0\r\n",
}


def body_of(event_id: str) -> bytes:
    return json.dumps(an_event(event_id)).encode()


def with_length(head: bytes, body: bytes) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def in_chunks(head: bytes, body: bytes) -> bytes:
    middle = len(body) // 2
    parts = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:middle], body[middle:]))
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + parts + b"0\r\n\r\n"


def requests(offer: bytes) -> Iterator[tuple[bytes, list[str]]]:
    """Every kind of request that stores events, and the ids that it stores."""
    head = HEAD + offer
    yield with_length(head, body_of("one")), ["one"]
    yield in_chunks(head, body_of("chunks")), ["chunks"]
    yield with_length(head, b"[%s,%s]" % (body_of("array-1"), body_of("array-2"))), ["array-1", "array-2"]
    lines = head.replace(b"json", b"x-ndjson")
    yield with_length(lines, body_of("line-1") + b"\n" + body_of("line-2")), ["line-1", "line-2"]
    yield in_chunks(lines, body_of("line-3") + b"\n" + body_of("line-4")), ["line-3", "line-4"]
    yield with_length(head + b"Content-Encoding: gzip\r\n", gzip.compress(body_of("gzip"))), ["gzip"]


def ask(api: Running, wire: bytes) -> tuple[int, bytes]:
    """The status and the body of the answer to these bytes."""
    connection, stream = say(api, [wire])
    with connection, stream:
        answer = HTTPResponse(connection)
        answer.begin()
        return answer.status, answer.read()


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
def test_a_request_that_offers_another_protocol_is_read_with_its_body(
    api: Running, engine: Engine, offer: bytes
) -> None:
    expected: list[str] = []
    for wire, event_ids in requests(offer):
        expected += event_ids
        status, body = ask(api, wire)
        assert (status, json.loads(body)["created"]) == (200, len(event_ids)), event_ids
    assert stored(engine) == sorted(expected)
    assert "pgrade" not in api.log.read_text()


def test_offers_are_ignored_on_every_path(api: Running) -> None:
    def send(method: str, path: str, body: object) -> tuple[int, dict[str, object]]:
        head = f"{method} {path} HTTP/1.1\r\nHost: morrow\r\nContent-Type: application/json\r\n".encode() + H2C
        status, answer = ask(api, with_length(head, json.dumps(body).encode()))
        return status, json.loads(answer)

    row = {"rows": [{"at": "2026-02-01T00:00:00Z", "features": {"distance": 1400, "carrier": "UA"}}]}
    status, answer = send("POST", "/predict?task=flights", row)
    assert (status, len(answer["answers"])) == (200, 1)  # type: ignore[arg-type]  # any JSON
    status, cycle = send("POST", "/tasks/flights/cycles", {"as_of": "2026-01-22T00:00:00Z"})
    assert (status, cycle["cutoff"]) == (202, "2026-01-22T00:00:00Z")
    changed = {**TASK, "window": "P1D"}
    status, defined = send("PUT", "/tasks/flights", changed)
    assert (status, defined["revision"]) == (200, 2)


def test_a_client_that_offers_another_protocol_and_waits_for_leave_to_send_gets_it(
    api: Running, engine: Engine
) -> None:
    body = body_of("asked")
    connection, stream = say(api, [HEAD + H2C + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)])
    with connection, stream:
        assert read_answer(stream) == 100
        connection.sendall(body)
        assert read_answer(stream) == 200
    assert stored(engine) == ["asked"]


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_offers_in_requests_that_follow_each_other_at_once_hide_none(api: Running, engine: Engine, size: int) -> None:
    wire = b"".join(
        with_length(HEAD + offer, body_of(f"e-{number}"))
        for number, offer in enumerate([H2C, b"", *OFFERS.values(), H2C])
    )
    connection, stream = say(api, [wire[at : at + size] for at in range(0, len(wire), size)])
    with connection, stream:
        assert [read_answer(stream) for _ in range(7)] == [200] * 7
    assert stored(engine) == [f"e-{number}" for number in range(7)]


def test_an_offer_lifts_no_limit_of_the_head(api: Running) -> None:
    head = b"GET /livez HTTP/1.1\r\nHost: morrow\r\n" + H2C
    assert ask(api, head + b"X: %s\r\n\r\n" % (b"x" * 30_000))[0] == 200
    for long in (b"x" * 70_000, b"x" * 65_520):
        assert ask(api, head + b"X: %s\r\n\r\n" % long)[0] == 431
    assert ask(api, head.replace(b"Host: morrow\r\n", b"") + b"\r\n")[0] == 400


@pytest.mark.parametrize(
    ("wire", "said"),
    [
        ([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"], "HTTP/2"),
        ([b"PRI * HTTP/2", b".0\r\n\r\nSM\r\n\r\n"], "HTTP/2"),
        ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)], "TLS"),
        ([b"CONNECT morrow:443 HTTP/1.1\r\nHost: morrow:443\r\n\r\n"], "CONNECT"),
        ([b"hello\r\n\r\n"], "not a request"),
    ],
)
def test_another_protocol_is_refused_in_words_that_name_it(api: Running, wire: Sequence[bytes], said: str) -> None:
    connection, stream = say(api, wire)
    with connection, stream:
        answer = HTTPResponse(connection)
        answer.begin()
        problem = json.load(answer)
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert said in problem["detail"]
        assert stream.read() == b""
    assert httpx.get(f"{api.url}/livez").status_code == 200
    assert "Traceback" not in api.log.read_text()


def test_nothing_after_a_request_to_a_proxy_is_read(api: Running, engine: Engine) -> None:
    connection, stream = say(
        api, [b"CONNECT morrow:443 HTTP/1.1\r\nHost: morrow\r\n\r\n" + with_length(HEAD, body_of("hidden"))]
    )
    with connection, stream:
        connection.shutdown(socket.SHUT_WR)
        assert [read_answer(stream), read_answer(stream)] == [400, None]
    assert stored(engine) == []


def test_a_target_may_be_a_whole_address_with_or_without_a_path(api: Running) -> None:
    for target, status in {
        b"http://morrow/livez": 200,
        b"http://other:80/livez?": 200,
        b"http://morrow": 200,
        b"http://morrow?x=1": 422,
        b"http://morrow/predict?task=flights&at=2026-02-01T00:00:00Z&distance=1&carrier=UA": 200,
        b"morrow/livez": 400,
    }.items():
        assert ask(api, b"GET %s HTTP/1.1\r\nHost: morrow\r\n\r\n" % target)[0] == status, target
    assert ask(api, b"OPTIONS * HTTP/1.1\r\nHost: morrow\r\n\r\n")[0] in (200, 204)
    assert "Traceback" not in api.log.read_text()
