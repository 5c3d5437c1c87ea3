"""A PostgreSQL primary and its standby, made by the programs of the embedded package; both listen on a port."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from cli.local.postgres_cluster import (
    DATABASE,
    ENVIRONMENT,
    choose_account,
    create_cluster,
    find_programs,
    name_cluster,
)
from cli.local.stack import HOST, free_port

_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "shared_buffers": "32MB",
    "io_method": "sync",
    "fsync": "off",
    "max_wal_senders": "4",
    "wal_receiver_status_interval": "1s",
}


class Server:
    """One server in a folder of its own; `start` starts it, and it starts as a standby if it was copied as one."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder, self._cluster = folder, folder / "cluster"
        self.port = free_port()
        self._account = choose_account(self._cluster)
        self._account.own(folder)
        self._programs = find_programs(folder, self._account)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def place(self) -> str:
        """Host and port."""
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://{DATABASE}@{self.place}/{DATABASE}"

    def create(self) -> None:
        """A new cluster."""
        with (self._folder / "lock").open("wb") as lock:
            create_cluster(self._cluster, self._programs, self._account, lock.fileno(), durable=False)

    def copy(self, primary: "Server") -> None:
        """The cluster of a running server, whose standby this becomes."""
        self._cluster.mkdir(mode=0o700)
        self._account.own(self._cluster)
        login = ["-h", HOST, "-p", str(primary.port), "-U", DATABASE]
        subprocess.run(
            [str(self._programs / "pg_basebackup"), *login, "-D", self._name(), "-R", "-c", "fast", "--no-sync"],
            cwd=self._cluster,
            env=ENVIRONMENT,
            check=True,
            **self._account.identity,
        )

    def start(self, settings: Mapping[str, str] | None = None) -> None:
        """Start it with these settings, and wait until it answers."""
        given = _SETTINGS | {"port": str(self.port)} | dict(settings or {})
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", self._name(), *(f"--{k}={v}" for k, v in given.items())],
                cwd=self._cluster,
                env=ENVIRONMENT,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._account.identity,
            )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                self.run("SELECT 1")
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self._folder / "log").read_text()[-3000:]
                time.sleep(0.1)
            else:
                return
        raise AssertionError(f"no answer from {self.place}: {(self._folder / 'log').read_text()[-3000:]}")

    def run(self, statement: str) -> object:
        """The first value of a statement's answer, as a superuser."""
        with psycopg.connect(
            host=HOST, port=self.port, user=DATABASE, dbname=DATABASE, autocommit=True, connect_timeout=5
        ) as connection:
            answer = connection.execute(statement.encode())
            row = answer.fetchone() if answer.description else None
        return row[0] if row else None

    def kill(self) -> None:
        """kill -9 the server and all that it has started."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Stop it, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()

    def _name(self) -> str:
        return name_cluster(self._cluster, self._account)


@contextmanager
def primary_and_standby(folder: Path) -> Iterator[tuple[Server, Server]]:
    """Both run. A commit at the primary waits for the standby once `synchronous_standby_names` says so."""
    folder.chmod(0o755)
    primary, standby = Server(folder / "primary"), Server(folder / "standby")
    with ExitStack() as stack:
        primary.create()
        stack.callback(primary.stop)
        primary.start()
        standby.copy(primary)
        stack.callback(standby.stop)
        standby.start()
        yield primary, standby
