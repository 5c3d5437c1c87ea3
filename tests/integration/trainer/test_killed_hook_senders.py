"""A trainer is killed while it sends: no event is lost, and one that comes twice has one id."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from store.hooks.ledger import find_hook
from tests.integration.hook_receiver import accept, events_of, make_hook, receiving, states_of, wait_until
from tests.integration.published_versions import define, note
from tests.integration.service_app import DEAD_REGISTRY
from tests.servers import stop
from trainer.scheduling.liveness import HEARTBEAT_FILE


@contextmanager
def trainer(database_url: str, home: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """`python -m trainer`, which sends although its MLflow is away."""
    given = {
        "MORROW_HOME": str(home),
        "MORROW_DATABASE_URL": database_url,
        "MORROW_MLFLOW_URL": DEAD_REGISTRY,
        "MORROW_TICK_SECONDS": "0.1",
        "MORROW_HOOKS_ALLOW_PRIVATE": "127.0.0.0/8",
    }
    home.mkdir(exist_ok=True)
    with (home / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "trainer"],
            env={**os.environ, **given},
            start_new_session=True,
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            stop(process)


def kill(process: "subprocess.Popen[bytes]") -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def let_claims_run_out(engine: Engine) -> None:
    """As a minute later."""
    with engine.begin() as connection:
        connection.execute(text("UPDATE deliveries SET due_at = now() WHERE due_at IS NOT NULL"))


@pytest.mark.parametrize("step", ["before the answer", "between answer and note"])
def test_a_killed_trainer_loses_nothing_and_the_next_one_sends_by_the_same_id(
    engine: Engine, database_url: str, tmp_path: Path, step: str
) -> None:
    schema, killed, answered = define(engine), threading.Event(), threading.Event()

    with trainer(database_url, tmp_path / "first") as process, receiving() as receiver:

        def behave(handler: BaseHTTPRequestHandler) -> None:
            os.killpg(process.pid, signal.SIGSTOP)  # so that it reads no answer
            if step == "before the answer":
                answered.set()
                killed.wait(120)
            else:
                accept(handler)
                answered.set()

        receiver.behave = behave
        make_hook(engine, receiver.url, types=["morrow.version.released"])
        for version in ("1", "2", "3"):
            note(engine, schema, version, "release", now=datetime.now(UTC))
        assert answered.wait(120)
        kill(process)
        killed.set()
        receiver.behave = accept
        assert states_of(engine) == ["waiting"] * 3
        let_claims_run_out(engine)
        with trainer(database_url, tmp_path / "second"):
            wait_until(lambda: states_of(engine) == ["delivered"] * 3)
        expected = [str(event.event_id) for event in events_of(engine)]
        # An attempt that takes longer than its limit, on a busy machine, is repeated too.
        assert receiver.ids[:2] == [expected[0]] * 2
        assert list(dict.fromkeys(receiver.ids)) == expected


def test_two_trainers_send_each_event_once(engine: Engine, database_url: str, tmp_path: Path) -> None:
    tasks = [define(engine) for _ in range(4)]
    with receiving() as receiver:
        make_hook(engine, receiver.url, types=["morrow.version.released"])
        with trainer(database_url, tmp_path / "one"), trainer(database_url, tmp_path / "two"):
            for version in range(10):
                for schema in tasks:
                    note(engine, schema, str(version), "release", now=datetime.now(UTC))
            wait_until(lambda: states_of(engine) == ["delivered"] * 40)
        with engine.connect() as connection:
            num_failed = find_hook(connection, "ops").num_failed  # none, unless the machine is too busy to answer
        assert len({*receiver.ids}) == 40 <= len(receiver.ids) <= 40 + num_failed
        for schema in tasks:
            seen = [one.event["data"]["version"] for one in receiver.got if one.event["subject"] == schema.task.name]
            assert list(dict.fromkeys(seen)) == list(map(str, range(10)))


def test_a_trainer_goes_on_and_stops_while_a_receiver_is_slow(
    engine: Engine, database_url: str, tmp_path: Path
) -> None:
    heartbeat, gate = tmp_path / "home" / HEARTBEAT_FILE, threading.Event()

    def behave(_handler: BaseHTTPRequestHandler) -> None:
        gate.wait(120)

    with receiving(behave) as receiver:
        make_hook(engine, receiver.url)
        note(engine, define(engine), "1", "release", now=datetime.now(UTC))
        with trainer(database_url, tmp_path / "home") as process:
            receiver.wait_for(1)
            ticked_at = heartbeat.stat().st_mtime_ns
            wait_until(lambda: heartbeat.stat().st_mtime_ns > ticked_at)
            process.terminate()
            assert process.wait(60) == 0
        gate.set()


def test_a_running_trainer_reports_a_version_that_has_expired(
    engine: Engine, database_url: str, tmp_path: Path
) -> None:
    schema = define(engine)
    with receiving() as receiver:
        make_hook(engine, receiver.url)
        note(engine, schema, "1", "release", now=datetime.now(UTC))  # its horizon ended long ago
        with trainer(database_url, tmp_path / "home"):
            wait_until(lambda: len({*receiver.ids}) == 2)
        types = list(dict.fromkeys(one.event["type"] for one in receiver.got))
        assert types == ["morrow.version.released", "morrow.version.expired"]
        assert len(events_of(engine)) == 2
