"""Servers under measurement: each in processes of its own, with the CPU time and the memory of all of them.

CPU time is the system's account (user and system), so it counts what a server does and not the rest of the machine.
Memory is the proportional set size, which counts a page that several processes share once.
"""

import compileall
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil

from benchmarks.errors import ServerSilent
from cli.local.processes import Child, start_child
from cli.local.stack import free_port
from contracts.runtime.python_process import python_command

HOST = "127.0.0.1"
READY_LIMIT_SECONDS = 180.0
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Server:
    """A server that answers. `start_cpu_seconds` is the CPU time until its first answer."""

    name: str
    url: str
    child: Child
    start_cpu_seconds: float

    def cpu_seconds(self) -> float:
        """CPU time of all its processes up to now."""
        return cpu_seconds(self.child.process.pid)

    def memory_bytes(self) -> int:
        """Proportional set size of all its processes."""
        return memory_bytes(self.child.process.pid)


def memory_bytes(pid: int) -> int:
    """Proportional set size of a process and those below it."""
    return sum(process.memory_full_info().pss for process in _tree(pid))


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, those below it, and those of them that have ended."""
    total = 0.0
    for process in reversed(_tree(pid)):
        with suppress(psutil.NoSuchProcess):  # it has just ended: its parent, which comes later, counts its time
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _tree(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


@contextmanager
def morrow(
    home: Path, database_url: str, mlflow_url: str, *, key: str, path: str, **environment: str
) -> Iterator[Server]:
    """`morrow serve` with its defaults (keys, metrics, guard, log); ready once it answers `path`."""
    port = free_port()
    given = {
        "MORROW_HOME": str(home),
        "MORROW_DATABASE_URL": database_url,
        "MORROW_MLFLOW_URL": mlflow_url,
        "MORROW_HOST": HOST,
        "MORROW_PORT": str(port),
        "MORROW_LOG_FORMAT": "json",
        **environment,
    }
    command = python_command("-m", "cli.main", "serve")
    with _running("morrow", command, given, home / "service.log", ready=_url(port) + path, key=key) as server:
        yield server


@contextmanager
def yardstick(name: str, folder: Path) -> Iterator[Server]:
    """One of `benchmarks.serving.yardsticks`."""
    port = free_port()
    command = python_command("-m", "benchmarks.serving.yardsticks", name, str(port))
    path = "/openapi.json" if name == "noop" else "/"
    with _running(name, command, {}, folder / f"{name}.log", ready=_url(port) + path) as server:
        yield server


@contextmanager
def mlflow_serve(venv: Path, model: Path, folder: Path) -> Iterator[Server]:
    """`mlflow models serve` of a model's folder, one worker, in its own environment."""
    port = free_port()
    given = {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "VIRTUAL_ENV": str(venv),
        "PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    command = [str(venv / "bin" / "mlflow"), "models", "serve", "-m", str(model)]
    command += ["--env-manager", "local", "--host", HOST, "--port", str(port), "--workers", "1"]
    with _running("mlflow", command, given, folder / "mlflow.log", ready=f"{_url(port)}/ping") as server:
        yield server


def compile_ours() -> None:
    """Compile what the service imports: an image holds bytecode, and so does MLflow's environment."""
    for package in ("cli", "contracts", "migrations", "service"):
        compileall.compile_dir(_ROOT / package, quiet=2)


def make_mlflow_environment(venv: Path) -> None:
    """Make an environment with MLflow and ONNX Runtime in the versions of our lock, if there is none."""
    if (venv / "bin" / "mlflow").exists():
        return
    uv = python_command("-m", "uv")
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, str(venv)], check=True)
    install = [*uv, "pip", "install", "-q", "--compile-bytecode", "--python", str(venv / "bin" / "python")]
    constraints = str(_ROOT / "constraints.txt")
    subprocess.run([*install, "-c", constraints, "mlflow", "onnx", "onnxruntime"], check=True)


@contextmanager
def running(name: str, arguments: Sequence[str], log: Path, port: int, path: str) -> Iterator[Server]:
    """A server in Python, once it answers 200 at a path."""
    with _running(name, python_command(*arguments), {}, log, ready=_url(port) + path) as server:
        yield server


@contextmanager
def _running(
    name: str, command: Sequence[str], environment: Mapping[str, str], log: Path, *, ready: str, key: str | None = None
) -> Iterator[Server]:
    """A server, once it answers 200 at `ready`."""
    child = start_child(name, command, {**os.environ, "OMP_NUM_THREADS": "1", **environment}, log)
    try:
        _await_answer(child, ready, key)
        yield Server(name, f"http://{urlsplit(ready).netloc}", child, cpu_seconds(child.process.pid))
    finally:
        child.stop()


def _url(port: int) -> str:
    return f"http://{HOST}:{port}"


def _await_answer(child: Child, url: str, key: str | None) -> None:
    deadline = time.monotonic() + READY_LIMIT_SECONDS
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    with httpx.Client(timeout=2, trust_env=False, headers=headers) as client:
        while time.monotonic() < deadline:
            child.check()
            try:
                if client.get(url).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
    raise ServerSilent(f"{child.name} did not answer {url} within {READY_LIMIT_SECONDS:.0f} s; its log is {child.log}")
