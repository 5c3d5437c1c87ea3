"""`morrow hooks`: add, list, test, retry and remove; and the page that shows them, run as printed."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from cli.local.stack import free_port
from cli.main import app
from store.hooks.outbox import claim_due, note_failed
from tests.integration.api_process import Running, define_flights, running
from tests.integration.hook_receiver import answer, be_patient, deliveries, make_hook, receiving
from tests.integration.published_versions import LEASE, NOW, define, note

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "hooks.md"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other tests may take long for a request."""
    be_patient(monkeypatch)
    monkeypatch.setattr("cli.commands.hooks._WAIT_SECONDS", 120.0)


@pytest.fixture
def api(database_url: str, engine: Engine, tmp_path: Path) -> Iterator[Running]:
    define_flights(engine)
    (tmp_path / "home").mkdir()
    with running(database_url, tmp_path / "home", MORROW_HOOKS_ALLOW_PRIVATE="127.0.0.1") as api:
        yield api


@contextmanager
def sending(engine: Engine) -> Iterator[None]:
    """What a trainer does with hooks, while the block runs."""
    stopping, sender = threading.Event(), deliveries(engine)

    def work() -> None:
        while not stopping.wait(0.05):
            sender.tick(datetime.now(UTC))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def morrow(api: Running, *words: str) -> Result:
    return CliRunner().invoke(app, ["hooks", *words, "--url", api.url])


def test_a_hook_is_added_tested_listed_and_removed(engine: Engine, api: Running) -> None:
    with receiving(answer(200, b"hello")) as receiver:
        added = morrow(api, "add", "ops", receiver.url, "--task", "flights", "--type", "morrow.version.released")
        assert added.exit_code == 0, added.output
        assert added.stdout.startswith("whsec_")
        assert "cannot be shown again" in added.stderr
        with sending(engine):
            tested = morrow(api, "test", "ops")
    assert tested.exit_code == 0, tested.output
    assert "200 OK: hello" in " ".join(tested.stdout.split())
    assert receiver.got[0].event["type"] == "morrow.hook.test"
    (hook,) = json.loads(morrow(api, "list", "--json").stdout)["hooks"]
    assert (hook["tasks"], hook["num_delivered"]) == (["flights"], 1)
    (event,) = json.loads(morrow(api, "list", "ops", "--json").stdout)["events"]
    assert event["state"] == "delivered"
    assert "is removed" in morrow(api, "remove", "ops").stdout
    assert "There is no hook" in morrow(api, "list").stdout


def test_a_test_that_fails_says_why_and_exits_with_1(engine: Engine, api: Running) -> None:
    with receiving(answer(403, b"who are you?")) as receiver:
        morrow(api, "add", "ops", receiver.url)
        with sending(engine):
            tested = morrow(api, "test", "ops")
    assert tested.exit_code == 1
    assert "403 Forbidden: who are you?" in " ".join(tested.stdout.split())
    assert json.loads(morrow(api, "list", "--json").stdout)["hooks"][0]["num_dead"] == 0


def test_dead_letters_are_listed_with_the_remedy_and_retried(engine: Engine, api: Running) -> None:
    make_hook(engine, "https://example.com/")
    note(engine, define(engine), "1", "release")
    with engine.begin() as connection:
        (claimed,) = claim_due(connection, NOW, LEASE)
        note_failed(connection, claimed, "502 Bad Gateway", NOW, due_at=None)
    shown = " ".join(morrow(api, "list").stdout.split())
    assert "502 Bad" in shown
    assert "morrow hooks retry ops" in shown
    assert "1 dead letter of ops will be sent" in morrow(api, "retry", "ops").stdout
    assert "1 of its events had not been delivered" in morrow(api, "remove", "ops").stdout


def test_a_mistake_is_a_sentence_and_exit_code_1(api: Running) -> None:
    refused = morrow(api, "add", "ops", "http://8.8.8.8/", "--type", "released")
    assert refused.exit_code == 1
    assert "no type of events" in refused.output
    assert "There is no hook 'ops'" in morrow(api, "test", "ops").output


def test_the_page_works_as_printed(engine: Engine, api: Running, tmp_path: Path) -> None:
    text, port = PAGE.read_text("utf-8"), str(free_port())
    (receiver,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (commands,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    (tmp_path / "receiver.py").write_text(receiver.replace("9000", port))
    environment = {
        **os.environ,
        "MORROW_URL": api.url,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "200",
    }
    with sending(engine):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands.replace("9000", port)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ops has taken the event" in done.stdout
    assert done.stdout.rstrip().endswith("morrow.hook.test morrow {}")
