"""The API as a process of its own: where it answers, what it logs and how much memory it takes."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from sqlalchemy import Engine

from cli.local.stack import free_port
from contracts.task import Task
from store.tasks.catalog import define_task
from tests.integration.artefacts import place_version, teach
from tests.integration.published_versions import NOW
from tests.integration.service_app import TASK
from tests.servers import stop, wait_until_healthy

MIB = 2**20


@dataclass(frozen=True)
class Running:
    """A process of the API, where it answers and where it logs."""

    process: psutil.Process
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def rss(self) -> int:
        """Resident bytes of the process and what it has started."""
        return sum(one.memory_info().rss for one in (self.process, *self.process.children(recursive=True)))


@contextmanager
def running(database_url: str, folder: Path, *, carriers: Sequence[str] = (), **environment: str) -> Iterator[Running]:
    """`python -m service` with one task and a version that answers; `carriers` are those that it says it knows."""
    version = place_version(folder)
    if carriers:
        teach(version, *carriers)
    port = free_port()
    given = {
        "MORROW_HOME": str(folder),
        "MORROW_DATABASE_URL": database_url,
        "MORROW_PORT": str(port),
        "MORROW_LOG_FORMAT": "json",
    }
    log = folder / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "service"],
            env={**os.environ, **given, **environment},
            start_new_session=True,
            stdout=stream,
            stderr=stream,
        )
        try:
            wait_until_healthy(f"http://127.0.0.1:{port}/readyz", process, seconds=60)
            yield Running(psutil.Process(process.pid), port, log)
        finally:
            stop(process)


def define_flights(engine: Engine) -> None:
    """The task whose version such a process finds in its home."""
    with engine.begin() as connection:
        define_task(connection, Task.model_validate({**TASK, "name": "flights"}), NOW)
