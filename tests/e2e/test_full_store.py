"""A database without any room left costs no acknowledged event and no answer, and takes events again once it has some.

What has no room first is its log of what it has committed, so it ends itself, and may be started again and again to no
avail: nothing a producer hears of it but 503.
"""

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx
import pytest
from sqlalchemy import Engine, text

from contracts.clock import format_moment
from migrations import migrate
from store.engine import make_engine
from tests.e2e.processes import wait_for
from tests.integration.api_process import define_flights, running
from tests.integration.artefacts import CUTOFF
from tests.integration.service_app import an_event
from tests.servers import stop

OWN_MOUNTS = ("unshare", "--mount", "sh", "-c")
# A new cluster with its log of 16 MiB takes 40 MB.
ROOM = 72 * 2**20
NUM_PRODUCERS, BATCH = 3, 200
ASKED = {"task": "flights", "at": format_moment(CUTOFF), "distance": "1400", "carrier": "UA"}

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0
    or subprocess.run([*OWN_MOUNTS, "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode != 0,
    reason="only root may give a server a file system of its own",
)


@dataclass(frozen=True)
class SmallPostgres:
    """The holder of a server, its folder as this process sees it, and a link to the socket of the latest start."""

    holder: "subprocess.Popen[bytes]"
    folder: Path
    link: Path

    @property
    def url(self) -> str:
        """One for all starts."""
        return f"postgresql+psycopg://morrow@/morrow?host={self.link}&port=5432"

    def start(self) -> None:
        """Start again, whatever has become of the previous server."""
        assert self.holder.stdin is not None
        assert self.holder.stdout is not None
        self.holder.stdin.write(b"\n")
        self.holder.stdin.flush()
        socket = self.holder.stdout.readline().decode().strip()
        assert socket, "it does not start"
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(socket)


@contextmanager
def small_postgres(folder: Path, log: IO[bytes]) -> Iterator[SmallPostgres]:
    """A server that has been started."""
    folder.mkdir()
    mounted = f'mount -t tmpfs -o size={ROOM} none "{folder}" && exec "$@"'
    command = [*OWN_MOUNTS, mounted, "sh", sys.executable, "-m", "tests.e2e.small_postgres", str(folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, start_new_session=True) as holder:
        try:
            server = SmallPostgres(holder, Path(f"/proc/{holder.pid}/root{folder}"), folder.with_name("socket"))
            server.start()
            yield server
            assert holder.stdin is not None
            holder.stdin.close()
            holder.wait(60)
        finally:
            stop(holder)


class Producer:
    """Sends batches of new events until told to stop; `unanswered` are those that were not acknowledged."""

    def __init__(self, name: str, url: str) -> None:
        self.heard: Counter[int] = Counter()
        self.hints: Counter[str | None] = Counter()
        self.sent: list[list[str]] = []
        self.unanswered: list[list[str]] = []
        self._name = name
        self._events = f"{url}/events?task=flights"

    def produce(self, stopping: threading.Event) -> None:
        while not stopping.wait(0.02):
            ids = [f"{self._name}-{len(self.sent)}-{k}" for k in range(BATCH)]
            self.sent.append(ids)
            if not self._post(ids):
                self.unanswered.append(ids)

    def send_again(self) -> bool:
        """Whether everything is acknowledged now."""
        self.unanswered = [ids for ids in self.unanswered if not self._post(ids)]
        return not self.unanswered

    def _post(self, ids: list[str]) -> bool:
        answer = httpx.post(self._events, json=[an_event(event_id) for event_id in ids], timeout=60)
        self.heard[answer.status_code] += 1
        if answer.status_code == 503:
            self.hints[answer.headers.get("Retry-After")] += 1
        return answer.status_code == 200


def test_a_store_without_room_is_503_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log, small_postgres(tmp_path / "small", log) as server:
        migrate(server.url)
        engine = make_engine(server.url)
        define_flights(engine)
        engine.dispose()
        limits = {"MORROW_DATABASE_SECONDS": "3", "MORROW_POLL_SECONDS": "0.5"}
        with running(server.url, tmp_path / "home", **limits) as api, ThreadPoolExecutor(NUM_PRODUCERS) as pool:
            producers = [Producer(f"p{k}", api.url) for k in range(NUM_PRODUCERS)]
            stopping = threading.Event()
            at_work = [pool.submit(one.produce, stopping) for one in producers]
            try:
                wait_for("events", lambda: all(one.heard[200] for one in producers), api.log)
                fill = server.folder / "fill"
                fill.write_bytes(bytes(max(0, free_bytes(server.folder) - 6 * 2**20)))
                wait_for("a full store", lambda: all(one.heard[503] >= 5 for one in producers), api.log)
                answers = [httpx.get(f"{api.url}/predict", params=ASKED, timeout=60) for _ in range(20)]
                assert {answer.status_code for answer in answers} == {200}
                assert httpx.get(f"{api.url}/readyz", timeout=60).status_code == 200
            finally:
                stopping.set()
            for work in at_work:
                work.result()
            fill.unlink()
            server.start()
            for one in producers:
                wait_for("all acknowledgements", one.send_again, api.log)
                assert set(one.heard) == {200, 503}
                assert None not in one.hints
            wait_for("the database", lambda: is_reached(api.url), api.log)
        ids = sorted(event_id for one in producers for batch in one.sent for event_id in batch)
        assert find_ids(engine) == ids
        engine.dispose()


def free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def is_reached(url: str) -> bool:
    return bool(httpx.get(f"{url}/readyz", timeout=60).json()["database"] == "ok")


def find_ids(engine: Engine) -> list[str]:
    """Ids of all revisions that are stored, in their order."""
    with engine.connect() as connection:
        return sorted(connection.execute(text("SELECT event_id FROM events")).scalars())
