"""What answers in MLflow's place may be a proxy's page, a redirect, or anything: the last version goes on answering.

One task's garbled answers stop the following of no other, fill no memory and hold nothing up for long.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from sqlalchemy import Engine

from service.models.registry.client import MAX_ANSWER_BYTES
from tests.integration.artefacts import publish, write_version
from tests.integration.make_follower import MakeFollower, ask
from tests.integration.published_versions import define

Write = Callable[[BaseHTTPRequestHandler], None]
ALIAS, URI = "registered-models/alias", "model-versions/get-download-uri"


def say(body: bytes, status: int = 200, **headers: str) -> Write:
    """An answer with this body."""

    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return write


def go_on_for_ever(handler: BaseHTTPRequestHandler) -> None:
    """An answer that has no end, at full speed."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * 65536)


def trickle(handler: BaseHTTPRequestHandler) -> None:
    """An answer of which a byte comes every half a second: no pause is long."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" ")
        time.sleep(0.5)


@contextmanager
def garbled(url: str, task: str, place: str, write: Write) -> Iterator[str]:
    """The URL of a server that hands requests on to `url`, but answers itself what is asked of a task at one place."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            try:
                if asked.path.endswith(place) and parse_qs(asked.query).get("name") == [task]:
                    write(self)
                    return
                answer = httpx.get(url + self.path, timeout=30)
                say(answer.content, answer.status_code)(self)
            except (BrokenPipeError, ConnectionResetError):
                """The client has had enough."""

        def log_message(self, *_: object) -> None:
            """Tests report failures themselves."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


GARBAGE: dict[str, tuple[str, Write]] = {
    "a page": (ALIAS, say(b"<html>Sign in</html>")),
    "an error page": (ALIAS, say(b"<html>Bad gateway</html>", 502)),
    "a redirect": (ALIAS, say(b"", 302, location="http://127.0.0.1:9/")),
    "nothing": (ALIAS, say(b"")),
    "no UTF-8": (ALIAS, say(b'{"model_version": "\xff"}')),
    "an array": (ALIAS, say(b"[]")),
    "no version": (ALIAS, say(b'{"model_version": null}')),
    "a version that is no text": (ALIAS, say(b'{"model_version": {"version": 3}}')),
    "a version that is a path": (ALIAS, say(b'{"model_version": {"version": "../3"}}')),
    "an odd moment": (ALIAS, say(b'{"model_version": {"version": "7", "creation_timestamp": "now"}}')),
    "many brackets": (ALIAS, say(b'{"a":' + b"[" * 100_000)),
    "a false encoding": (ALIAS, say(b"no gzip", 200, **{"content-encoding": "gzip"})),
    "no end": (ALIAS, go_on_for_ever),
    "a trickle": (ALIAS, trickle),
    "no address": (URI, say(b"{}")),
    "an address that is no text": (URI, say(b'{"artifact_uri": []}')),
    "an open bracket": (URI, say(b'{"artifact_uri": "mlflow-artifacts://[/x"}')),
    "a control character": (URI, say(b'{"artifact_uri": "mlflow-artifacts:/a\\u0000b"}')),
    "a query": (URI, say(b'{"artifact_uri": "mlflow-artifacts:/a?b#c"}')),
    "a long address": (URI, say(b'{"artifact_uri": "mlflow-artifacts:/' + b"a" * (MAX_ANSWER_BYTES // 2) + b'"}')),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_a_garbled_answer_is_named_and_costs_neither_an_answer_nor_another_task_its_swap(
    make_follower: MakeFollower, engine: Engine, mlflow_url: str, tmp_path: Path, garbage: tuple[str, Write]
) -> None:
    names = sorted(define(engine).task.name for _ in range(2))
    first = [publish(mlflow_url, task, write_version(tmp_path / f"{task}1", task=task)) for task in names]
    make_follower().poll(0)
    second = [publish(mlflow_url, task, write_version(tmp_path / f"{task}2", task=task, bias=1.0)) for task in names]
    garbled_task, other = names
    with garbled(mlflow_url, garbled_task, *garbage) as url:
        follower = make_follower(registry=url)
        began = time.monotonic()
        follower.poll(0)
        assert time.monotonic() - began < 60
    assert [ask(follower, garbled_task).version, ask(follower, other).version] == [first[0], second[1]]
    assert follower.registries[other].state == "ok"
    found = follower.registries[garbled_task]
    assert found.state == "degraded"
    assert found.reason is not None
    assert "log" not in found.reason, "that would be a mistake of Morrow's"
    follower = make_follower()
    follower.poll(1)
    assert ask(follower, garbled_task).version == second[0]


def test_nobody_is_ready_before_the_registry_has_been_asked_for_a_version(
    make_follower: MakeFollower, task: str, mlflow_url: str, tmp_path: Path
) -> None:
    publish(mlflow_url, task, write_version(tmp_path / "one", task=task))
    is_asked, may_go_on = threading.Event(), threading.Event()

    def think(handler: BaseHTTPRequestHandler) -> None:
        is_asked.set()
        may_go_on.wait(30)
        say(httpx.get(mlflow_url + handler.path, timeout=30).content)(handler)

    with garbled(mlflow_url, task, ALIAS, think) as url:
        follower = make_follower(registry=url)
        looking = threading.Thread(target=follower.poll, args=(0,))
        looking.start()
        assert is_asked.wait(30)
        assert follower.database_answers
        assert not follower.is_ready
        may_go_on.set()
        looking.join()
    assert follower.is_ready
    assert task in follower.forecasters
