"""Runs the API: in this process, or in several that answer on one socket, under uvicorn's supervisor.

Each worker is a fresh interpreter that makes its own app, so none shares a connection, a thread or a lock with
another. The supervisor starts another one for each that ends or no longer replies, and hands SIGTERM on; a worker that
is told to stop finishes the requests it holds. What makes an app is imported by workers only: the supervisor stays
small, and a new worker replies to it at once.
"""

import gc
import os
import signal
import sys
import tempfile
import threading
from functools import partial
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn
from uvicorn.supervisors import Multiprocess

from contracts.runtime.logs import configure_logs
from contracts.runtime.python_process import protect_imports_of_children
from service.server.connection import Connection
from service.settings import ServiceSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

DRAIN_SECONDS = 10
REPLY_SECONDS = 15
# The folder of the counters: prometheus_client keeps them in memory if it is not set when a worker imports it.
COUNTERS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
# More than all series of one worker take.
COUNTERS_BYTES = 2**18

log = structlog.get_logger(__name__)


class _Supervisor(Multiprocess):
    """uvicorn's, but a terminal that closes stops it, as it stops a single process."""

    def handle_hup(self) -> None:
        self.handle_term()


def serve(settings: ServiceSettings) -> None:
    """Run the API until SIGTERM or SIGINT; requests in flight are finished first.

    Raises ValueError where `settings.database_url` is not set.
    """
    if settings.database_url is None:
        raise ValueError("The service needs a database: set MORROW_DATABASE_URL.")
    configure_logs(settings)
    if settings.workers == 1:
        uvicorn.run(_make(settings), **_options(settings))
        return
    gc.enable()  # the supervisor has started
    protect_imports_of_children()
    with tempfile.TemporaryDirectory(prefix="morrow-workers-") as folder:
        os.environ[COUNTERS_VARIABLE] = folder
        make = partial(make_worker, settings, Path(folder))
        config = uvicorn.Config(
            make, factory=True, workers=settings.workers, timeout_worker_healthcheck=REPLY_SECONDS, **_options(settings)
        )
        _Supervisor(config, [config.bind_socket()]).run()


def make_worker(settings: ServiceSettings, folder: Path) -> "FastAPI":
    """The app of one of several workers, which meet in `folder`; this process ends when its supervisor is gone."""
    configure_logs(settings)
    _reserve_counters(folder)
    app = _make(settings, folder)
    threading.Thread(target=_stop_with_supervisor, daemon=True).start()
    return app


def _reserve_counters(folder: Path) -> None:
    """Reserve disk space for this worker's counters: writing to a mapped page without any kills the process.

    If there is no space now, the worker answers all the same, and its answers are not counted.
    """
    assert "prometheus_client" not in sys.modules, "it has chosen where to keep counters when it was imported"
    files = [folder / f"{kind}_{os.getpid()}.db" for kind in ("counter", "histogram")]
    try:
        for file in files:
            file.write_bytes(bytes(COUNTERS_BYTES))
    except OSError as error:
        log.error("metrics.not_counted", reason=error.strerror)
        for file in files:
            file.unlink(missing_ok=True)
        del os.environ[COUNTERS_VARIABLE]


def _make(settings: ServiceSettings, folder: Path | None = None) -> "FastAPI":
    """The app of this process. Nearly all that its imports make stays, so the collector rests until it has started."""
    gc.disable()
    from service.app import make_app

    return make_app(settings, folder, stop=_stop)


def _stop_with_supervisor() -> None:
    """A supervisor that is killed stops no worker; without it they would hold the port and follow no signal."""
    supervisor = parent_process()
    assert supervisor is not None
    supervisor.join()
    _stop()


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _options(settings: ServiceSettings) -> dict[str, Any]:
    return {
        "host": settings.host,
        "port": settings.port,
        "http": Connection,
        "ws": "none",
        "proxy_headers": False,  # the app sees to them
        "access_log": False,
        "log_config": None,
        "server_header": False,
        "timeout_graceful_shutdown": DRAIN_SECONDS,
    }
