"""A folder without any room left costs neither an answer nor a process, and is recovered from once there is some.

The API runs with a small file system of its own mounted at the folder; the test reaches it through the process.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Engine

from contracts.clock import format_moment
from service.workers import COUNTERS_BYTES
from tests.e2e.processes import impatient_environment, wait_for
from tests.integration.artefacts import CUTOFF
from tests.integration.published_versions import define, publish_and_release
from tests.servers import stop, wait_until_healthy

# Root needs no other user's name space to mount, and in one could not open what belongs to the test's PostgreSQL.
_AS_ROOT = () if os.geteuid() == 0 else ("--user", "--map-root-user")
OWN_MOUNTS = ("unshare", *_AS_ROOT, "--mount", "sh", "-c")
NUM_WORKERS = 2
ROOM = 12 * COUNTERS_BYTES
METHODS = ("GET", "PUT", "POST", "DELETE", "PATCH")

pytestmark = pytest.mark.skipif(
    subprocess.run([*OWN_MOUNTS, "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode != 0,
    reason="this user may not mount a file system that only his own processes see",
)


@contextmanager
def running(environment: dict[str, str], full: Path, log: Path) -> Iterator[tuple[str, int, Path]]:
    """The API's URL, its process, and the small file system that it finds at `full`, as this process sees it."""
    full.mkdir()
    mounted = f'mount -t tmpfs -o size={ROOM} none "{full}" && exec "$@"'
    command = [*OWN_MOUNTS, mounted, "sh", sys.executable, "-m", "service"]
    with log.open("ab") as stream:
        api = subprocess.Popen(command, env=environment, stdout=stream, stderr=stream, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{environment['MORROW_PORT']}"
        wait_until_healthy(f"{url}/livez", api, seconds=120)
        yield url, api.pid, Path(f"/proc/{api.pid}/root{full}")
    finally:
        stop(api)


def fill(folder: Path) -> Path:
    """Take all the room that there is; returns the file that has it."""
    file = folder / "fill"
    with suppress(OSError), file.open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(4096))
    assert shutil.disk_usage(folder).free == 0
    return file


def ask(url: str, task: str) -> str:
    """The version that answers, over a connection of its own."""
    asked = {"task": task, "at": format_moment(CUTOFF), "distance": "1400", "carrier": "UA"}
    version: str = httpx.get(f"{url}/predict", params=asked, timeout=60).raise_for_status().json()["version"]
    return version


def test_workers_count_and_are_replaced_while_their_temporary_folder_is_full(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    schema, log = define(engine), tmp_path / "log"
    task, version = schema.task.name, publish_and_release(mlflow_url, engine, schema, tmp_path)
    environment = impatient_environment(database_url, mlflow_url, tmp_path / "home")
    environment |= {"MORROW_WORKERS": str(NUM_WORKERS), "TMPDIR": str(tmp_path / "tmp")}

    def seen() -> dict[int, str | None]:
        """The version of each worker, by pid, as one of them sees it."""
        try:
            found = httpx.get(f"{url}/tasks/{task}", timeout=60).raise_for_status().json()["workers"]
        except httpx.TransportError:  # the one that was killed had taken the connection
            return {}
        return {worker["pid"]: worker["version"] for worker in found}

    def await_all() -> set[int]:
        """The pids of all workers, once one of them sees all with the version."""
        last: dict[int, str | None] = {}

        def are_all() -> bool:
            last.clear()
            last.update(seen())
            return [*last.values()] == [version] * NUM_WORKERS

        wait_for("all workers", are_all, log)
        return set(last)

    with running(environment, tmp_path / "tmp", log) as (url, _, folder):
        pids = await_all()
        fill(folder)
        paths = ["/predict", "/events", "/tasks", f"/tasks/{task}", "/livez", "/readyz", "/metrics", "/docs", "/nosuch"]
        for path in paths:
            for method in METHODS:
                for _ in range(NUM_WORKERS):
                    httpx.request(method, url + path, timeout=60)
        assert await_all() == pids
        assert 'status="405"' in httpx.get(f"{url}/metrics", timeout=60).raise_for_status().text
        os.kill(min(pids), signal.SIGKILL)
        # It finds no room to tell the other of itself either.
        wait_for(
            "another worker", lambda: version in [seen_of for pid, seen_of in seen().items() if pid not in pids], log
        )
        assert {ask(url, task) for _ in range(5 * NUM_WORKERS)} == {version}
        httpx.get(f"{url}/metrics", timeout=60).raise_for_status()
    assert "metrics.not_counted" in log.read_text()


def test_a_version_that_finds_no_room_is_taken_once_there_is_some(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    schema, log = define(engine), tmp_path / "log"
    task, first = schema.task.name, publish_and_release(mlflow_url, engine, schema, tmp_path)
    with running(impatient_environment(database_url, mlflow_url, tmp_path / "home"), tmp_path / "home", log) as (
        url,
        _,
        folder,
    ):
        status = f"{url}/tasks/{task}"
        wait_for("the first version", lambda: httpx.get(f"{url}/readyz", timeout=60).json()["tasks"].get(task), log)
        wait_for("an answer", lambda: ask(url, task) == first, log)
        file = fill(folder)
        second = publish_and_release(mlflow_url, engine, schema, tmp_path, bias=1.0)
        reason = "The local copy cannot be written: No space left on device."
        wait_for("word of it", lambda: httpx.get(status, timeout=60).json()["registry"]["reason"] == reason, log)
        assert ask(url, task) == first
        # It is downloaded once and then again after pauses, not at every look, of which there are two in a second.
        written, seen = folder / "models" / task, set()
        for _ in range(40):
            seen.add(written.stat().st_mtime_ns)
            time.sleep(0.1)
        assert len(seen) <= 2
        file.unlink()
        wait_for("the second version", lambda: ask(url, task) == second, log)
        left = [path.name for path in (folder / "models" / task).iterdir()]
        assert sorted(left) == sorted(["current.json", first, second])
