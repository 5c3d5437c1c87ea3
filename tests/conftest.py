"""What tests stand on: a real PostgreSQL, a fresh database a test, and one real MLflow server for all workers."""

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import Engine

# A second thread costs small fits more than it brings, and much more where test processes share the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Nothing here speaks TLS, and reading the certificates of the system takes a client longer than most requests.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = os.devnull

from cli.local.postgres import embedded_postgres
from migrations import migrate
from store.engine import make_engine
from tests.servers import clone_of, database, mlflow_server, wait_until_healthy

# Searching for garbage takes half of the time in which torch, mlflow and all tests are loaded, and finds none.
gc.disable()

# What the process that hands out tests tells its workers of the MLflow server.
_MLFLOW = pytest.StashKey[dict[str, str]]()


def pytest_configure() -> None:
    """End a terminated run as Ctrl-C does, so that fixtures stop their servers; log tracebacks as Morrow does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # structlog's default draws the local variables of every frame, which takes a core for many seconds.
    *processors, _ = structlog.get_config()["processors"]
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*processors, plain])


def pytest_collection_finish() -> None:
    """From here on garbage is collected, but not looked for among what has been loaded, which stays."""
    gc.freeze()
    gc.enable()


def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are cores: a test of real processes waits for much of its time."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Before a worker starts: one MLflow server for all, whose start costs more than all that they ask of it."""
    if _MLFLOW not in node.config.stash:
        running = ExitStack()
        node.config.add_cleanup(running.close)
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="morrow-mlflow-")))
        url, _ = running.enter_context(mlflow_server(folder))
        node.config.stash[_MLFLOW] = {"mlflow_folder": str(folder), "mlflow_url": url}
    node.workerinput |= node.config.stash[_MLFLOW]


@pytest.fixture
def anyio_backend() -> str:
    """The one event loop that the service runs on."""
    return "asyncio"


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server: `MORROW_TEST_DATABASE_URL`, else the embedded one without fsync."""
    if given := os.environ.get("MORROW_TEST_DATABASE_URL"):
        yield given
        return
    with embedded_postgres(tmp_path_factory.mktemp("postgres"), durable=False) as url:
        yield url


@pytest.fixture(scope="session")
def template(server_url: str) -> Iterator[str]:
    """URL of a migrated database that each test's own is a clone of; a module may put one of its own in its place."""
    with database(server_url) as url:
        migrate(url)
        yield url


@pytest.fixture
def database_url(template: str) -> Iterator[str]:
    """URL of a fresh, migrated database."""
    with database(template, how=clone_of(template)) as url:
        yield url


@pytest.fixture
def empty_url(server_url: str) -> Iterator[str]:
    """URL of a database without tables."""
    with database(server_url) as url:
        yield url


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = make_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def workerinput(pytestconfig: pytest.Config) -> dict[str, Any]:
    """What this process was told by the one that hands out tests; nothing if it runs them all."""
    return getattr(pytestconfig, "workerinput", {})


@pytest.fixture(scope="session")
def mlflow_folder(workerinput: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the MLflow server keeps its database."""
    return Path(workerinput.get("mlflow_folder") or tmp_path_factory.mktemp("mlflow"))


@pytest.fixture(scope="session")
def mlflow_url(workerinput: dict[str, Any], mlflow_folder: Path) -> Iterator[str]:
    """A real MLflow server on SQLite with proxied artefacts; its first start takes tens of seconds."""
    if given := workerinput.get("mlflow_url"):
        wait_until_healthy(f"{given}/health", None, seconds=240)
        yield given
        return
    with mlflow_server(mlflow_folder) as (url, process):
        wait_until_healthy(f"{url}/health", process, seconds=240)
        yield url
