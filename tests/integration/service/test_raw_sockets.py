"""Requests as no client library sends them, on bare sockets: pipelined, cut anywhere, in chunks, of HTTP/1.0, broken.

Whatever way an event comes in, it is stored once if it was acknowledged; what is broken is refused or hung up on, and
nothing that hides behind it is taken for a request.
"""

import gzip
import json
import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPResponse
from uuid import uuid4

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from contracts.clock import format_moment
from tests.integration.api_process import Running
from tests.integration.artefacts import CUTOFF
from tests.integration.service_app import an_event
from tests.integration.sockets import CHUNKED, HEAD, read_answer, say, stored

ALIVE = b"GET /livez HTTP/1.1\r\nHost: morrow\r\n\r\n"
unhurried = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass(frozen=True)
class Request:
    """Bytes on the wire, the status that they deserve, and the ids of the events that they bring."""

    wire: bytes
    status: int
    event_ids: tuple[str, ...] = ()
    has_body: bool = True


def as_chunks(body: bytes, sizes: Sequence[int], ending: bytes = b"0\r\n\r\n") -> bytes:
    """A body in chunks of these sizes, the last of which takes what is left."""
    chunks, at = [], 0
    for size in (*sizes, len(body)):
        piece, at = body[at : at + size], at + size
        if piece:
            chunks.append(b"%x\r\n%s\r\n" % (len(piece), piece))
    return b"".join(chunks) + ending


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """One whole request of a kind that is served."""
    names = (f"e-{uuid4().hex}", f"e-{uuid4().hex}")
    kind = draw(st.sampled_from(["one", "many", "lines", "wrong", "broken", "alive", "head", "nowhere"]))
    if kind in ("alive", "head", "nowhere"):
        path, status = ("/nowhere", 404) if kind == "nowhere" else ("/livez", 200)
        verb = "HEAD" if kind == "head" else "GET"
        wire = f"{verb} {path} HTTP/1.1\r\nHost: morrow\r\n\r\n".encode()
        return Request(wire, status, has_body=kind != "head")
    one, two = (json.dumps(an_event(name)).encode() for name in names)
    head, body, status, ids = {
        "one": (HEAD, one, 200, names[:1]),
        "many": (HEAD, b"[" + one + b"," + two + b"]", 200, names),
        "lines": (HEAD.replace(b"json", b"x-ndjson"), one + b"\n" + two, 200, names),
        "wrong": (HEAD, b'{"event_id": "x"}', 422, ()),
        "broken": (HEAD, one[:-1], 400, ()),
    }[kind]
    if draw(st.booleans()):
        sizes = draw(st.lists(st.integers(1, 60), max_size=4))
        ending = draw(
            st.sampled_from([b"0\r\n\r\n", b"000\r\n\r\n", b"0;last=1\r\n\r\n", b"0\r\nX-Trailer: 1\r\n\r\n"])
        )
        return Request(head + b"Transfer-Encoding: chunked\r\n\r\n" + as_chunks(body, sizes, ending), status, ids)
    return Request(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body), status, ids)


def cut(wire: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({place % len(wire) for place in places} | {len(wire)})
    return [wire[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@unhurried
@given(asked=st.lists(requests(), min_size=1, max_size=6), places=st.lists(st.integers(0, 5000), max_size=6))
def test_requests_that_follow_each_other_unasked_and_cut_anywhere_are_each_answered(
    api: Running, engine: Engine, asked: list[Request], places: list[int]
) -> None:
    before = stored(engine)
    connection, stream = say(api, cut(b"".join(request.wire for request in asked), places))
    with connection, stream:
        answers = [read_answer(stream, has_body=request.has_body) for request in asked]
    assert answers == [request.status for request in asked]
    brought = [event_id for request in asked for event_id in request.event_ids]
    assert stored(engine) == sorted([*before, *brought])


def test_head_finds_what_get_finds_and_has_no_body(api: Running) -> None:
    paths = ["/livez", "/readyz", "/tasks", "/tasks/flights", "/", "/docs", "/metrics", "/events", "/nowhere"]
    paths += ["/predict", f"/predict?task=flights&at={format_moment(CUTOFF)}&distance=1400&carrier=UA"]
    for path in paths:
        found = {}
        for verb in ("GET", "HEAD"):
            connection, stream = say(api, [f"{verb} {path} HTTP/1.1\r\nHost: morrow\r\n\r\n".encode(), ALIVE])
            with connection, stream:
                # The next answer is found where this one ends.
                found[verb] = [read_answer(stream, has_body=verb == "GET"), read_answer(stream)]
        assert found["HEAD"] == found["GET"], path
    assert httpx.post(f"{api.url}/livez").headers["Allow"] == "GET, HEAD"


def test_a_target_may_name_the_server_and_no_slash_hides_in_a_name(api: Running) -> None:
    for target, status in {
        "http://morrow/livez": 200,
        "/tasks/fl%69ghts": 200,
        "/tasks/flights%2Freleases": 200,
        "/tasks/..%2fflights": 404,
        "/tasks/a%252Fb": 404,
        "//livez": 404,
        "/./livez": 404,
        "/livez%3Fx=1": 404,
    }.items():
        connection, stream = say(api, [f"GET {target} HTTP/1.1\r\nHost: morrow\r\n\r\n".encode()])
        with connection, stream:
            assert read_answer(stream) == status, target


def test_a_client_that_asks_first_whether_it_may_send_is_told_to(api: Running, engine: Engine) -> None:
    head = HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(ONE)
    connection, stream = say(api, [head])
    with connection, stream:
        assert read_answer(stream) == 100
        connection.sendall(ONE)
        assert read_answer(stream) == 200
    assert stored(engine) == ["one"]


def test_a_client_of_http_1_0_is_answered_and_hung_up_on(api: Running, engine: Engine) -> None:
    for number, asks in enumerate((b"", b"Connection: keep-alive\r\n")):
        one, other = (json.dumps(an_event(f"{name}-{number}")).encode() for name in ("first", "second"))
        head = HEAD.replace(b"1.1", b"1.0") + asks
        connection, stream = say(api, [head + b"Content-Length: %d\r\n\r\n%s" % (len(one), one)])
        with connection, stream:
            assert read_answer(stream) == 200
            with suppress(ConnectionError):
                connection.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(other), other))
            assert read_answer(stream) is None
    assert stored(engine) == ["first-0", "first-1"]


ONE = json.dumps(an_event("one")).encode()
HIDDEN = json.dumps(an_event("hidden")).encode()
SECOND = HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(HIDDEN), HIDDEN)

BROKEN = {
    "a chunk of no size": CHUNKED + b"\r\n" + ONE,
    "a chunk of a size in letters": CHUNKED + b"zz\r\n" + ONE,
    "a chunk of less than nothing": CHUNKED + b"-5\r\n" + ONE,
    "a chunk of a size with a sign": CHUNKED + b"+5\r\n" + ONE,
    "a chunk of a size with a prefix": CHUNKED + b"0x%x\r\n%s\r\n0\r\n\r\n" % (len(ONE), ONE),
    "a chunk of more than there can be": CHUNKED + b"f" * 17 + b"\r\n" + ONE,
    "a chunk that is longer than it says": CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(ONE) - 1, ONE),
    "a chunk that ends without a line": CHUNKED + b"%x\r\n%s0\r\n\r\n" % (len(ONE), ONE),
    "a length and chunks": HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + as_chunks(ONE, []),
    "two lengths": HEAD + b"Content-Length: %d\r\nContent-Length: 4\r\n\r\n%s" % (len(ONE), ONE),
    "lengths in one line": HEAD + b"Content-Length: %d, %d\r\n\r\n%s" % (len(ONE), len(ONE), ONE),
    "a length with a sign": HEAD + b"Content-Length: +%d\r\n\r\n%s" % (len(ONE), ONE),
    "a length of less than nothing": HEAD + b"Content-Length: -1\r\n\r\n" + ONE,
    "a length in other digits": HEAD + "Content-Length: \u0661\r\n\r\n".encode() + ONE,
    "an unknown coding": HEAD + b"Transfer-Encoding: x\r\n\r\n" + ONE,
    "a space before a colon": HEAD + b"Content-Length : %d\r\n\r\n%s" % (len(ONE), ONE),
    "a header without a colon": HEAD + b"Nothing\r\n\r\n",
    "a header with a NUL": HEAD + b"X: \x00\r\n\r\n",
    "no such version": HEAD.replace(b"1.1", b"9.9") + b"\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a handshake of TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
    "no method": b" /events HTTP/1.1\r\n\r\n",
    "nothing but noise": bytes(range(256)) * 4,
}


def test_what_is_broken_is_refused_and_hides_no_request(api: Running, engine: Engine) -> None:
    for name, wire in BROKEN.items():
        connection, stream = say(api, [wire, SECOND])
        answers = []
        with connection, stream:
            with suppress(OSError):  # the service has hung up already
                connection.shutdown(socket.SHUT_WR)
            while (status := read_answer(stream)) is not None:
                answers.append(status)
        assert all(400 <= status < 500 for status in answers), name
        assert stored(engine) == [], name
    assert httpx.get(f"{api.url}/livez").status_code == 200
    assert "Traceback" not in api.log.read_text()


@pytest.mark.parametrize(
    "codings",
    [
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: deflate,CHUNKED\r\n",
        b"Transfer-Encoding: x-compress, chunked\r\n",
        b"Transfer-Encoding: identity, chunked\r\n",
    ],
)
@pytest.mark.parametrize(
    "first", [b"POST /events?task=flights", b"POST /predict?task=flights", b"PUT /tasks/flights", b"GET /livez"]
)
def test_a_body_in_another_transfer_coding_than_chunks_is_refused_in_words(
    api: Running, engine: Engine, first: bytes, codings: bytes
) -> None:
    for sent in (ONE, gzip.compress(ONE)):
        head = HEAD.replace(b"POST /events?task=flights", first)
        connection, stream = say(api, [head + codings + b"\r\n" + as_chunks(sent, []), SECOND])
        with connection, stream:
            answer = HTTPResponse(connection)
            answer.begin()
            problem = json.loads(answer.read())
        assert (answer.status, problem["type"]) == (501, "/problems/unsupported-transfer")
        assert "Content-Encoding: gzip" in problem["detail"]
        sent_as = ", ".join(re.findall(r"Transfer-Encoding: (.*?)\r\n", codings.decode()))
        assert problem["detail"].startswith(f"Transfer-Encoding is {sent_as!r}. ")
        assert answer.getheader("Connection") == "close"
    assert stored(engine) == []


def test_a_long_head_hides_no_request_after_it(api: Running, engine: Engine) -> None:
    connection, stream = say(api, [HEAD + b"X-Long: %s\r\n\r\n" % (b"x" * 60_000), SECOND])
    with connection, stream:
        assert [read_answer(stream), read_answer(stream)] == [400, 200]
    assert stored(engine) == ["hidden"]


def test_of_a_body_that_is_cut_off_nothing_is_stored(api: Running, engine: Engine) -> None:
    batch = b"[" + ONE + b"," + HIDDEN + b"]"
    whole = {
        "one": HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(ONE), ONE),
        "many": HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(batch), batch),
        "chunks": CHUNKED + as_chunks(ONE, [50]),
    }
    for wire in whole.values():
        connection, stream = say(api, [wire[:-1]])
        with connection, stream:
            connection.shutdown(socket.SHUT_WR)
            assert read_answer(stream) is None
    assert httpx.get(f"{api.url}/livez").status_code == 200
    assert stored(engine) == []
    assert "Traceback" not in api.log.read_text()
