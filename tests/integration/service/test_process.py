"""The service as a process of its own: what it imports, how it ends, and what a restart offline answers."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import httpx
import pytest

from cli.local.stack import free_port
from service.app import make_app
from tests.integration import service_app as serving
from tests.integration.artefacts import CUTOFF, WEEK, place_version
from tests.integration.one_version import unnamed
from tests.servers import stop, wait_until_healthy

QUERY = {"at": "2026-02-01T00:00:00Z", "distance": "1400", "carrier": "UA"}


@contextmanager
def running(
    home: Path, database_url: str, arguments: Sequence[str] = ("-m", "service"), log: BinaryIO | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The API in an interpreter of these arguments, with a registry that does not answer, until it is alive."""
    port = free_port()
    given = {
        "MORROW_HOME": str(home),
        "MORROW_DATABASE_URL": database_url,
        "MORROW_MLFLOW_URL": "http://127.0.0.1:9",
        "MORROW_PORT": str(port),
        "MORROW_LOG_FORMAT": "json",
    }
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, **given},
        start_new_session=True,
        stderr=subprocess.PIPE if log is None else log,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_healthy(f"{url}/livez", process, seconds=60)
        yield process, url
    finally:
        stop(process)
        if process.stderr is not None:
            process.stderr.close()


def test_a_process_ends_on_sigterm_and_answers_the_same_after_kill_9_and_a_restart_offline(
    database_url: str, tmp_path: Path
) -> None:
    place_version(tmp_path, valid_until=CUTOFF + WEEK)
    with running(tmp_path, database_url) as (process, url):
        first = httpx.get(f"{url}/predict", params=QUERY)
        assert (first.status_code, first.json()["version"]) == (200, "3")
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    with running(tmp_path, serving.DEAD_DATABASE) as (process, url):
        again = httpx.get(f"{url}/predict", params=QUERY)
        assert unnamed(again.json()) == unnamed(first.json())
        refused = httpx.get(f"{url}/predict", params={**QUERY, "at": "2026-02-05T00:00:00.000001Z"})
        assert refused.json()["valid_until"] == "2026-02-05T00:00:00Z"
        assert httpx.get(f"{url}/readyz").status_code == 200
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
        assert process.returncode in (0, -signal.SIGTERM)
    lines = errors.decode().splitlines()
    assert all(line.startswith("{") for line in lines)
    assert any('"event": "service.stopped"' in line for line in lines)


def test_no_start_imports_what_only_pages_migrations_and_other_protocols_need(
    database_url: str, tmp_path: Path
) -> None:
    place_version(tmp_path, valid_until=CUTOFF + WEEK)
    with (tmp_path / "log").open("wb") as log:
        serve = ("-X", "importtime", "-m", "cli.main", "serve")
        with running(tmp_path, database_url, serve, log) as (_, url):
            assert httpx.get(f"{url}/predict", params=QUERY).status_code == 200
    told = [line.rpartition("|")[2] for line in (tmp_path / "log").read_text().splitlines() if "import time:" in line]
    imported = {name.strip().partition(".")[0] for name in told}
    assert {"fastapi", "onnxruntime", "service"} <= imported
    assert not imported & {"alembic", "jinja2", "mako", "mlflow", "pandas", "scipy", "torch", "websockets"}


def test_the_service_imports_neither_training_nor_a_registry_client() -> None:
    heavy = {"torch", "mlflow", "pandas", "scipy", "apscheduler", "trainer"}
    program = f"import sys, service.app; print(sorted({heavy!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_supervisor_of_workers_imports_nothing_that_only_they_need() -> None:
    heavy = {"fastapi", "numpy", "onnxruntime", "prometheus_client", "sqlalchemy", "service.app"}
    program = f"import sys, service.workers; print(sorted({heavy!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.anyio
async def test_the_collector_works_once_the_app_has_started(tmp_path: Path) -> None:
    """It rests while imports make what stays; left at rest, every cycle of objects would stay for ever."""
    gc.disable()
    try:
        async with serving.running(make_app(serving.service_settings(serving.DEAD_DATABASE, tmp_path))):
            assert gc.isenabled()
    finally:
        gc.enable()
