"""Units of a cycle in several training processes: they share the work, and none is needed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete, func, select

from store.database import cycles, error_cells, releases
from store.error_cells import Cell, read_cells
from store.tasks.catalog import Schema
from tests.integration.drifting_task import (
    carry_out,
    claim,
    cutoff_after,
    cycles_of,
    define,
    drifting_task,
    now,
)
from tests.integration.kept_units import kept_files, recorded
from tests.integration.trainer_ticks import MakeTrainer, ask, has_ended, tick_until, trainers
from trainer.scheduling.scheduler import Trainer
from trainer.scheduling.workers.jobs import HelpCycle, RunCycle
from trainer.scheduling.workers.running_job import RunningJob
from trainer.tracking.registry import Registry

NUM_WINDOWS = 14


@pytest.fixture
def make_trainer(engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path) -> Iterator[MakeTrainer]:
    with trainers(engine, database_url, mlflow_url, tmp_path) as make:
        yield make


def define_slow(engine: Engine) -> Schema:
    """A task each of whose units takes some seconds."""
    task = drifting_task()
    training = task.training.model_copy(update={"pretrain_epochs": 40})
    return define(engine, task.with_training(training), NUM_WINDOWS)


def begin(engine: Engine, trainer: Trainer, schema: Schema) -> RunningJob:
    """Let a first cycle begin until a process helps it; returns the helper."""
    ask(engine, schema, cutoff_after(NUM_WINDOWS))
    tick_until([trainer], lambda: bool(helpers(trainer)))
    return helpers(trainer)[0]


def helpers(trainer: Trainer) -> list[RunningJob]:
    return [running for running in trainer.running_jobs if isinstance(running.job, HelpCycle)]


def finish(engine: Engine, trainer: Trainer, *schemas: Schema) -> None:
    tick_until([trainer], lambda: all(has_ended(engine, one) for one in schemas) and not trainer.running_jobs)


def cells_of(engine: Engine, schema: Schema) -> list[Cell]:
    with engine.connect() as connection:
        return list(read_cells(connection, schema.task_id, schema.task.recipe, until=cutoff_after(NUM_WINDOWS)))


def test_a_first_cycle_in_two_processes_ends_with_the_bytes_of_one(
    engine: Engine, registry: Registry, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    schema = define_slow(engine)
    trainer = make_trainer(training_workers=2)
    helper = begin(engine, trainer, schema)
    assert isinstance(helper.job, HelpCycle)
    finish(engine, trainer, schema)
    (cycle,) = cycles_of(engine, schema)
    assert cycle.state == "released"
    states = recorded(engine, schema)
    assert {(state, attempts) for state, attempts, _ in states} == {("done", 1)}
    assert {cycle.lease, helper.job.lease} <= {lease for _, _, lease in states}
    spread, cells = kept_files(trainer.settings.home, schema, "*.onnx"), cells_of(engine, schema)

    with engine.begin() as connection:
        for table in (error_cells, releases, cycles):
            connection.execute(delete(table))
    one = carry_out(engine, registry, claim(engine, schema, cutoff_after(NUM_WINDOWS)), tmp_path / "one", units=2)
    assert one.state == "released"
    assert kept_files(tmp_path / "one", schema, "*.onnx") == spread != {}
    assert cells_of(engine, schema) == cells


@pytest.mark.parametrize("how", ["killed", "stopped for a cycle"])
def test_a_helper_that_ends_early_costs_one_unit_and_no_cycle(
    engine: Engine, make_trainer: MakeTrainer, how: str
) -> None:
    schema, other = define_slow(engine), define(engine, drifting_task(), 10)
    trainer = make_trainer(training_workers=2)
    helper = begin(engine, trainer, schema)
    if how == "killed":
        helper.process.kill()
    else:
        ask(engine, other, cutoff_after(10))
        trainer.tick(now())
        assert not helpers(trainer)
        assert [one.cycle.task_id for one in trainer.running_jobs if one.cycle] == [schema.task_id, other.task_id]
    finish(engine, trainer, schema, other)
    (cycle,) = cycles_of(engine, schema)
    assert cycle.state == "released"
    states = recorded(engine, schema)
    assert sorted(states[:2]) == [("done", 1, cycle.lease), ("done", 2, cycle.lease)]
    assert {state for state, _, _ in states} == {"done"}


def test_a_trainer_of_another_home_helps_through_the_object_store(
    engine: Engine, make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    schema = define_slow(engine)
    both = [make_trainer(fits_url=f"file://{tmp_path / 'store'}", units=2) for _ in range(2)]
    for trainer in both:
        assert trainer._helping.objects is not None
        trainer._helping.objects.identity()
    ask(engine, schema, cutoff_after(NUM_WINDOWS))
    tick_until(both, lambda: any(helpers(trainer) for trainer in both))
    assert [[type(one.job) for one in trainer.running_jobs] for trainer in both] == [[RunCycle], [HelpCycle]]
    (helper,) = helpers(both[1])
    assert isinstance(helper.job, HelpCycle)
    tick_until(both, lambda: has_ended(engine, schema) and not any(trainer.running_jobs for trainer in both))
    (cycle,) = cycles_of(engine, schema)
    assert cycle.state == "released"
    states = recorded(engine, schema)
    assert {(state, attempts) for state, attempts, _ in states} == {("done", 1)}
    assert {cycle.lease, helper.job.lease} <= {lease for _, _, lease in states}


def test_a_cycle_that_is_killed_among_its_units_is_released_once_by_the_next_attempt(
    engine: Engine, make_trainer: MakeTrainer
) -> None:
    schema = define_slow(engine)
    trainer = make_trainer(training_workers=2)
    begin(engine, trainer, schema)
    tick_until([trainer], lambda: any(state == "done" for state, _, _ in recorded(engine, schema)))
    running = next(one for one in trainer.running_jobs if one.cycle is not None)
    running.process.kill()
    finish(engine, trainer, schema)
    ask(engine, schema, cutoff_after(NUM_WINDOWS))
    finish(engine, trainer, schema)
    assert [cycle.state for cycle in cycles_of(engine, schema)] == ["released", "failed"]
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(releases)).scalar_one() == 1
    assert {state for state, _, _ in recorded(engine, schema)} == {"done"}
