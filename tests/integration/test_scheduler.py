"""The trainer process: what it asks for, what it claims, and what becomes of a cycle whose process ends badly."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from mlflow import MlflowClient
from sqlalchemy import Engine
from structlog.testing import capture_logs

from contracts.catalog import Schema
from contracts.clock import to_micros
from contracts.cycles import LEASE_RAN_OUT, Cycle, end_cycle, expire_leases, list_cycles, request_cycle
from contracts.database import make_engine
from contracts.errors import InvalidInput
from tests.conftest import free_port
from tests.integration.drifting import HOUR, START, claim, cutoff_after, define, drifting_task, now
from trainer import supervision
from trainer.child import end_orphans
from trainer.due import REGISTRY_UNREACHABLE, STOPPED, STORE_UNREACHABLE
from trainer.heartbeat import heartbeat, is_alive
from trainer.orders import RunCycle, Sweep
from trainer.registry import CYCLE_TAG, LEASE_TAG, Registry
from trainer.scheduler import Trainer, run_trainer
from trainer.settings import TrainerSettings

LONG_FIT = {"pretrain_epochs": 100_000, "width": 8, "num_layers": 1, "calendar": [], "num_seeds": 1}


def settings_for(
    database_url: str, mlflow_url: str, home: Path, *, cycle_limit_seconds: float = 120, lease_seconds: float = 30
) -> TrainerSettings:
    return TrainerSettings(
        home=home,
        database_url=database_url,
        mlflow_url=mlflow_url,
        device="cpu",
        threads=1,
        tick_seconds=0.2,
        retry_seconds=0.5,
        cycle_limit_seconds=cycle_limit_seconds,
        lease_seconds=lease_seconds,
    )


@pytest.fixture
def make_trainer(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> Iterator[Callable[..., Trainer]]:
    """Trainers whose children end with the test. They sweep only where the test lets them."""
    made: list[Trainer] = []

    def make(*, mlflow: str = mlflow_url, limit: float = 120, lease: float = 30) -> Trainer:
        home = tmp_path / str(len(made))
        home.mkdir()
        settings = settings_for(database_url, mlflow, home, cycle_limit_seconds=limit, lease_seconds=lease)
        made.append(Trainer(engine, settings))
        made[-1]._must_sweep = False
        return made[-1]

    yield make
    for trainer in made:
        trainer.stop(now())


def cycles_of(engine: Engine, schema: Schema) -> list[Cycle]:
    with engine.connect() as connection:
        return list(list_cycles(connection, schema.task_id))


def ask(engine: Engine, schema: Schema, cutoff: int, at: datetime | None = None) -> None:
    with engine.begin() as connection:
        request_cycle(connection, schema.task_id, cutoff, at or now())


def tick_until(trainers: list[Trainer], is_done: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < deadline, "it took too long"
        for trainer in trainers:
            trainer.tick(now())
        time.sleep(0.1)


def has_step(engine: Engine, schema: Schema, step: str) -> bool:
    return any(cycle.step == step for cycle in cycles_of(engine, schema))


def has_ended(engine: Engine, schema: Schema) -> bool:
    return all(cycle.ended_at is not None for cycle in cycles_of(engine, schema))


def test_a_scheduled_task_is_asked_for_its_newest_cutoff_only(
    engine: Engine, make_trainer: Callable[..., Trainer]
) -> None:
    schema = define(engine, drifting_task(schedule="window"), 0)
    trainer = make_trainer()
    claim(engine, schema, cutoff_after(1))
    ask(engine, schema, cutoff_after(2), START + 2.5 * HOUR)
    ask(engine, schema, cutoff_after(3), START + 9 * HOUR)
    trainer._request(START + 5.5 * HOUR)
    trainer._request(START + 5.6 * HOUR)
    assert [(cycle.cutoff, cycle.state) for cycle in cycles_of(engine, schema)] == [
        (cutoff_after(5), "requested"),
        (cutoff_after(3), "requested"),
        (cutoff_after(2), "skipped"),
        (cutoff_after(1), "running"),
    ]
    verdict = cycles_of(engine, schema)[2].verdict
    assert verdict == {
        "passed": False,
        "reason": "a newer cutoff is due",
        "decisions": [
            {
                "rule": "newest_cutoff",
                "passed": False,
                "value": None,
                "threshold": None,
                "reason": "a newer cutoff is due",
            }
        ],
    }


def test_two_trainers_release_one_version(
    engine: Engine, make_trainer: Callable[..., Trainer], mlflow_url: str
) -> None:
    schema = define(engine, drifting_task(), 10)
    ask(engine, schema, cutoff_after(10))
    trainers = [make_trainer(), make_trainer()]
    tick_until(trainers, lambda: has_ended(engine, schema) and all(trainer.child is None for trainer in trainers))
    (cycle,) = cycles_of(engine, schema)
    assert (cycle.state, cycle.version) == ("released", "1")
    assert len(MlflowClient(mlflow_url, mlflow_url).search_model_versions(f"name='{schema.task.name}'")) == 1


def test_a_cycle_beyond_its_time_limit_is_killed_and_fails(
    engine: Engine, make_trainer: Callable[..., Trainer], mlflow_url: str
) -> None:
    schema = define(engine, drifting_task(training=LONG_FIT), 10)
    ask(engine, schema, cutoff_after(10))
    trainer = make_trainer(limit=12)
    tick_until([trainer], lambda: has_ended(engine, schema))
    (cycle,) = cycles_of(engine, schema)
    assert (cycle.state, cycle.reason) == ("failed", "The time limit of 12 s was reached.")
    assert cycle.verdict is not None
    (decision,) = cycle.verdict["decisions"]
    assert (decision["rule"], decision["passed"], decision["threshold"]) == ("cycle_limit", False, 12.0)
    assert 12 <= decision["value"] < 20
    tick_until([trainer], lambda: trainer.child is None and not trainer._must_sweep)
    client = MlflowClient(mlflow_url, mlflow_url)
    assert cycle.run_id is None or client.get_run(cycle.run_id).info.status == "FAILED"


def test_after_a_child_that_hangs_the_next_cutoff_is_trained(
    engine: Engine, make_trainer: Callable[..., Trainer]
) -> None:
    schema = define(engine, drifting_task(), 11)
    ask(engine, schema, cutoff_after(10))
    trainer = make_trainer()
    tick_until([trainer], lambda: trainer.child is not None)
    assert trainer.child is not None
    trainer.child.process.send_signal(signal.SIGSTOP)
    supervision.hasten(trainer.child, 1, "It hung.")
    tick_until([trainer], lambda: has_ended(engine, schema))
    ask(engine, schema, cutoff_after(11))
    tick_until([trainer], lambda: has_ended(engine, schema))
    assert [(cycle.state, cycle.reason) for cycle in cycles_of(engine, schema)] == [
        ("released", None),
        ("failed", "It hung."),
    ]
    verdict = cycles_of(engine, schema)[1].verdict
    assert verdict is not None
    assert [decision["rule"] for decision in verdict["decisions"]] == ["completed"]


def test_a_child_that_hangs_on_a_lost_lease_is_ended_for_that_reason(
    engine: Engine, make_trainer: Callable[..., Trainer]
) -> None:
    schema = define(engine, drifting_task(), 10)
    ask(engine, schema, cutoff_after(10))
    trainer = make_trainer(lease=3)
    tick_until([trainer], lambda: trainer.child is not None)
    assert trainer.child is not None
    trainer.child.process.send_signal(signal.SIGSTOP)
    with engine.begin() as connection:
        expire_leases(connection, now() + timedelta(minutes=1))
    with capture_logs() as lines:
        tick_until([trainer], lambda: trainer.child is None)
    assert [line["reason"] for line in lines if line["event"] == "child.killed"] == [
        "Its lease was lost, and it did not leave within 3 s."
    ]
    assert cycles_of(engine, schema)[0].reason == LEASE_RAN_OUT


def test_a_sweep_that_hangs_is_ended_for_its_own_limit(engine: Engine, make_trainer: Callable[..., Trainer]) -> None:
    trainer = make_trainer()
    trainer._must_sweep = True
    trainer.tick(now())
    assert trainer.child is not None
    assert isinstance(trainer.child.job, Sweep)
    trainer.child.process.send_signal(signal.SIGSTOP)
    trainer.child.deadline = 0
    with capture_logs() as lines:
        tick_until([trainer], lambda: trainer.child is None)
    assert [line["reason"] for line in lines if line["event"] == "child.killed"] == [
        "The time limit of 120 s was reached."
    ]


def test_a_child_that_dies_fails_its_cycle_with_the_signal(
    engine: Engine, make_trainer: Callable[..., Trainer]
) -> None:
    schema = define(engine, drifting_task(training=LONG_FIT), 10)
    ask(engine, schema, cutoff_after(10))
    trainer = make_trainer()
    tick_until([trainer], lambda: has_step(engine, schema, "score"))
    assert trainer.child is not None
    os.kill(trainer.child.process.pid, signal.SIGKILL)
    tick_until([trainer], lambda: has_ended(engine, schema))
    assert cycles_of(engine, schema)[0].reason == "The training process was killed by SIGKILL."


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
    assert (cycle.state, cycle.reason) == ("failed", STOPPED)
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
    assert cycles_of(engine, schema)[0].reason == LEASE_RAN_OUT
    alive = claim(engine, schema, cutoff_after(2))
    runs = [start(dead, dead.lease), start(alive, alive.lease), start(dead, "of another deployment")]
    end_orphans(engine, mlflow_url)
    assert [client.get_run(run_id).info.status for run_id in runs] == ["FAILED", "RUNNING", "RUNNING"]


def test_a_finished_fit_is_asked_for_again_once_the_registry_answers(
    engine: Engine, make_trainer: Callable[..., Trainer]
) -> None:
    schema = define(engine, drifting_task(), 0)
    cycle = claim(engine, schema, cutoff_after(1))
    with engine.begin() as connection:
        end_cycle(connection, cycle, "failed", REGISTRY_UNREACHABLE, now() - timedelta(seconds=5))
    dead = f"http://127.0.0.1:{free_port()}"
    make_trainer(mlflow=dead)._request(now())
    assert len(cycles_of(engine, schema)) == 1
    make_trainer()._request(now())
    assert [cycle.state for cycle in cycles_of(engine, schema)] == ["requested", "failed"]


def test_without_postgresql_the_trainer_waits_and_says_so_once(tmp_path: Path) -> None:
    url = f"postgresql+psycopg://nobody@127.0.0.1:{free_port()}/nothing"
    engine = make_engine(url)
    trainer = Trainer(engine, settings_for(url, "http://127.0.0.1:1", tmp_path))
    with capture_logs() as lines:
        trainer.tick(now())
        trainer.tick(now())
    assert [line["event"] for line in lines] == ["store.unreachable"]
    assert is_alive(trainer.settings, now())
    engine.dispose()


def test_a_cycle_whose_store_goes_away_before_it_begins_is_tried_again(tmp_path: Path) -> None:
    dead = f"postgresql+psycopg://nobody@127.0.0.1:{free_port()}/nothing"
    cycle = Cycle(
        1, 1, to_micros(START), 1, "running", "claim", "mine", None, None, None, None, None, now(), now(), None
    )
    child = supervision.start(settings_for(dead, "http://127.0.0.1:1", tmp_path), RunCycle(cycle))
    assert supervision.close(child) == STORE_UNREACHABLE


def test_it_is_alive_while_its_heart_beats(tmp_path: Path) -> None:
    settings = settings_for("postgresql+psycopg://x", "http://x", tmp_path)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert not is_alive(settings, moment)
    heartbeat(settings).touch()
    os.utime(heartbeat(settings), (to_micros(moment) / 1e6,) * 2)
    assert is_alive(settings, moment + timedelta(seconds=60))
    assert not is_alive(settings, moment + timedelta(seconds=61))


def test_a_trainer_without_stores_refuses_to_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"MORROW_DATABASE_URL: is not set; .*; MORROW_MLFLOW_URL: is not set"):
        run_trainer(TrainerSettings(home=tmp_path, database_url=None, mlflow_url=None))
