"""A task with `tune` gets its recipe chosen once, from the rows that its first cycle may read."""

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from sqlalchemy import Engine, func, select, update

from contracts.task import Task, Training
from store.cycles.ledger import list_cycles
from store.database import choices, cycles
from store.tasks.catalog import Schema, define_task, find_task
from tests.integration.drifting_task import (
    START,
    Story,
    add_windows,
    claim,
    cutoff_after,
    define,
    drifting_task,
    now,
    retrain,
    settings,
)
from trainer.evaluation.fit_store import find_origins, recipe_folder
from trainer.retraining.cycle import run_cycle
from trainer.retraining.recipe_step import TRIALS_FILE, budget_of, plain
from trainer.tracking.registry import Registry
from trainer.tuning.search import Budget


def tuned_task(**changes: Any) -> Task:
    """The drifting task with a recipe that learns next to nothing, to be tuned in a few trials."""
    task = drifting_task()
    training = task.training.model_dump() | {"pretrain_rate": 1e-5, "finetune_rate": 1e-6, "tune": True}
    return task.with_training(Training.model_validate(training | {"tune_trials": 4, "tune_seconds": 120} | changes))


def current(engine: Engine, schema: Schema) -> Schema:
    with engine.connect() as connection:
        return find_task(connection, schema.task.name)


def count_choices(engine: Engine, schema: Schema) -> int:
    with engine.connect() as connection:
        query = select(func.count()).select_from(choices).where(choices.c.task_id == schema.task_id)
        return connection.execute(query).scalar_one()


def tried_with_cohort(story: Story) -> list[object]:
    """For each trial, whether it was made with a cohort."""
    return [tried["with_cohort"] for tried in story.of("recipe.tried")]


def test_the_first_cycle_chooses_and_the_next_does_not(
    engine: Engine, registry: Registry, mlflow_url: str, tmp_path: Path
) -> None:
    task = tuned_task()
    schema = define(engine, task, 10)
    story = Story()
    assert retrain(engine, registry, schema, 10, tmp_path, report=story).state == "released"
    with_cohort = tried_with_cohort(story)
    assert with_cohort[:4] == [False] * 4
    assert len(with_cohort) >= 6
    assert all(with_cohort[4:])

    found = current(engine, schema)
    assert found.choice is not None
    assert found.choice.error is not None
    assert found.choice.error_before is not None
    assert found.choice.error < 0.9 * found.choice.error_before
    assert found.written == task
    assert found.task.training == found.choice.training
    assert found.task.training.pretrain_rate > 1e-3
    assert not found.task.training.tune
    assert find_origins(recipe_folder(tmp_path, task.name, found.task.recipe))
    assert not find_origins(recipe_folder(tmp_path, task.name, task.recipe))

    client = MlflowClient(mlflow_url, mlflow_url)
    with engine.connect() as connection:
        cycle = list_cycles(connection, schema.task_id)[0]
    assert cycle.run_id == found.choice.run_id
    assert cycle.run_id is not None
    run = client.get_run(cycle.run_id)
    assert run.data.params["training.pretrain_rate"] == str(found.task.training.pretrain_rate)
    assert run.data.params["choice.trials"] == "4"
    assert run.data.tags["morrow.recipe"] == found.task.recipe
    trials = json.loads(Path(client.download_artifacts(cycle.run_id, TRIALS_FILE, str(tmp_path))).read_text())
    assert [trial["with_cohort"] for trial in trials] == with_cohort
    assert trials[0]["training"] == plain(task.training).model_dump(mode="json")
    assert found.choice.training.model_dump(mode="json") in [trial["training"] for trial in trials]

    add_windows(engine, schema, 10, 11)
    story = Story()
    assert retrain(engine, registry, schema, 11, tmp_path, report=story).state == "released"
    assert story.of("recipe.tried") == []
    assert story.of("matrix.missing") == [{"num_kept": 2, "num_to_fit": 0}]
    assert current(engine, schema) == found


def test_a_quick_choice_tries_the_portfolio_and_its_recipe_is_released(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    task = tuned_task(tune="quick", pretrain_rate=0.02, number_form="piecewise")
    schema = define(engine, task, 10)
    story = Story()
    assert retrain(engine, registry, schema, 10, tmp_path, report=story).state == "released"
    assert tried_with_cohort(story) == [False] * 3
    found = current(engine, schema)
    assert found.choice is not None
    assert (found.written, found.choice.num_trials) == (task, 3)
    assert found.task.training == found.choice.training
    assert found.task.training.num_seeds == task.training.num_seeds
    assert not found.task.training.tune


def test_the_same_task_again_keeps_its_choice_and_another_is_chosen_for_anew(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    task = tuned_task(tune_trials=1)
    schema = define(engine, task, 10)
    retrain(engine, registry, schema, 10, tmp_path)
    with engine.begin() as connection:
        again, written = define_task(connection, task, START)
        assert not written
        assert again.choice is not None
        closer = task.model_copy(update={"guard": task.guard.model_copy(update={"max_error": 9.0})})
        assert define_task(connection, closer, START)[0].revision == 2
        assert find_task(connection, task.name).choice == again.choice
        wider = closer.with_training(closer.training.model_copy(update={"width": 12}))
        assert define_task(connection, wider, START)[0].revision == 3
        assert find_task(connection, task.name).choice is None
        plainly = closer.with_training(plain(closer.training))
        define_task(connection, plainly, START)
        assert find_task(connection, task.name).task == plainly


def test_nothing_is_chosen_before_a_horizon_can_be_judged(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    schema = define(engine, tuned_task(tune_trials=2), 3)
    story = Story()
    assert retrain(engine, registry, schema, 3, tmp_path, report=story).state == "held"
    assert len(story.of("choice.postponed")) == 1
    assert count_choices(engine, schema) == 0
    add_windows(engine, schema, 3, 10)
    story = Story()
    assert retrain(engine, registry, schema, 10, tmp_path, report=story).state == "released"
    assert tried_with_cohort(story).count(False) == 2
    assert count_choices(engine, schema) == 1


class Killed(Story):
    """Ends the process in the middle of a search, as far as the cycle can tell."""

    def __call__(self, event: str, /, **facts: object) -> None:
        super().__call__(event, **facts)
        if event == "recipe.tried" and len(self.of(event)) == 2:
            raise KeyboardInterrupt


def test_a_choice_that_was_cut_off_is_made_by_the_next_attempt(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    schema = define(engine, tuned_task(tune_trials=3), 10)
    with pytest.raises(KeyboardInterrupt):
        run_cycle(
            engine,
            registry,
            claim(engine, schema, cutoff_after(10)),
            settings=settings(tmp_path),
            now=now,
            report=Killed(),
        )
    assert count_choices(engine, schema) == 0
    story = Story()
    assert retrain(engine, registry, schema, 10, tmp_path, report=story).state == "released"
    assert tried_with_cohort(story).count(False) == 3


class Robbed(Story):
    """Loses the lease in the middle of a search."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine

    def __call__(self, event: str, /, **facts: object) -> None:
        super().__call__(event, **facts)
        if event == "recipe.tried":
            with self.engine.begin() as connection:
                connection.execute(update(cycles).values(lease="another"))


def test_whoever_lost_the_lease_chooses_nothing(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    schema = define(engine, tuned_task(tune_trials=1), 10)
    cycle = claim(engine, schema, cutoff_after(10))
    state = run_cycle(engine, registry, cycle, settings=settings(tmp_path), now=now, report=Robbed(engine))
    assert state is None
    assert count_choices(engine, schema) == 0


def test_a_cycle_spends_no_more_than_half_its_limit_on_choosing() -> None:
    task = tuned_task(tune_seconds=3000)
    assert budget_of(task, cycle_limit_seconds=3600) == Budget(4, 1800)
    assert budget_of(task, cycle_limit_seconds=7200) == Budget(4, 3000)
