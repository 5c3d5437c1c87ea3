"""`morrow up` as a user runs it: everything answers, and however it ends, nothing is left running."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from cli.errors import ChildDied
from cli.local.processes import start_child
from cli.local.stack import free_port
from tests.e2e.morrow_command import MORROW

READY_SECONDS = 240
GONE_SECONDS = 60


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all tests: each start also finds what the former end left."""
    return tmp_path_factory.mktemp("home")


@contextmanager
def running(
    home: Path, port: int, *, command: Sequence[str] = MORROW, cwd: Path | None = None, **settings: str
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """`morrow up` from the moment it says that all is ready; yields it with what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MORROW_")}
    environment |= {f"MORROW_{name.upper()}": value for name, value in settings.items()}
    process = subprocess.Popen(
        [*command, "up", "--port", str(port), "--home", str(home)],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    printed = ""
    try:
        for line in process.stdout:
            printed += line
            if "Ctrl-C stops everything" in line:
                break
        yield process, printed
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(GONE_SECONDS)
        process.stdout.close()


def group_members(root: int) -> list[psutil.Process]:
    """Every process in the groups of the root and of all below it: watchdogs too, which are nobody's children."""
    family = [psutil.Process(root), *psutil.Process(root).children(recursive=True)]
    groups = {os.getpgid(one.pid) for one in family}
    members = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) in groups:
                members.append(process)
        except ProcessLookupError:
            continue
    return members


def wait_until_gone(processes: list[psutil.Process]) -> None:
    deadline = time.monotonic() + GONE_SECONDS
    while left := [process for process in processes if is_alive(process)]:
        assert time.monotonic() < deadline, f"still running: {[process.cmdline() for process in left]}"
        time.sleep(0.1)


def is_alive(process: psutil.Process) -> bool:
    """An ended process that nobody has collected yet is not alive."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_nothing_is_left_running_after(number: signal.Signals, home: Path) -> None:
    port = free_port()
    with running(home, port) as (process, printed):
        assert httpx.get(f"http://127.0.0.1:{port}/livez").status_code == 200
        assert httpx.get(f"http://127.0.0.1:{port}/docs").status_code == 200
        assert f"export MORROW_HOME={home} MORROW_URL=http://127.0.0.1:{port}\n" in printed
        mlflow = re.search(r"MLflow +(http://\S+)", printed)
        assert mlflow is not None
        assert httpx.get(f"{mlflow[1]}/health").status_code == 200
        members = group_members(process.pid)
        assert len(members) >= 8
        process.send_signal(number)
        assert process.wait(GONE_SECONDS) == (0 if number != signal.SIGKILL else -signal.SIGKILL)
    wait_until_gone(members)


def test_a_part_that_dies_is_named_and_ends_everything(home: Path, mlflow_url: str) -> None:
    with running(home, free_port(), mlflow_url=mlflow_url) as (process, _):
        members = group_members(process.pid)
        (api,) = (one for one in psutil.Process(process.pid).children() if "serve" in one.cmdline())
        api.kill()
        assert process.wait(GONE_SECONDS) == 1
        assert process.stdout is not None
        assert "API ended with status -9" in process.stdout.read()
    wait_until_gone(members)


def test_a_database_that_dies_is_named_and_ends_everything(home: Path, mlflow_url: str) -> None:
    with running(home, free_port(), mlflow_url=mlflow_url) as (process, _):
        members = group_members(process.pid)
        pidfile = home / "postgres" / "cluster" / "postmaster.pid"
        psutil.Process(int(pidfile.read_text().splitlines()[0])).kill()
        assert process.wait(GONE_SECONDS) == 1
        assert process.stdout is not None
        assert "PostgreSQL ended with status -9" in process.stdout.read()
    wait_until_gone(members)


def test_a_taken_port_is_said_at_once(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with running(tmp_path, port) as (process, printed):
            assert process.wait(30) == 1
    assert f"Port {port} is taken: choose another, such as MORROW_PORT=" in printed


def test_an_earlier_line_of_the_log_is_no_reason_for_a_kill(tmp_path: Path) -> None:
    script = "import time; print('ready', flush=True); time.sleep(600)"
    child = start_child("sleeper", [sys.executable, "-c", script], os.environ, tmp_path / "log")
    while "ready" not in (tmp_path / "log").read_text():
        time.sleep(0.02)
    child.process.kill()
    child.process.wait()
    with pytest.raises(ChildDied, match="status -9: it was killed, perhaps for lack of memory"):
        child.check()
    child.stop()


def test_a_group_dies_with_its_child_and_with_us(tmp_path: Path) -> None:
    script = "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
    child = start_child("sleeper", [sys.executable, "-c", script], os.environ, tmp_path / "log")
    while len(psutil.Process(child.process.pid).children()) < 1:
        time.sleep(0.02)
    members = group_members(child.process.pid)
    child.process.kill()
    child.process.wait()
    with pytest.raises(ChildDied, match="sleeper ended with status -9"):
        child.check()
    child.stop()
    wait_until_gone(members)
