"""Units on a real Ray cluster of this machine: the same bytes as here, and no cycle is lost with a node or the head."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import Engine, select

from contracts.calibration import Calibration
from store.cycles.ledger import Cycle
from store.database import releases
from store.tasks.catalog import Schema
from tests.integration.drifting_task import (
    carry_out,
    claim,
    cutoff_after,
    cycles_of,
    define,
    drifting_task,
    now,
    settings,
)
from tests.integration.kept_units import kept_files, recorded
from tests.integration.trainer_ticks import MakeTrainer, ask, has_ended, tick_until, trainers
from trainer.evaluation.backtest import read_needed
from trainer.evaluation.fit_store import FitStore
from trainer.evaluation.horizon import horizon_rule, judge_horizon
from trainer.evaluation.units import InThisProcess, Unit, cut_units
from trainer.executors.ray_cluster import OnRay, disconnect
from trainer.executors.unit_ledger import UnitLedger
from trainer.tracking.registry import Registry

pytest.importorskip("ray", reason="Ray is not installed: pip install 'morrow[ray]'")
# Ray leaves files of its processes open.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

NUM_WINDOWS = 14
_NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
# A lost node is noticed within seconds.
_SYSTEM = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 500, "health_check_failure_threshold": 4}


class Clusters:
    """One cluster after the other at one address, as a head is replaced."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.made: list[Any] = []

    @property
    def settings(self) -> dict[str, Any]:
        return {"executor": "ray", "ray_address": f"ray://127.0.0.1:{self.port}", "units": 2}

    def start(self, num_nodes: int) -> Any:
        from ray.cluster_utils import Cluster

        head = _NODE | {"ray_client_server_port": self.port, "_system_config": _SYSTEM}
        self.made.append(Cluster(initialize_head=True, head_node_args=head))
        for _ in range(num_nodes - 1):
            self.made[-1].add_node(**_NODE)
        return self.made[-1]


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clusters]:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ENABLE_AUTO_CONNECT", "0")
    # The heads of the clusters are children of this process, which is a client of theirs as well.
    monkeypatch.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")
    found = Clusters()
    yield found
    disconnect()
    for cluster in found.made:
        cluster.shutdown()


@pytest.fixture
def make_trainer(engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path) -> Iterator[MakeTrainer]:
    with trainers(engine, database_url, mlflow_url, tmp_path) as make:
        yield make


def define_slow(engine: Engine, epochs: int) -> Schema:
    """A task whose units take as long as that."""
    task = drifting_task()
    training = task.training.model_copy(update={"pretrain_epochs": epochs})
    return define(engine, task.with_training(training), NUM_WINDOWS)


def test_units_on_ray_leave_the_bytes_that_they_leave_here(engine: Engine, clusters: Clusters, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(), NUM_WINDOWS)
    cycle = claim(engine, schema, cutoff_after(NUM_WINDOWS))
    clusters.start(1)
    given = settings(tmp_path, **clusters.settings)
    reading = read_needed(engine, schema, cycle.cutoff, now())
    units = cut_units(reading, [cutoff_after(k) for k in (9, 10, 11, 12)], given)
    calibration = Calibration(1.25, [])
    units.append(Unit(reading, (cycle.cutoff,), judge_horizon([], horizon_rule(schema.task)), calibration))
    kept = []
    for home, executor in (("ray", OnRay(UnitLedger(engine, cycle, now), given)), ("here", InThisProcess(given))):
        store = FitStore(tmp_path / home, schema.task)
        fits = list(executor.run(units, store, lambda _epoch: None))
        assert sorted(fit.origin for fit in fits) == [cutoff_after(k) for k in (9, 10, 11, 12, NUM_WINDOWS)]
        kept.append(kept_files(tmp_path / home, schema))
    assert kept[0] == kept[1] != {}
    assert {(state, attempts) for state, attempts, _ in recorded(engine, schema)} == {("done", 1)}


def test_a_training_process_makes_its_fits_on_the_cluster_that_is_named_and_ends_with_its_trainer(
    engine: Engine, clusters: Clusters, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = define(engine, drifting_task(), NUM_WINDOWS)
    clusters.start(1)
    monkeypatch.setenv("RAY_ADDRESS", "ray://nowhere.invalid:1")
    trainer = make_trainer(**clusters.settings)
    ask(engine, schema, cutoff_after(NUM_WINDOWS))
    tick_until([trainer], lambda: has_ended(engine, schema) and not trainer.running_jobs)
    (cycle,) = cycles_of(engine, schema)
    assert cycle.state == "released"
    assert {(state, lease) for state, _, lease in recorded(engine, schema)} == {("done", cycle.lease)}
    (worker,) = trainer._workers._idle
    trainer.stop(now())
    assert worker.process.poll() == 0


@pytest.mark.story
def test_cycles_survive_the_loss_of_a_node_and_then_of_the_head(
    engine: Engine, registry: Registry, clusters: Clusters, tmp_path: Path
) -> None:
    schema = define_slow(engine, 150)
    cycle = claim(engine, schema, cutoff_after(NUM_WINDOWS))
    cluster = clusters.start(2)
    ended: list[Cycle] = []

    def work() -> None:
        ended.append(carry_out(engine, registry, cycle, tmp_path, **clusters.settings))

    thread = threading.Thread(target=work)
    thread.start()
    (node,) = cluster.worker_nodes
    await_unit(node)
    node.kill_raylet()
    await_unit(cluster.head_node)
    cluster.remove_node(cluster.head_node, allow_graceful=False)
    clusters.start(1)
    thread.join(600)
    assert [one.state for one in ended] == ["released"]
    with engine.connect() as connection:
        released = connection.execute(select(releases.c.action).where(releases.c.task_id == schema.task_id))
        assert released.scalars().all() == ["release"]
    states = recorded(engine, schema)
    assert {state for state, _, _ in states} == {"done"}
    assert sorted({attempts for _, attempts, _ in states})[-1] == 2


def await_unit(node: Any) -> None:
    """Wait until a task of Morrow has run for a second on a node."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        if any(is_at_work(process) for process in raylet.children(recursive=True)):
            time.sleep(1)
            return
        time.sleep(0.1)
    pytest.fail("no unit has begun")


def is_at_work(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return "fit_remotely" in " ".join(process.cmdline()) or "fit_remotely" in process.name()
    return False
