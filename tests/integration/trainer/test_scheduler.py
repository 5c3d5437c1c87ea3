"""The trainer process: what it asks for, what it claims, and what it waits for."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from apscheduler.schedulers.background import BackgroundScheduler
from mlflow import MlflowClient
from sqlalchemy import Engine, text
from structlog.testing import capture_logs

from cli.local.stack import free_port
from contracts.clock import to_micros
from contracts.errors import InvalidInput
from contracts.failure import DELETED, REGISTRY_UNREACHABLE
from contracts.verdict import Decision, Verdict
from store.cycles.leases import end_cycle
from store.cycles.ledger import Cycle
from store.engine import make_engine
from store.outages import SILENT
from store.tasks.deletion import list_deleted
from store.tasks.lifecycle import Move, begin_deletion, move_task
from tests.integration.drifting_task import (
    HOUR,
    START,
    add_windows,
    claim,
    cutoff_after,
    cycles_of,
    define,
    drifting_task,
    now,
)
from tests.integration.trainer_ticks import (
    MakeTrainer,
    ask,
    has_ended,
    has_step,
    settings_for,
    tick_until,
    trainers,
)
from trainer.scheduling.deletions import Deletions
from trainer.scheduling.liveness import heartbeat_file, is_alive
from trainer.scheduling.scheduler import Trainer, follow_clock, run_trainer
from trainer.scheduling.workers import running_job
from trainer.scheduling.workers.jobs import RunCycle
from trainer.settings import TrainerSettings


@pytest.fixture
def make_trainer(engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path) -> Iterator[MakeTrainer]:
    with trainers(engine, database_url, mlflow_url, tmp_path) as make:
        yield make


def test_a_scheduled_task_is_asked_for_its_newest_cutoff_only(engine: Engine, make_trainer: MakeTrainer) -> None:
    schema = define(engine, drifting_task(schedule="window"), 5)
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
    assert verdict == Verdict.of(Decision("newest_cutoff", False, reason="a newer cutoff is due"))


def test_a_scheduled_task_without_events_makes_no_cycle_and_its_first_one_comes_with_the_first_events(
    engine: Engine, make_trainer: MakeTrainer
) -> None:
    schema = define(engine, drifting_task(schedule="window"), 0)
    trainer = make_trainer()
    for hour in (5.5, 9.5):
        trainer._request(START + hour * HOUR)
    assert cycles_of(engine, schema) == []
    add_windows(engine, schema, 0, 3)
    trainer._request(START + 900.5 * HOUR)
    trainer._request(START + 901.5 * HOUR)
    assert [(cycle.cutoff, cycle.state) for cycle in cycles_of(engine, schema)] == [(cutoff_after(3), "requested")]
    add_windows(engine, schema, 902, 903)
    trainer._request(START + 903.5 * HOUR)
    assert [cycle.cutoff for cycle in cycles_of(engine, schema)] == [cutoff_after(903), cutoff_after(3)]


def test_paused_and_archived_tasks_are_asked_for_nothing_and_go_on_with_the_newest_cutoff(
    engine: Engine, make_trainer: MakeTrainer
) -> None:
    schema = define(engine, drifting_task(schedule="window"), 8)
    trainer = make_trainer()

    def move(action: Move) -> None:
        with engine.begin() as connection:
            move_task(connection, schema.task.name, action, actor="Ada", reason="", now=now())

    move("pause")
    trainer._request(START + 5.5 * HOUR)
    move("archive")
    trainer._request(START + 6.5 * HOUR)
    assert cycles_of(engine, schema) == []
    move("unarchive")
    trainer._request(START + 7.5 * HOUR)
    assert [cycle.cutoff for cycle in cycles_of(engine, schema)] == [cutoff_after(7)]
    move("pause")
    trainer._claim(now())
    assert trainer.running_job is None


def test_the_cycle_of_a_deleted_task_is_stopped_and_the_task_removed(engine: Engine, make_trainer: MakeTrainer) -> None:
    schema, other = define(engine, drifting_task(), 2), define(engine, drifting_task(), 2)
    trainer = make_trainer(lease_seconds=1)
    with engine.begin() as connection:
        connection.execute(text("LOCK TABLE events IN ACCESS EXCLUSIVE MODE"))  # the cycle waits in its first step
        ask(engine, schema, cutoff_after(2))
        tick_until([trainer], lambda: has_step(engine, schema, "read"))
        begin_deletion(connection, schema.task.name, actor="Ada", reason="", now=now())
    with capture_logs() as lines:
        trainer.tick(now())
    assert trainer.running_job is None
    ended = [(line["log_level"], line["reason"]) for line in lines if line["event"] == "child.ended"]
    assert ended == [("info", DELETED.reason)]
    deletions = Deletions(engine, trainer.settings, threading.Event())

    def is_removed() -> bool:
        deletions.tick(now() + timedelta(minutes=1))
        with engine.connect() as connection:
            return not list_deleted(connection)

    tick_until([trainer], is_removed)
    assert cycles_of(engine, schema) == []
    ask(engine, other, cutoff_after(2))
    tick_until([trainer], lambda: has_ended(engine, other))


def test_two_trainers_release_one_version(engine: Engine, make_trainer: MakeTrainer, mlflow_url: str) -> None:
    schema = define(engine, drifting_task(), 10)
    ask(engine, schema, cutoff_after(10))
    trainers = [make_trainer(), make_trainer()]
    with capture_logs() as lines:
        tick_until(
            trainers, lambda: has_ended(engine, schema) and all(trainer.running_job is None for trainer in trainers)
        )
    (cycle,) = cycles_of(engine, schema)
    claimed = [(line["task"], line["cycle_id"]) for line in lines if line["event"] == "cycle.claimed"]
    assert claimed == [(schema.task.name, cycle.cycle_id)]
    assert (cycle.state, cycle.version) == ("released", "1")
    assert len(MlflowClient(mlflow_url, mlflow_url).search_model_versions(f"name='{schema.task.name}'")) == 1


def test_a_finished_fit_is_asked_for_again_once_the_registry_answers(engine: Engine, make_trainer: MakeTrainer) -> None:
    schema = define(engine, drifting_task(), 0)
    cycle = claim(engine, schema, cutoff_after(1))
    with engine.begin() as connection:
        end_cycle(connection, cycle, "failed", REGISTRY_UNREACHABLE, now() - timedelta(seconds=5))
    dead = f"http://127.0.0.1:{free_port()}"
    make_trainer(mlflow_url=dead)._request(now())
    assert len(cycles_of(engine, schema)) == 1
    make_trainer()._request(now())
    assert [cycle.state for cycle in cycles_of(engine, schema)] == ["requested", "failed"]


def test_without_postgresql_the_trainer_waits_and_says_so_once(tmp_path: Path) -> None:
    url = f"postgresql+psycopg://nobody@127.0.0.1:{free_port()}/nothing"
    engine = make_engine(url)
    trainer = Trainer(engine, settings_for(tmp_path, url, "http://127.0.0.1:1"))
    with capture_logs() as lines:
        trainer.tick(now())
        trainer.tick(now())
    assert [line["event"] for line in lines] == ["store.unreachable"]
    assert is_alive(trainer.settings, now())
    engine.dispose()


def test_ticks_go_on_at_once_where_the_clock_was_set_back() -> None:
    ticked, tick = threading.Event(), timedelta(seconds=0.2)
    scheduler = BackgroundScheduler(timezone=UTC)
    # What an hour's step back makes of the next tick of a trainer.
    ahead = now() + timedelta(hours=1)
    scheduler.add_job(ticked.set, "interval", seconds=tick.total_seconds(), next_run_time=ahead)
    scheduler.start()
    try:
        with capture_logs() as lines:
            follow_clock(scheduler, now(), tick)
            follow_clock(scheduler, now(), tick)
        assert ticked.wait(30)
        ticked.clear()
        assert ticked.wait(30), "and so do the ticks after it"
    finally:
        scheduler.shutdown()
    assert [line["event"] for line in lines] == ["clock.set_back"]


def test_a_cycle_whose_store_goes_away_before_it_begins_is_tried_again(tmp_path: Path) -> None:
    dead = f"postgresql+psycopg://nobody@127.0.0.1:{free_port()}/nothing"
    cycle = Cycle(
        1, 1, to_micros(START), 1, "running", "claim", "mine", None, None, None, None, None, now(), now(), None
    )
    child = running_job.start(settings_for(tmp_path, dead, "http://127.0.0.1:1"), RunCycle(cycle, "flights"))
    assert running_job.reap(child) == SILENT


def test_it_is_alive_while_its_heart_beats(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, "postgresql+psycopg://x", "http://x")
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert not is_alive(settings, moment)
    heartbeat_file(settings).touch()
    os.utime(heartbeat_file(settings), (to_micros(moment) / 1e6,) * 2)
    assert is_alive(settings, moment + timedelta(seconds=60))
    assert not is_alive(settings, moment + timedelta(seconds=61))


def test_a_trainer_whose_home_was_removed_makes_it_anew_and_goes_on(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer()
    trainer.tick(now())
    shutil.rmtree(trainer.settings.home)
    trainer.tick(now())
    assert is_alive(trainer.settings, now())


def test_who_asks_whether_it_is_alive_loads_nothing_of_what_it_runs_on(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "trainer", "check"]
    home = {"MORROW_HOME": str(tmp_path)}
    asked = subprocess.run(command, env=os.environ | home, capture_output=True, text=True, check=False)
    assert asked.returncode == 1
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in asked.stderr.splitlines()}
    assert "pydantic_settings" in loaded
    assert not loaded & {"sqlalchemy", "apscheduler", "httpx"}


def test_a_trainer_without_stores_refuses_to_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"MORROW_DATABASE_URL: is not set; .*; MORROW_MLFLOW_URL: is not set"):
        run_trainer(TrainerSettings(home=tmp_path, database_url=None, mlflow_url=None))
