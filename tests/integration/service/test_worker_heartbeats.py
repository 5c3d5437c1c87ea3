"""Workers of one home: they share its copies, see each other, and one that stays behind leaves."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Engine

from service.database import Store
from service.gauges import StateGauges
from service.metrics import Metrics
from service.models.follower import Follower
from service.models.local_copies import Current, lock_folder, write_current
from service.server.worker_heartbeats import (
    Heartbeat,
    ServedVersion,
    WorkerHeartbeats,
    describe_worker,
    list_behind,
    read_heartbeats,
    write_heartbeat,
)
from store.engine import make_engine
from tests.integration.artefacts import CUTOFF, WEEK, move_alias, publish, write_version
from tests.integration.published_versions import define
from tests.integration.service_app import DEAD_DATABASE, service_settings

PATIENCE = 5.0
BOUND = CUTOFF + WEEK


class Home:
    """Followers of one home, each with metrics of its own."""

    def __init__(self, folder: Path, mlflow_url: str = "http://127.0.0.1:9", engine: Engine | None = None) -> None:
        self.folder = folder
        self.settings = service_settings(DEAD_DATABASE, folder, mlflow_url=mlflow_url, stale_seconds=PATIENCE)
        self.opened = ExitStack()
        self._engine = engine

    def follower(self) -> tuple[Follower, Metrics]:
        store = Store(self._engine or make_engine(DEAD_DATABASE), places=4, seconds=5)
        metrics = Metrics()
        follower = Follower(self.settings, store, metrics)
        if self._engine is None:
            self.opened.callback(store.close)
        self.opened.callback(follower.close)
        follower.restore()
        return follower, metrics

    def take(self, version: str, previous: str | None = None) -> None:
        """Put a version in place as a worker does that takes it."""
        write_version(self.folder / "models" / "flights" / version)
        write_current(self.folder / "models" / "flights", Current(version, BOUND, previous))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home whose followers reach neither registry nor database."""
    home = Home(tmp_path / "home")
    with home.opened:
        yield home


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where workers meet."""
    folder = tmp_path / "workers"
    folder.mkdir()
    return folder


def heartbeat(pid: int, version: str | None, task: str = "flights") -> Heartbeat:
    return Heartbeat(pid, 0.0, True, True, {task: ServedVersion(version, BOUND, False)})


def test_one_worker_is_behind_only_where_another_answers_with_what_is_current() -> None:
    own = heartbeat(1, "1")
    assert list_behind(own, {"flights": "2"}, [heartbeat(2, "1"), heartbeat(3, "2")]) == ["flights"]
    assert list_behind(heartbeat(1, None), {"flights": "2"}, [heartbeat(3, "2")]) == ["flights"]
    # The copy of 2 is there, but nobody answers with it: the registry is down for all.
    assert list_behind(own, {"flights": "2"}, [heartbeat(2, "1"), heartbeat(3, None)]) == []
    # The other one is behind, or follows another task.
    assert list_behind(own, {"flights": "1"}, [heartbeat(2, "2")]) == []
    assert list_behind(own, {"flights": "2"}, [heartbeat(2, "2", task="other")]) == []
    assert list_behind(own, {}, [heartbeat(2, "2")]) == []


def test_a_worker_that_stays_behind_leaves_readiness_and_asks_to_end_once(home: Home, folder: Path) -> None:
    home.take("1")
    follower, metrics = home.follower()
    ended: list[str] = []
    heartbeats = WorkerHeartbeats(home.settings, follower, metrics, folder=folder, stop=partial(ended.append, "ended"))
    heartbeats.exchange(folder, 0.0, 0.0)
    home.take("2", previous="1")
    for moment in (1.0, 1.0 + PATIENCE):
        heartbeats.exchange(folder, moment, moment)
    assert ended == []  # nobody answers with version 2
    write_heartbeat(folder, heartbeat(os.getppid(), "2"))
    heartbeats.exchange(folder, 20.0, 20.0)
    heartbeats.exchange(folder, 20.0 + PATIENCE - 0.1, 24.9)
    assert (ended, follower.is_ready) == ([], True)
    for moment in (20.0 + PATIENCE, 30.0 + PATIENCE):
        heartbeats.exchange(folder, moment, moment)
    assert (ended, follower.is_ready) == (["ended"], False)
    assert metrics.registry.get_sample_value("morrow_stale_workers_total") == 1
    told = {one.pid: (one.version("flights"), one.is_ready) for one in read_heartbeats(folder)}
    assert told == {os.getpid(): ("1", False), os.getppid(): ("2", True)}


def test_a_worker_that_catches_up_in_time_stays(home: Home, folder: Path) -> None:
    home.take("1")
    follower, metrics = home.follower()
    ended: list[str] = []
    heartbeats = WorkerHeartbeats(home.settings, follower, metrics, folder=folder, stop=partial(ended.append, "ended"))
    write_heartbeat(folder, heartbeat(os.getppid(), "2"))
    home.take("2", previous="1")
    heartbeats.exchange(folder, 0.0, 0.0)
    write_heartbeat(folder, heartbeat(os.getppid(), "1"))  # rolled back meanwhile
    heartbeats.exchange(folder, PATIENCE - 1, 0.0)
    write_heartbeat(folder, heartbeat(os.getppid(), "2"))
    heartbeats.exchange(folder, PATIENCE + 1, 0.0)
    assert ended == []
    follower.restore()
    heartbeats.exchange(folder, 3 * PATIENCE, 0.0)
    assert (ended, follower.is_ready) == ([], True)


def test_what_dead_workers_said_is_forgotten(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    write_heartbeat(folder, heartbeat(dead.pid, "1"))
    write_heartbeat(folder, heartbeat(os.getpid(), "1"))
    assert [one.pid for one in read_heartbeats(folder)] == [os.getpid()]
    assert [file.name for file in folder.iterdir()] == [f"{os.getpid()}.json"]


def test_a_scrape_shows_every_worker_and_the_worst_of_what_they_say(home: Home, folder: Path) -> None:
    home.take("2")
    follower, metrics = home.follower()
    heartbeats = WorkerHeartbeats(home.settings, follower, metrics, folder=folder)
    metrics.registry.register(StateGauges(follower, heartbeats, now=lambda: BOUND / 1e6 - 100))
    other = Heartbeat(os.getppid(), 0.0, True, True, {"flights": ServedVersion("1", BOUND - 40 * 10**6, True)})
    write_heartbeat(folder, other)
    heartbeats.exchange(folder, 0.0, 0.0)
    read = metrics.registry.get_sample_value
    for pid, version in ((os.getpid(), "2"), (os.getppid(), "1")):
        labels = {"pid": str(pid), "task": "flights", "version": version}
        assert read("morrow_worker_model_info", labels) == 1
        assert read("morrow_model_info", {"task": "flights", "version": version}) == 1
    assert read("morrow_valid_seconds", {"task": "flights"}) == 60
    assert read("morrow_registry_degraded", {"task": "flights"}) == 1
    assert read("morrow_database_up") == 0


def test_a_beat_says_what_the_follower_does(home: Home) -> None:
    home.take("1")
    follower, _ = home.follower()
    found = describe_worker(follower, 7.5)
    assert found == Heartbeat(os.getpid(), 7.5, True, False, {"flights": ServedVersion("1", BOUND, False)})
    follower.poll(0)
    assert describe_worker(follower, 7.5).tasks == {"flights": ServedVersion("1", BOUND, True)}


def test_one_follower_downloads_a_version_and_the_others_load_its_copy(
    engine: Engine, mlflow_url: str, tmp_path: Path
) -> None:
    task = define(engine).task.name
    home = Home(tmp_path / "home", mlflow_url, engine)
    with home.opened:
        followers = [home.follower()[0] for _ in range(3)]
        version = publish(mlflow_url, task, write_version(tmp_path / "one", task=task))
        copy = home.folder / "models" / task / version
        with lock_folder(copy.parent):
            followers[0].poll(0)
            # Another worker holds the folder: the next look brings the version in, and nothing is wrong meanwhile.
            assert task not in followers[0].forecasters
            assert followers[0].registries[task].state == "ok"
            assert not followers[0].is_ready
        followers[0].poll(1)
        first = copy.stat()
        for follower in followers[1:]:
            follower.poll(1)
        assert [follower.forecasters[task].version for follower in followers] == [version] * 3
        assert (copy.stat().st_ino, copy.stat().st_ctime_ns) == (first.st_ino, first.st_ctime_ns)


def test_followers_of_one_home_swap_side_by_side_without_a_refusal(
    engine: Engine, mlflow_url: str, tmp_path: Path
) -> None:
    task = define(engine).task.name
    home = Home(tmp_path / "home", mlflow_url, engine)
    versions = [
        publish(mlflow_url, task, write_version(tmp_path / f"{k}", task=task, bias=float(k)), champion=False)
        for k in range(4)
    ]
    with home.opened, ThreadPoolExecutor(3) as pool:
        pairs = [home.follower() for _ in range(3)]
        for turn in range(12):
            version = versions[turn % len(versions)]
            move_alias(mlflow_url, task, version)
            for _ in range(3):
                list(pool.map(Follower.poll, [follower for follower, _ in pairs], [float(turn)] * 3))
            assert [follower.forecasters[task].version for follower, _ in pairs] == [version] * 3
            current = json.loads((home.folder / "models" / task / "current.json").read_bytes())
            kept = {path.name for path in (home.folder / "models" / task).iterdir()}
            assert kept == {version, current["previous"], "current.json"} - {None}
        for _, metrics in pairs:
            text = {sample.name for family in metrics.registry.collect() for sample in family.samples}
            assert "morrow_follower_errors_total" not in text
