"""Rivals are fitted while the trainer is idle, make way at once, and are continued later."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine
from structlog.testing import capture_logs

from contracts.failure import KILLED, PREEMPTED, STOPPED, Failure, FailureCode
from store.error_cells import Cell, read_cells, record_cells
from store.tasks.catalog import Schema
from tests.integration.drifting_task import cutoff_after, cycles_of, define, drifting_task, now
from tests.integration.trainer_ticks import MakeTrainer, ask, endless_reads, tick_until, trainers
from trainer.rivals.missing_cells import find_missing_cells
from trainer.scheduling.idle_work import IdleWork
from trainer.scheduling.scheduler import Trainer
from trainer.scheduling.workers.jobs import FillRivals

RIVALS = ["baseline", "last_window", "gbdt"]
GUARD: dict[str, Any] = {"max_age": 2, "tolerance": 5.0, "min_rows": 100, "rivals": RIVALS}
ENDLESS = {"pretrain_epochs": 100_000, "width": 8, "num_layers": 1, "calendar": [], "num_seeds": 1}


@pytest.fixture
def make_trainer(engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path) -> Iterator[MakeTrainer]:
    with trainers(engine, database_url, mlflow_url, tmp_path) as make:
        yield make


def with_our_cells(engine: Engine, rivals: list[str] = RIVALS, **changes: Any) -> Schema:
    """A task whose method has a cell that no rival has."""
    schema = define(engine, drifting_task(guard=GUARD | {"rivals": rivals}, **changes), 8)
    add_our_cell(engine, schema, 6)
    return schema


def add_our_cell(engine: Engine, schema: Schema, window: int) -> None:
    start = cutoff_after(window)
    with engine.begin() as connection:
        record_cells(
            connection, schema.task_id, schema.task.recipe, [Cell(start, start, "gi", 150, 0.5, 0.2, 150)], now()
        )


def methods(engine: Engine, schema: Schema) -> set[str]:
    with engine.connect() as connection:
        cells = read_cells(connection, schema.task_id, schema.task.recipe, until=cutoff_after(1000))
    return {cell.method for cell in cells}


def has_missing_cells(engine: Engine, schema: Schema) -> bool:
    with engine.connect() as connection:
        return bool(find_missing_cells(connection, schema, cutoff_after(1000)))


def is_filling(trainer: Trainer) -> bool:
    return trainer.running_job is not None and isinstance(trainer.running_job.job, FillRivals)


def test_after_a_cycle_its_rivals_are_fitted(engine: Engine, make_trainer: MakeTrainer) -> None:
    schema = define(engine, drifting_task(guard=GUARD), 8)
    ask(engine, schema, cutoff_after(8))
    trainer = make_trainer()
    tick_until(
        [trainer], lambda: {*RIVALS, "gi", "naive"} == methods(engine, schema) and not has_missing_cells(engine, schema)
    )
    tick_until([trainer], lambda: trainer.running_job is None)
    (cycle,) = cycles_of(engine, schema)
    assert cycle.state == "released"
    assert cycle.ended_at is not None
    trainer._idle._next_check = 0.0
    trainer.tick(now())
    assert trainer.running_job is None


def test_what_a_killed_process_has_fitted_is_not_fitted_again(engine: Engine, make_trainer: MakeTrainer) -> None:
    schema = define(engine, drifting_task(guard=GUARD), 8)
    ask(engine, schema, cutoff_after(8))
    trainer = make_trainer()
    tick_until([trainer], lambda: is_filling(trainer) and "baseline" in methods(engine, schema))
    assert trainer.running_job is not None
    os.kill(trainer.running_job.process.pid, signal.SIGKILL)
    trainer.running_job.process.wait()
    candidates = trainer.settings.home / "candidates"
    files = {file for file in candidates.glob("*/*/[0-9]*/*") if file.parent.name.isdecimal()}
    stamps = {file: file.stat().st_mtime_ns for file in files}
    with capture_logs() as lines:
        tick_until([trainer], lambda: not has_missing_cells(engine, schema))
    reasons = [line["reason"] for line in lines if line["event"] == "rivals.ended"]
    assert reasons[0] == KILLED.reason
    assert {line["task"] for line in lines if line["event"] in ("rivals.began", "rivals.ended")} == {schema.task.name}
    assert len(set(candidates.glob("*/*/*"))) > len({file.parent for file in files})
    assert {file: file.stat().st_mtime_ns for file in files} == stamps
    assert [cycle.state for cycle in cycles_of(engine, schema)] == ["released"]


def test_a_requested_cycle_ends_rivals_at_once(engine: Engine, make_trainer: MakeTrainer) -> None:
    schema = with_our_cells(engine, ["baseline"], training=ENDLESS)
    other = define(engine, drifting_task(), 0)
    trainer = make_trainer()
    tick_until([trainer], lambda: is_filling(trainer))
    assert trainer.running_job is not None
    child = trainer.running_job
    time.sleep(3)
    ask(engine, other, cutoff_after(1))
    began = time.monotonic()
    with capture_logs() as lines:
        trainer.tick(now())
    assert time.monotonic() - began < 4
    assert child.process.poll() is not None
    assert [line["reason"] for line in lines if line["event"] == "rivals.ended"] == [PREEMPTED.reason]
    assert [cycle.state for cycle in cycles_of(engine, other)] == ["running"]
    tick_until([trainer], lambda: is_filling(trainer))
    assert [cycle.state for cycle in cycles_of(engine, other)] == ["skipped"]
    assert cycles_of(engine, schema) == []


def test_rivals_are_polite_and_end_at_the_time_limit(engine: Engine, make_trainer: MakeTrainer) -> None:
    schema = with_our_cells(engine, ["baseline"])
    trainer = make_trainer(cycle_limit_seconds=12, max_attempts=1)
    tick_until([trainer], lambda: is_filling(trainer))
    assert trainer.running_job is not None
    pid = trainer.running_job.process.pid
    with endless_reads(engine), capture_logs() as lines:
        tick_until(
            [trainer], lambda: os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
        )
        tick_until([trainer], lambda: trainer.running_job is None)
        trainer.tick(now())
    assert [line["reason"] for line in lines if line["event"] == "rivals.ended"] == [
        "The time limit of 12 s was reached."
    ]
    assert trainer.running_job is None
    assert cycles_of(engine, schema) == []


def test_what_cannot_be_filled_is_left_until_there_is_more_to_do(engine: Engine) -> None:
    schema = with_our_cells(engine)
    idle, job = IdleWork(engine, 3), FillRivals(schema.task_id, schema.task.name)
    assert idle.choose(now()) == job
    idle.finish(job, None, now())
    assert idle.choose(now()) is None
    add_our_cell(engine, schema, 7)
    idle._next_check = 0.0
    assert idle.choose(now()) == job
    idle.finish(job, STOPPED, now())


def test_a_process_that_fails_is_tried_so_often_and_one_that_is_stopped_always(engine: Engine) -> None:
    schema = with_our_cells(engine)
    idle, job = IdleWork(engine, 2), FillRivals(schema.task_id, schema.task.name)
    crash = Failure(FailureCode.CRASHED, "a crash")
    for failure in (STOPPED, PREEMPTED, STOPPED, PREEMPTED, crash, STOPPED, crash):
        assert idle.choose(now()) == job
        idle.finish(job, failure, now())
    assert idle.choose(now()) is None


def test_a_process_that_could_not_be_started_keeps_no_later_one_from_its_rivals(engine: Engine) -> None:
    schema = with_our_cells(engine)
    idle, job = IdleWork(engine, 3), FillRivals(schema.task_id, schema.task.name)
    assert idle.choose(now()) == job  # and then the system has no process to spare
    idle._next_check = 0.0
    assert idle.choose(now()) == job
    idle.finish(job, STOPPED, now())


def test_two_trainers_do_not_fill_the_same_rivals(engine: Engine) -> None:
    schema = with_our_cells(engine)
    one, other, job = IdleWork(engine, 3), IdleWork(engine, 3), FillRivals(schema.task_id, schema.task.name)
    assert one.choose(now()) == job
    assert other.choose(now()) is None
    one.finish(job, STOPPED, now())
    other._next_check = 0.0
    assert other.choose(now()) == job
    other.finish(job, STOPPED, now())


def test_a_task_without_rivals_has_nothing_to_fill(engine: Engine) -> None:
    with_our_cells(engine, [])
    assert IdleWork(engine, 3).choose(now()) is None
