"""Receivers of hooks for tests: real servers that note what they get and answer as told; and hooks for them."""

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Engine

from contracts.hooks.receivers import read_networks
from store.hooks.ledger import Hook, add_hook, find_hook
from store.hooks.outbox import SentEvent, list_events
from tests.integration.published_versions import NOW
from trainer.hooks.deliveries import HookDeliveries
from trainer.settings import TrainerSettings

SECRET = bytes(range(32))
LOOPBACK = read_networks("127.0.0.0/8")
Behaviour = Callable[[BaseHTTPRequestHandler], None]


@dataclass(frozen=True)
class Got:
    """A request that a receiver got."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


def accept(handler: BaseHTTPRequestHandler) -> None:
    """204, without a body."""
    handler.send_response(204)
    handler.end_headers()


def answer(status: int, body: bytes = b"", **headers: str) -> Behaviour:
    """Always the same answer."""

    def behave(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return behave


def waits_for(gate: threading.Event) -> Behaviour:
    """204 once the gate is open."""

    def behave(handler: BaseHTTPRequestHandler) -> None:
        gate.wait(120)
        answer(204)(handler)

    return behave


class Receiver(ThreadingHTTPServer):
    """A server on the loopback. `behave` may be replaced at any time."""

    request_queue_size = 128

    def __init__(self, behave: Behaviour) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behave = behave
        self.got: list[Got] = []
        self.news = threading.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"

    @property
    def ids(self) -> list[str]:
        """The ids of the events, in the order in which they came."""
        return [one.event["id"] for one in self.got]

    def wait_for(self, count: int, seconds: float = 120) -> None:
        """Wait until this many requests have come."""
        with self.news:
            assert self.news.wait_for(lambda: len(self.got) >= count, seconds), self.got

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client may leave in the middle."""


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        receiver = cast(Receiver, self.server)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with receiver.news:
            receiver.got.append(Got(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            receiver.news.notify_all()
        receiver.behave(self)

    def log_message(self, format: str, *_given: object) -> None:
        """Nothing: a test prints only what fails."""


@contextmanager
def receiving(behave: Behaviour = accept, certificate: Path | None = None) -> Iterator[Receiver]:
    """A receiver while the block runs, behind TLS if it has a certificate."""
    receiver = Receiver(behave)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        receiver.socket = context.wrap_socket(receiver.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=receiver.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield receiver
    finally:
        receiver.shutdown()
        thread.join()
        receiver.server_close()


def make_hook(
    engine: Engine,
    url: str,
    name: str = "ops",
    *,
    task_ids: Sequence[int] | None = None,
    types: Sequence[str] | None = None,
    now: datetime = NOW,
) -> Hook:
    with engine.begin() as connection:
        return add_hook(connection, name, url, SECRET, task_ids=task_ids, types=types, actor="Ada", now=now)


def events_of(engine: Engine, name: str = "ops") -> list[SentEvent]:
    """The events of a hook, oldest first."""
    with engine.connect() as connection:
        return list(list_events(connection, find_hook(connection, name).hook_id, 1000))[::-1]


def states_of(engine: Engine, name: str = "ops") -> list[str]:
    return [event.state for event in events_of(engine, name)]


def deliveries(engine: Engine, **changes: Any) -> HookDeliveries:
    """What a trainer sends with, one that may ask this machine."""
    settings = TrainerSettings.model_validate({"hooks_allow_private": LOOPBACK, **changes})
    return HookDeliveries(engine, settings, threading.Event())


def be_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests take minutes, until the test ends."""
    monkeypatch.setattr("trainer.hooks.sending.LONGEST_SECONDS", 120.0)
    monkeypatch.setattr("trainer.hooks.sending._BODY_SECONDS", 60.0)


def wait_until(is_met: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not is_met():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)
