"""A receiver that is slow, broken or hostile harms nobody but itself."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler

import pytest
from sqlalchemy import Engine, text

from tests.integration.hook_receiver import (
    Behaviour,
    answer,
    be_patient,
    deliveries,
    events_of,
    make_hook,
    receiving,
    states_of,
    waits_for,
)
from tests.integration.published_versions import NOW, define, note

SECOND = timedelta(seconds=1)
HUGE_HEAD = b"HTTP/1.1 200 OK\r\nx: " + b"x" * 300_000 + b"\r\n\r\n"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other tests may take long for a request."""
    be_patient(monkeypatch)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a slow receiver waits for; open at the end, so that no thread stays behind."""
    gate = threading.Event()
    yield gate
    gate.set()


def endless(piece: bytes) -> Behaviour:
    """A body without end, after a head of success."""

    def behave(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while True:  # until the client closes the connection
            handler.wfile.write(piece)

    return behave


def test_a_slow_receiver_delays_no_other_hook(engine: Engine, gate: threading.Event) -> None:
    schema, other = define(engine), define(engine)
    with receiving(waits_for(gate)) as slow, receiving() as fast:
        make_hook(engine, slow.url, "slow")
        make_hook(engine, fast.url, "fast")
        for version in ("1", "2", "3"):
            note(engine, schema, version, "release")
        thread = threading.Thread(target=deliveries(engine).tick, args=[NOW + SECOND])
        thread.start()
        slow.wait_for(1)
        fast.wait_for(3)
        note(engine, other, "1", "release")  # while the slow one is still asked
        fast.wait_for(4)
        assert len(slow.got) == 1
        gate.set()
        thread.join()
        assert len(slow.got) == 4
    assert {*states_of(engine, "slow"), *states_of(engine, "fast")} == {"delivered"}


def test_many_slow_receivers_together_delay_no_other_hook(engine: Engine, gate: threading.Event) -> None:
    with receiving(waits_for(gate)) as slow, receiving() as fast:
        for place in range(50):
            make_hook(engine, slow.url, f"slow_{place}")
        make_hook(engine, fast.url)
        for version in ("1", "2"):
            note(engine, define(engine), version, "release")
        thread = threading.Thread(target=deliveries(engine).tick, args=[NOW + SECOND])
        thread.start()
        fast.wait_for(2)
        slow.wait_for(50)
        assert len(slow.got) == 50
        gate.set()
        thread.join()
        assert len(slow.got) == 100


def test_no_transaction_is_open_during_a_request(engine: Engine, gate: threading.Event) -> None:
    with receiving(waits_for(gate)) as receiver:
        make_hook(engine, receiver.url)
        note(engine, define(engine), "1", "release")
        thread = threading.Thread(target=deliveries(engine).tick, args=[NOW + SECOND])
        thread.start()
        receiver.wait_for(1)
        with engine.begin() as connection:  # would wait for a transaction that holds the event
            connection.execute(text("SELECT FROM deliveries FOR UPDATE"))
        gate.set()
        thread.join()
    assert states_of(engine) == ["delivered"]


def test_a_receiver_that_never_ends_its_head_is_left_after_a_while(
    engine: Engine, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.hooks.sending.LONGEST_SECONDS", 1.0)

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while not gate.wait(0.05):
            handler.wfile.write(b"x: y\r\n")

    with receiving(drip) as receiver:
        make_hook(engine, receiver.url)
        note(engine, define(engine), "1", "release")
        deliveries(engine).tick(NOW + SECOND)
        gate.set()
    (event,) = events_of(engine)
    assert (event.state, event.answer) == ("waiting", "no whole answer within 1 s")


def test_a_body_without_end_is_read_no_further_than_its_beginning(engine: Engine) -> None:
    with receiving(endless(b"x" * 4096)) as receiver:
        make_hook(engine, receiver.url)
        note(engine, define(engine), "1", "release")
        deliveries(engine).tick(NOW + SECOND)
    (event,) = events_of(engine)
    assert event.state == "delivered"
    assert event.answer is not None
    assert len(event.answer) < 300


@pytest.mark.parametrize("body", ["silent", "broken off"])
def test_an_event_is_taken_once_the_head_says_so_whatever_becomes_of_the_body(
    engine: Engine, gate: threading.Event, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.hooks.sending._BODY_SECONDS", 1.0)

    def behave(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(202)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"noted")
        handler.wfile.flush()
        if body == "silent":
            gate.wait(120)

    with receiving(behave) as receiver:
        make_hook(engine, receiver.url)
        note(engine, define(engine), "1", "release")
        deliveries(engine).tick(NOW + SECOND)
        gate.set()
    (event,) = events_of(engine)
    assert event.state == "delivered"
    assert str(event.answer).startswith("202 Accepted")


@pytest.mark.parametrize(
    "said", [b"", b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 999999 no\r\n\r\n", b"\x00" * 1000, HUGE_HEAD]
)
def test_what_is_no_answer_in_http_is_a_failure(engine: Engine, said: bytes) -> None:
    def behave(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(said)

    with receiving(behave) as receiver:
        make_hook(engine, receiver.url)
        note(engine, define(engine), "1", "release")
        deliveries(engine).tick(NOW + SECOND)
    (event,) = events_of(engine)
    assert (event.state, event.num_attempts) == ("waiting", 1)
    assert event.answer


def test_a_redirect_is_not_followed(engine: Engine) -> None:
    with receiving() as inside, receiving(answer(307, Location=inside.url)) as receiver:
        make_hook(engine, receiver.url)
        note(engine, define(engine), "1", "release")
        deliveries(engine).tick(NOW + SECOND)
    (event,) = events_of(engine)
    assert event.state == "waiting"
    assert "redirects are not followed" in str(event.answer)
    assert inside.got == []


def test_a_receiver_that_is_away_is_tried_again(engine: Engine) -> None:
    with receiving() as receiver:
        url = receiver.url
    make_hook(engine, url)
    note(engine, define(engine), "1", "release")
    deliveries(engine).tick(NOW + SECOND)
    (event,) = events_of(engine)
    assert (event.state, event.num_attempts) == ("waiting", 1)
    assert "no connection to 127.0.0.1" in str(event.answer)
