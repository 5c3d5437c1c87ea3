"""The search for all aliases: how often, what it misses meanwhile, and what garbage in it does."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from service.models.registry import aliases
from service.models.registry.client import make_client, search_models
from store.tasks.catalog import Schema
from tests.integration.artefacts import move_alias, publish, write_version
from tests.integration.make_follower import MakeFollower, ask
from tests.integration.published_versions import define, note, publish_and_release
from tests.integration.watched_registry import overheard

SEARCH = "registered-models/search"
LONG_AFTER = 100_000.0
Answer = tuple[int, bytes]


@contextmanager
def changed_search(url: str, change: Callable[[bytes], Answer]) -> Iterator[str]:
    """The URL of a server that hands requests on to `url`, and changes the answer to a search."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = httpx.get(url + self.path, timeout=30)
            status, body = found.status_code, found.content
            if SEARCH in self.path:
                status, body = change(body)
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Tests report failures themselves."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def large_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search as seldom as in a registry of thousands of models."""
    monkeypatch.setattr(aliases, "SEARCHED_EACH_POLL", -10_000)


@pytest.fixture
def two_versions(engine: Engine, schema: Schema, mlflow_url: str, tmp_path: Path) -> Schema:
    """A task whose alias names version 1 of two."""
    publish_and_release(mlflow_url, engine, schema, tmp_path)
    publish(mlflow_url, schema.task.name, write_version(tmp_path / "2", task=schema.task.name), champion=False)
    return schema


@pytest.mark.usefixtures("large_registry")
def test_an_alias_that_was_moved_by_hand_in_a_large_registry_is_obeyed_after_the_pause(
    make_follower: MakeFollower, two_versions: Schema, mlflow_url: str
) -> None:
    task, paths = two_versions.task.name, list[str]()
    with overheard(mlflow_url, lambda _, path: paths.append(path)) as url:
        follower = make_follower(registry=url)
        follower.poll(0)
        move_alias(mlflow_url, task, "2")
        paths.clear()
        follower.poll(1)
        assert (ask(follower, task).version, paths) == ("1", [])
        follower.poll(LONG_AFTER)
        assert ask(follower, task).version == "2"
        assert [path for path in paths if SEARCH in path]


@pytest.mark.usefixtures("large_registry")
def test_a_release_in_a_large_registry_is_obeyed_at_the_next_look(
    make_follower: MakeFollower, engine: Engine, two_versions: Schema, mlflow_url: str
) -> None:
    follower, task = make_follower(), two_versions.task.name
    follower.poll(0)
    move_alias(mlflow_url, task, "2")
    note(engine, two_versions, "2", "release")
    follower.poll(1)
    assert ask(follower, task).version == "2"
    note(engine, two_versions, "1", "rollback")
    move_alias(mlflow_url, task, "1")
    follower.poll(2)
    assert ask(follower, task).version == "1"


@pytest.mark.usefixtures("large_registry")
def test_a_first_release_in_a_large_registry_is_obeyed_at_the_next_look(
    make_follower: MakeFollower, engine: Engine, schema: Schema, mlflow_url: str, tmp_path: Path
) -> None:
    follower = make_follower()
    follower.poll(0)
    publish_and_release(mlflow_url, engine, schema, tmp_path)
    follower.poll(1)
    assert ask(follower, schema.task.name).version == "1"


@pytest.mark.parametrize(
    "answer", [(200, b"<html>"), (502, b"Bad gateway"), (200, b""), (200, b"[]"), (404, b"{}"), (200, b"\xff")], ids=str
)
def test_a_search_that_cannot_be_read_is_named_and_costs_no_answer(
    make_follower: MakeFollower, two_versions: Schema, mlflow_url: str, answer: Answer
) -> None:
    make_follower().poll(0)
    task = two_versions.task.name
    with changed_search(mlflow_url, lambda _: answer) as url:
        follower = make_follower(registry=url)
        follower.poll(0)
        assert ask(follower, task).version == "1"
        assert follower.registries[task].state == "degraded"
        assert follower.database_answers
        assert follower.is_ready


def test_an_entry_of_the_search_that_cannot_be_read_is_asked_for_alone_and_harms_no_other_task(
    make_follower: MakeFollower, engine: Engine, mlflow_url: str, tmp_path: Path
) -> None:
    odd, other = define(engine), define(engine)
    for schema in (odd, other):
        publish_and_release(mlflow_url, engine, schema, tmp_path)

    def garble(body: bytes) -> Answer:
        found: dict[str, Any] = json.loads(body)
        for model in found["registered_models"]:
            if model["name"] == odd.task.name:
                model["aliases"] = [{"alias": "champion", "version": 1}]
        return 200, json.dumps(found).encode()

    with changed_search(mlflow_url, garble) as url:
        follower = make_follower(registry=url)
        follower.poll(0)
        for schema in (odd, other):
            assert ask(follower, schema.task.name).version == "1"
            assert follower.registries[schema.task.name].state == "ok"


def test_a_search_reads_every_page(engine: Engine, mlflow_url: str, tmp_path: Path) -> None:
    schemas = [define(engine) for _ in range(2)]
    for schema in schemas:
        publish_and_release(mlflow_url, engine, schema, tmp_path)
    with make_client(mlflow_url) as client:
        found = search_models(client, page_size=1)
    assert [found[schema.task.name].champion for schema in schemas] == ["1", "1"]
