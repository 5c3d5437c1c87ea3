"""All of Morrow on one machine, for `morrow up` and `morrow demo`: PostgreSQL, MLflow, API and trainer.

A database or an MLflow server that the settings name is used; the rest is started below the home folder. MLflow needs
tens of seconds to start, so it starts first, and the others start meanwhile.
"""

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from cli.errors import StackError
from cli.local.mlflow_server import remove_unfinished, server_command, server_environment
from cli.local.postgres import EmbeddedPostgres
from cli.local.processes import Child, start_child
from cli.local.signals import ignored_signals
from cli.local.stack_file import StackUrls, stack_file
from contracts.failure import REGISTRY_UNREACHABLE
from contracts.runtime.python_process import python_command
from contracts.runtime.settings import SharedSettings
from contracts.runtime.surroundings import build_environment
from migrations import migrate
from trainer.scheduling.liveness import heartbeat_file
from trainer.scheduling.registry_health import find_trouble
from trainer.settings import TrainerSettings

HOST = "127.0.0.1"
READY_LIMIT_SECONDS = 240.0
PORT_LIMIT_SECONDS = 5.0
_MAX_PORT = 65_535


@dataclass(frozen=True)
class Addresses:
    """Addresses of the running parts."""

    api: str
    mlflow: str
    database: str


class EmbeddedStack:
    """Starts everything on entry, in parallel if possible; stops it on exit, the trainer first.

    Raises StackError if the port or the home folder is taken or a part is not ready in time, ChildDied if one ends.
    """

    def __init__(self, settings: SharedSettings, port: int, console: Console) -> None:
        self._settings = TrainerSettings(**settings.model_dump() | {"home": settings.home.expanduser().resolve()})
        self._began = time.time()
        self._port = port
        self._console = console
        self._cleanup = ExitStack()
        self._children: list[Child] = []
        self._postgres = EmbeddedPostgres(self._settings.home / "postgres")
        self.addresses = Addresses("", "", "")
        self._trouble: str | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def check(self) -> None:
        """Raises ChildDied or PostgresError if a part has ended by itself."""
        self._postgres.check()
        for child in self._children:
            child.check()

    def wait(self) -> None:
        """Call `check` until it raises, because a part has ended by itself."""
        while True:
            self.check()
            time.sleep(0.5)

    def _stop(self) -> None:
        with ignored_signals(), self._console.status("Stopping …"):
            self._cleanup.close()

    def _start(self) -> None:
        home = self._settings.home
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"{home} cannot be made ({error.strerror}): set MORROW_HOME to a folder that can be written to."
            raise StackError(reason) from error
        self._cleanup.enter_context(_sole_stack(home))
        _await_free_port(self._port)
        columns = (SpinnerColumn(finished_text="[green]✓"), TextColumn("{task.description}"), TimeElapsedColumn())
        with (
            Progress(*columns, console=self._console) as progress,
            httpx.Client(timeout=2, trust_env=False) as client,
        ):
            parts = {name: progress.add_task(name, total=1) for name in ("PostgreSQL", "API", "trainer", "MLflow")}
            mlflow = self._settings.mlflow_url or self._start_mlflow()
            database = self._settings.database_url or self._start_postgres()
            migrate(database)
            progress.update(parts["PostgreSQL"], completed=1)
            self.addresses = Addresses(f"http://{HOST}:{self._port}", mlflow, database)
            self._start_ours()
            checks = {
                "API": lambda: _answers(client, f"{self.addresses.api}/livez"),
                "trainer": lambda: _is_newer(heartbeat_file(self._settings), self._began),
                "MLflow": self._has_registry,
            }
            for name, is_ready in checks.items():
                self._await(name, is_ready)
                progress.update(parts[name], completed=1)
        self._cleanup.enter_context(stack_file(home, StackUrls(self.addresses.api, mlflow)))

    def _start_mlflow(self) -> str:
        folder = self._settings.home / "mlflow"
        folder.mkdir(exist_ok=True)
        if remove_unfinished(folder):
            self._console.print("MLflow's first start was cut short: its empty database is built again.")
        port = kept_port(folder / "port", self._port)
        self._add(
            "MLflow", server_command(folder, HOST, port), server_environment() | temporary_folder(self._settings.home)
        )
        return f"http://{HOST}:{port}"

    def _start_postgres(self) -> str:
        return self._cleanup.enter_context(self._postgres).url

    def _start_ours(self) -> None:
        shared = {
            "MORROW_HOME": str(self._settings.home),
            "MORROW_DATABASE_URL": self.addresses.database,
            "MORROW_MLFLOW_URL": self.addresses.mlflow,
            # The URLs hold the passwords already.
            "MORROW_DATABASE_PASSWORD_FILE": "",
            "MORROW_MLFLOW_PASSWORD_FILE": "",
        }
        morrow = python_command("-m", "cli.entry")
        api = shared | {"MORROW_HOST": HOST, "MORROW_PORT": str(self._port)}
        self._add("API", [*morrow, "serve"], child_environment(self._settings.home, api))
        self._add("trainer", [*morrow, "trainer"], child_environment(self._settings.home, shared))

    def _add(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        log = self._settings.home / "logs" / f"{name.lower()}.log"
        child = start_child(name, command, environment, log)
        self._children.append(child)
        self._cleanup.callback(child.stop)

    def _has_registry(self) -> bool:
        self._trouble = find_trouble(self.addresses.mlflow)
        if self._trouble not in (None, REGISTRY_UNREACHABLE.reason) and self._settings.mlflow_url is not None:
            raise StackError(self._trouble)  # waiting does not help
        return self._trouble is None

    def _await(self, name: str, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_LIMIT_SECONDS
        while not is_ready():
            self.check()
            if time.monotonic() > deadline:
                reason = self._trouble if name == "MLflow" else f"Its log is {self._settings.home / 'logs'}."
                raise StackError(f"{name} was not ready within {READY_LIMIT_SECONDS:.0f} s. {reason}")
            time.sleep(0.1)
        self.check()


@contextmanager
def _sole_stack(home: Path) -> Iterator[None]:
    lock = os.open(home / "stack.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise StackError(
            f"Another Morrow runs in {home} already: stop it, or choose another folder with MORROW_HOME."
        ) from error
    finally:
        os.close(lock)


def _await_free_port(port: int) -> None:
    """Wait for a stack that was killed a moment ago to release the port. Raises StackError if it stays taken."""
    deadline = time.monotonic() + PORT_LIMIT_SECONDS
    while not _is_free(port):
        if time.monotonic() > deadline:
            other = port + 1 if port < _MAX_PORT else port - 1
            raise StackError(f"Port {port} is taken: choose another, such as MORROW_PORT={other}.")
        time.sleep(0.2)


def kept_port(file: Path, reserved: int) -> int:
    """The port that the file holds, so that a bookmark lasts; another one if that is taken or `reserved`.

    A file that cannot be read or written is no error: the port is then not kept.
    """
    port = _read_port(file)
    while port in (0, reserved) or not _is_free(port):
        port = free_port()
    with suppress(OSError):
        file.write_text(f"{port}\n", "ascii")
    return port


def _read_port(file: Path) -> int:
    """0 if the file holds none."""
    try:
        words = file.read_text("ascii", "ignore").strip()[:5]
    except OSError:
        return 0
    return int(words) if words.isdecimal() else 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):
            return False
        return True


def child_environment(home: Path, own: Mapping[str, str]) -> dict[str, str]:
    """The environment of a part of ours: built, with its own variables, and with a temporary folder below `home`."""
    return build_environment(os.environ, own={**temporary_folder(home), **own})


def temporary_folder(home: Path) -> dict[str, str]:
    """The variable that sends the files that libraries leave to a folder below the home folder."""
    folder = home / "tmp"
    folder.mkdir(exist_ok=True)
    return {"TMPDIR": str(folder)}


def free_port() -> int:
    """A port of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(url).status_code == 200
    except httpx.TransportError:
        return False


def _is_newer(file: Path, since: float) -> bool:
    return file.exists() and file.stat().st_mtime >= since
