"""Training processes that stay for the next cycle, and several of them side by side."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from contracts.failure import KILLED
from store.cycles.requests import request_cycle
from store.tasks.catalog import Schema
from tests.integration.drifting_task import cutoff_after, cycles_of, define, drifting_task, now
from tests.integration.trainer_ticks import MakeTrainer, ask, endless_reads, has_ended, has_step, tick_until, trainers
from trainer.evaluation.fit_store import candidate_folder
from trainer.scheduling.scheduler import Trainer


@pytest.fixture
def make_trainer(engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path) -> Iterator[MakeTrainer]:
    with trainers(engine, database_url, mlflow_url, tmp_path) as make:
        yield make


def carry_out(engine: Engine, trainer: Trainer, schema: Schema, num_windows: int) -> int:
    """Let the trainer carry out a cycle; returns the id of the process that did."""
    ask(engine, schema, cutoff_after(num_windows))
    return await_end(engine, trainer, schema)


def await_end(engine: Engine, trainer: Trainer, schema: Schema) -> int:
    tick_until([trainer], lambda: trainer.running_job is not None)
    assert trainer.running_job is not None
    process_id = trainer.running_job.process.pid
    tick_until([trainer], lambda: has_ended(engine, schema) and trainer.running_job is None)
    return process_id


def fit_of(trainer: Trainer, schema: Schema, num_windows: int) -> dict[str, bytes]:
    """The files of a kept fit but its manifest, which says when it was made."""
    folder = candidate_folder(trainer.settings.home, schema.task, cutoff_after(num_windows))
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix == ".onnx"}


def test_a_process_carries_out_one_cycle_after_the_other_and_fits_as_a_fresh_one_does(
    engine: Engine, make_trainer: MakeTrainer
) -> None:
    schema, other = define(engine, drifting_task(), 10), define(engine, drifting_task(), 10)
    trainer, fresh = make_trainer(), make_trainer()
    assert len({carry_out(engine, trainer, one, 10) for one in (other, schema)}) == 1
    with engine.begin() as connection:
        request_cycle(connection, schema.task_id, cutoff_after(10), now(), again=True)
    await_end(engine, fresh, schema)
    assert [cycle.state for cycle in cycles_of(engine, schema)] == ["released", "released"]
    assert fit_of(trainer, schema, 10) == fit_of(fresh, schema, 10) != {}


def test_a_waiting_process_that_was_killed_costs_no_cycle(engine: Engine, make_trainer: MakeTrainer) -> None:
    schema = define(engine, drifting_task(), 10)
    trainer = make_trainer()
    warm = carry_out(engine, trainer, schema, 9)
    (worker,) = trainer._workers._idle
    worker.process.kill()
    worker.process.wait()
    assert carry_out(engine, trainer, schema, 10) != warm
    assert not [cycle for cycle in cycles_of(engine, schema) if cycle.state == "failed"]


def test_a_process_that_is_killed_in_its_second_cycle_costs_that_cycle_only(
    engine: Engine, make_trainer: MakeTrainer
) -> None:
    schema = define(engine, drifting_task(), 11)
    trainer = make_trainer()
    warm = carry_out(engine, trainer, schema, 9)
    with endless_reads(engine):
        ask(engine, schema, cutoff_after(10))
        tick_until([trainer], lambda: has_step(engine, schema, "read"))
        os.kill(warm, signal.SIGKILL)
        tick_until([trainer], lambda: has_ended(engine, schema) and trainer.running_job is None)
    assert carry_out(engine, trainer, schema, 11) != warm
    assert [(cycle.state, cycle.reason) for cycle in cycles_of(engine, schema)] == [
        ("released", None),
        ("failed", KILLED.reason),
        ("released", None),
    ]


def test_a_process_goes_after_a_failed_cycle_after_a_minute_without_one_and_with_its_trainer(
    engine: Engine, make_trainer: MakeTrainer
) -> None:
    schema = define(engine, drifting_task(), 10)
    trainer = make_trainer()
    warm = carry_out(engine, trainer, schema, 9)
    (worker,) = trainer._workers._idle
    worker.idle_since -= 61
    trainer.tick(now())
    assert worker.process.wait(30) == 0
    assert trainer._workers._idle == []
    other = carry_out(engine, trainer, schema, 10)
    assert other != warm
    (worker,) = trainer._workers._idle
    trainer.stop(now())
    assert worker.process.poll() is not None
    failing = make_trainer(device="cuda")
    carry_out(engine, failing, define(engine, drifting_task(), 10), 10)
    assert failing._workers._idle == []


def test_cycles_of_two_tasks_are_carried_out_side_by_side_and_those_of_one_after_each_other(
    engine: Engine, make_trainer: MakeTrainer
) -> None:
    busy, other = define(engine, drifting_task(), 10), define(engine, drifting_task(), 10)
    for num_windows in (8, 9, 10):
        ask(engine, busy, cutoff_after(num_windows))
    trainer = make_trainer(training_workers=3)
    trainer.tick(now())
    assert [one.cycle.task_id for one in trainer.running_jobs if one.cycle] == [busy.task_id]
    ask(engine, other, cutoff_after(10))
    trainer.tick(now())
    assert [one.cycle.task_id for one in trainer.running_jobs if one.cycle] == [busy.task_id, other.task_id]
    tick_until([trainer], lambda: has_ended(engine, busy) and has_ended(engine, other))
    assert {cycle.state for schema in (busy, other) for cycle in cycles_of(engine, schema)} == {"released"}
