"""What becomes of a cycle whose process hangs, dies or is told to end."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from mlflow import MlflowClient
from sqlalchemy import Engine
from structlog.testing import capture_logs

from contracts.failure import KILLED, LEASE_EXPIRED, STOPPED, Failure, FailureCode
from store.cycles.leases import end_cycle, expire_leases
from store.cycles.ledger import Cycle
from tests.integration.drifting_task import claim, cutoff_after, cycles_of, define, drifting_task, now
from tests.integration.trainer_ticks import MakeTrainer, ask, endless_reads, has_ended, has_step, tick_until, trainers
from trainer.scheduling.workers import running_job
from trainer.scheduling.workers.jobs import RunCycle, Sweep
from trainer.scheduling.workers.orphaned_runs import end_orphans
from trainer.scheduling.workers.worker_process import kill_worker, start_worker
from trainer.tracking.registry import Registry
from trainer.tracking.tags import CYCLE_TAG, LEASE_TAG

LONG_FIT = {"pretrain_epochs": 100_000, "width": 8, "num_layers": 1, "calendar": [], "num_seeds": 1}


@pytest.fixture
def make_trainer(engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path) -> Iterator[MakeTrainer]:
    with trainers(engine, database_url, mlflow_url, tmp_path) as make:
        yield make


def test_a_cycle_beyond_its_time_limit_is_killed_and_fails(
    engine: Engine, make_trainer: MakeTrainer, mlflow_url: str
) -> None:
    schema = define(engine, drifting_task(), 10)
    ask(engine, schema, cutoff_after(10))
    trainer = make_trainer(cycle_limit_seconds=12)
    with endless_reads(engine):
        tick_until([trainer], lambda: has_ended(engine, schema))
    (cycle,) = cycles_of(engine, schema)
    assert (cycle.state, cycle.reason) == ("failed", "The time limit of 12 s was reached.")
    assert cycle.verdict is not None
    (decision,) = cycle.verdict.decisions
    assert (decision.rule, decision.passed, decision.threshold) == ("cycle_limit", False, 12.0)
    assert decision.value is not None
    assert 12 <= decision.value < 20
    tick_until([trainer], lambda: trainer.running_job is None and not trainer._must_sweep)
    client = MlflowClient(mlflow_url, mlflow_url)
    assert cycle.run_id is None or client.get_run(cycle.run_id).info.status == "FAILED"


def test_after_a_child_that_hangs_the_next_cutoff_is_trained(engine: Engine, make_trainer: MakeTrainer) -> None:
    schema = define(engine, drifting_task(), 11)
    ask(engine, schema, cutoff_after(10))
    trainer = make_trainer()
    tick_until([trainer], lambda: trainer.running_job is not None)
    assert trainer.running_job is not None
    trainer.running_job.process.send_signal(signal.SIGSTOP)
    running_job.shorten_deadline(trainer.running_job, 1, Failure(FailureCode.LEASE_LOST, "It hung."))
    tick_until([trainer], lambda: has_ended(engine, schema))
    ask(engine, schema, cutoff_after(11))
    tick_until([trainer], lambda: has_ended(engine, schema))
    assert [(cycle.state, cycle.reason) for cycle in cycles_of(engine, schema)] == [
        ("released", None),
        ("failed", "It hung."),
    ]
    verdict = cycles_of(engine, schema)[1].verdict
    assert verdict is not None
    assert [decision.rule for decision in verdict.decisions] == ["completed"]


def test_a_child_that_hangs_on_a_lost_lease_is_ended_for_that_reason(engine: Engine, make_trainer: MakeTrainer) -> None:
    schema = define(engine, drifting_task(), 10)
    ask(engine, schema, cutoff_after(10))
    trainer = make_trainer(lease_seconds=3)
    tick_until([trainer], lambda: trainer.running_job is not None)
    assert trainer.running_job is not None
    trainer.running_job.process.send_signal(signal.SIGSTOP)
    with engine.begin() as connection:
        expire_leases(connection, now() + timedelta(minutes=1))
    with capture_logs() as lines:
        tick_until([trainer], lambda: trainer.running_job is None)
    assert [line["reason"] for line in lines if line["event"] == "child.killed"] == [
        "Its lease was lost, and it did not leave within 3 s."
    ]
    assert cycles_of(engine, schema)[0].reason == LEASE_EXPIRED.reason


@pytest.mark.parametrize("has_registry", [True, False])
def test_a_cycle_that_is_due_waits_for_no_sweep_and_takes_its_place(
    engine: Engine, make_trainer: MakeTrainer, has_registry: bool
) -> None:
    schema = define(engine, drifting_task(), 10)
    ask(engine, schema, cutoff_after(10))
    trainer = make_trainer() if has_registry else make_trainer(mlflow_url="http://127.0.0.1:9")
    trainer._must_sweep = True
    trainer.tick(now())
    assert trainer.running_job is not None
    assert isinstance(trainer.running_job.job, RunCycle)
    assert trainer._must_sweep is not has_registry


def test_a_registry_whose_answer_trickles_in_holds_no_tick_up(engine: Engine, make_trainer: MakeTrainer) -> None:
    schema = define(engine, drifting_task(), 10)
    ask(engine, schema, cutoff_after(10))
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        threading.Thread(target=trickle, args=(server,), daemon=True).start()
        trainer = make_trainer(mlflow_url=f"http://127.0.0.1:{server.getsockname()[1]}")
        trainer._must_sweep = True
        began = time.monotonic()
        trainer.tick(now())
    assert time.monotonic() - began < 20
    assert trainer.running_job is not None
    assert trainer._must_sweep


def trickle(server: socket.socket) -> None:
    """Answer one request for a minute, half a second a byte: no single read of it takes long."""
    connection, _ = server.accept()
    with suppress(OSError), connection:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 120\r\n\r\n")
        for _ in range(120):
            connection.sendall(b" ")
            time.sleep(0.5)  # less than any bound on one read


def test_a_process_that_was_killed_leaves_no_pipe_open_and_takes_no_job(
    engine: Engine, make_trainer: MakeTrainer
) -> None:
    woken = threading.Event()
    worker = start_worker(make_trainer().settings, woken.set)
    kill_worker(worker)
    assert woken.wait(60)
    assert worker.process.stdin is not None
    assert worker.process.stdin.closed
    assert not worker.give(b"{}\n")


def test_there_is_nothing_to_sweep_before_a_cycle_has_ended(engine: Engine, make_trainer: MakeTrainer) -> None:
    define(engine, drifting_task(), 10)
    trainer = make_trainer()
    trainer._must_sweep = True
    trainer.tick(now())
    assert trainer.running_job is None
    assert not trainer._must_sweep


def test_no_sweep_comes_before_the_next_attempt_at_a_cycle_that_lost_its_trainer(
    engine: Engine, make_trainer: MakeTrainer
) -> None:
    schema = define(engine, drifting_task(), 10)
    former = claim(engine, schema, cutoff_after(9))
    with engine.begin() as connection:
        end_cycle(connection, former, "failed", Failure(FailureCode.CYCLE_ERROR, "It left a run open."), now())
    claim(engine, schema, cutoff_after(10))
    trainer = make_trainer()
    trainer._must_sweep = True
    for minutes in (0, 10):  # while its lease lasts, and when it has just run out
        trainer.tick(now() + timedelta(minutes=minutes))
        assert trainer.running_job is None
        assert trainer._must_sweep
    assert cycles_of(engine, schema)[0].reason == LEASE_EXPIRED.reason
    trainer.tick(now() + timedelta(minutes=20))
    assert trainer.running_job is not None
    assert isinstance(trainer.running_job.job, RunCycle)


def test_a_sweep_that_hangs_is_ended_for_its_own_limit(engine: Engine, make_trainer: MakeTrainer) -> None:
    cycle = claim(engine, define(engine, drifting_task(), 10), cutoff_after(10))
    with engine.begin() as connection:
        end_cycle(connection, cycle, "failed", Failure(FailureCode.CYCLE_ERROR, "It left a run open."), now())
    trainer = make_trainer()
    trainer._must_sweep = True
    trainer.tick(now())
    assert trainer.running_job is not None
    assert isinstance(trainer.running_job.job, Sweep)
    trainer.running_job.process.send_signal(signal.SIGSTOP)
    trainer.running_job.deadline = 0
    with capture_logs() as lines:
        tick_until([trainer], lambda: trainer.running_job is None)
    assert [line["reason"] for line in lines if line["event"] == "child.killed"] == [
        "The time limit of 120 s was reached."
    ]


def test_a_child_that_dies_fails_its_cycle_with_the_signal(engine: Engine, make_trainer: MakeTrainer) -> None:
    schema = define(engine, drifting_task(training=LONG_FIT), 10)
    ask(engine, schema, cutoff_after(10))
    trainer = make_trainer()
    tick_until([trainer], lambda: has_step(engine, schema, "score"))
    assert trainer.running_job is not None
    os.kill(trainer.running_job.process.pid, signal.SIGKILL)
    tick_until([trainer], lambda: has_ended(engine, schema))
    assert cycles_of(engine, schema)[0].reason == KILLED.reason


def test_sigterm_ends_run_and_cycle_and_the_process_within_seconds(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(training=LONG_FIT), 10)
    ask(engine, schema, cutoff_after(10))
    environment = {
        **os.environ,
        "MORROW_HOME": str(tmp_path),
        "MORROW_DATABASE_URL": database_url,
        "MORROW_MLFLOW_URL": mlflow_url,
        "MORROW_DEVICE": "cpu",
        "MORROW_THREADS": "1",
    }
    process = subprocess.Popen([sys.executable, "-m", "trainer"], env=environment, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while not has_step(engine, schema, "score"):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(1)
        began = time.monotonic()
        process.terminate()
        assert process.wait(20) == 0
        assert time.monotonic() - began < 10
    finally:
        process.kill()
    (cycle,) = cycles_of(engine, schema)
    assert (cycle.state, cycle.reason) == ("failed", STOPPED.reason)
    assert cycle.run_id is not None
    assert MlflowClient(mlflow_url, mlflow_url).get_run(cycle.run_id).info.status == "KILLED"


def test_runs_of_cycles_that_have_ended_are_closed_and_others_left_alone(engine: Engine, mlflow_url: str) -> None:
    schema = define(engine, drifting_task(), 0)
    registry, client = Registry(mlflow_url), MlflowClient(mlflow_url, mlflow_url)

    def start(cycle: Cycle, lease: str | None) -> str:
        return registry.start_run(schema.task.name, "a cycle", {CYCLE_TAG: str(cycle.cycle_id), LEASE_TAG: str(lease)})

    dead = claim(engine, schema, cutoff_after(1), lease_seconds=1)
    with engine.begin() as connection:
        expire_leases(connection, now() + timedelta(minutes=1))
    assert cycles_of(engine, schema)[0].reason == LEASE_EXPIRED.reason
    alive = claim(engine, schema, cutoff_after(2))
    runs = [start(dead, dead.lease), start(alive, alive.lease), start(dead, "of another deployment")]
    end_orphans(engine, mlflow_url)
    assert [client.get_run(run_id).info.status for run_id in runs] == ["FAILED", "RUNNING", "RUNNING"]
