"""Servers that tests start, databases that they make, and how both end."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import httpx
from sqlalchemy import URL, Engine, NullPool, create_engine, make_url, text

from cli.local.mlflow_server import server_command, server_environment
from cli.local.stack import free_port


@contextmanager
def mlflow_server(folder: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A server that has begun to start, by its address."""
    url = f"http://127.0.0.1:{free_port()}"
    with (folder / "server.log").open("wb") as log:
        process = start_mlflow(folder, url, log.fileno())
        try:
            yield url, process
        finally:
            stop(process)


def start_mlflow(folder: Path, url: str, log: int) -> subprocess.Popen[bytes]:
    """`mlflow server` in a process group of its own."""
    host, port = url.removeprefix("http://").split(":")
    return subprocess.Popen(
        server_command(folder, host, int(port)),
        env=server_environment(),
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def wait_until_healthy(url: str, process: subprocess.Popen[bytes] | None, seconds: float) -> None:
    """Ask until the address answers 200; fail where the process, if it is ours, ends first or the time runs out."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process is None or process.poll() is None, f"the process behind {url} ended with {process.returncode}"
        try:
            if httpx.get(url, timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"{url} was not healthy within {seconds} s")


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process group that a test started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def database(server_url: str, *, how: str = "") -> Iterator[str]:
    """URL of a new database on that server, made with these options of CREATE DATABASE; it goes at the end."""
    url = make_url(server_url)
    name = f"test_{uuid4().hex[:12]}"
    engine = create_engine(url.set(database="postgres"), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} {how}"))
    try:
        yield url.set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


def clone_of(url: str) -> str:
    """The option by which a new database is a copy of this one."""
    return f"TEMPLATE {make_url(url).database}"


@contextmanager
def full_server(engine: Engine) -> Iterator[URL]:
    """URL of an engine's database for somebody whom its server grants no connection, as one that takes no more."""
    role = f"narrow_{uuid4().hex[:8]}"
    with engine.begin() as connection:
        connection.execute(text(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 0"))
    try:
        yield engine.url.set(username=role)
    finally:
        with engine.begin() as connection:
            connection.execute(text(f"DROP ROLE {role}"))
