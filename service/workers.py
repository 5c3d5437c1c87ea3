"""Run the API in this process, or in several that answer on one socket, under uvicorn's supervisor.

Each worker is a fresh interpreter that makes its own app, so no connection, thread or lock is shared. The supervisor
replaces each worker that ends or no longer replies, and forwards SIGTERM; a worker that must stop first finishes its
requests. Only workers import the modules of the app: the supervisor stays small, and a new worker replies to it at
once.
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

from contracts.errors import Fault, InvalidInput
from contracts.runtime.http_clients import mlflow_options
from contracts.runtime.logs import configure_logs
from contracts.runtime.python_process import protect_imports_of_children
from service.server.connection import Connection
from service.settings import ServiceSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

DRAIN_SECONDS = 10
REPLY_SECONDS = 15
# The folder of the counters. If it is unset when a worker imports prometheus_client, counters stay in memory.
COUNTERS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
# More than all series of one worker take.
COUNTERS_BYTES = 2**18

log = structlog.get_logger(__name__)


class _Supervisor(Multiprocess):
    """uvicorn's supervisor, except that a closed terminal stops it, as it stops a single process."""

    def handle_hup(self) -> None:
        self.handle_term()


def serve(settings: ServiceSettings) -> None:
    """Run the API until SIGTERM or SIGINT; requests in flight are finished first.

    Raises InvalidInput if `settings.database_url` is not set, or if MLflow cannot be asked as the settings say.
    """
    if settings.database_url is None:
        raise InvalidInput([Fault("MORROW_DATABASE_URL", "is not set; `morrow serve` brings its own")])
    if settings.mlflow_url is not None:
        mlflow_options(settings.mlflow_url)
    configure_logs(settings)
    if settings.workers == 1:
        uvicorn.run(_make(settings), workers=1, **_options(settings))
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
    """The app of one of several workers, which share `folder`; this process ends if its supervisor does."""
    configure_logs(settings)
    _reserve_counters(folder)
    app = _make(settings, folder)
    threading.Thread(target=_stop_with_supervisor, daemon=True).start()
    return app


def _reserve_counters(folder: Path) -> None:
    """Reserve disk space for this worker's counters: a write to a mapped page without space kills the process.

    If there is no space now, the worker answers requests without counting them.
    """
    assert "prometheus_client" not in sys.modules, "prometheus_client chose where to keep counters at its import"
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
    """The app of this process. Its imports make few temporary objects, so the collector pauses until it has started."""
    gc.disable()
    from service.app import make_app

    return make_app(settings, folder, stop=_stop)


def _stop_with_supervisor() -> None:
    """Stop this worker if its supervisor is killed; it would otherwise hold the port and get no signal."""
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
        "proxy_headers": False,  # the app reads them
        "forwarded_allow_ips": settings.trusted_proxies,  # else uvicorn reads a variable of its own
        "access_log": False,
        "log_config": None,
        "server_header": False,
        "timeout_keep_alive": settings.keep_alive_seconds,
        "timeout_graceful_shutdown": DRAIN_SECONDS,
    }
