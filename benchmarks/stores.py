"""PostgreSQL and MLflow alone, below a home: benchmarks that start API and trainer themselves, or need neither."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx

from benchmarks.errors import ServerSilent
from cli.local.mlflow_server import server_command, server_environment
from cli.local.postgres import EmbeddedPostgres
from cli.local.processes import Child, start_child
from cli.local.stack import HOST, free_port

READY_SECONDS = 900.0


@dataclass(frozen=True)
class Stores:
    """Where they answer, and MLflow's process."""

    database_url: str
    mlflow_url: str
    mlflow: Child


@contextmanager
def running_stores(home: Path) -> Iterator[Stores]:
    """Both stores, with the data that they find below the home."""
    port = free_port()
    (home / "mlflow").mkdir(parents=True, exist_ok=True)
    with EmbeddedPostgres(home / "postgres") as postgres:
        mlflow = start_child(
            "MLflow", server_command(home / "mlflow", HOST, port), server_environment(), home / "logs" / "mlflow.log"
        )
        try:
            with httpx.Client(base_url=f"http://{HOST}:{port}", timeout=5, trust_env=False) as client:
                await_that("/health", mlflow, partial(is_answered, client, "/health"))
            yield Stores(postgres.url, f"http://{HOST}:{port}", mlflow)
        finally:
            mlflow.stop()


def is_answered(client: httpx.Client, path: str) -> bool:
    """Whether the path is answered by 200."""
    try:
        return client.get(path).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def await_that(name: str, child: Child, is_met: Callable[[], bool]) -> None:
    """Ask again and again. Raises ServerSilent."""
    deadline = time.monotonic() + READY_SECONDS
    while not is_met():
        child.check()
        if time.monotonic() > deadline:
            raise ServerSilent(f"{name} did not come within {READY_SECONDS:.0f} s; the log is {child.log}")
        time.sleep(0.05)
