"""A task that asks for it gets its recipe chosen once, inside the rows that its first cycle may read."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from sqlalchemy import Engine, func, select, update

from benchmarks.recipes import changes, choose_for
from contracts.catalog import Schema, define_task, find_task
from contracts.columns import EventColumns
from contracts.cycles import list_cycles
from contracts.database import choices, cycles
from contracts.task import Task, Training
from tests.integration.drifting import (
    START,
    Story,
    add_windows,
    claim,
    cutoff_after,
    define,
    drifting_task,
    now,
    settings,
)
from trainer.choosing import TRIALS_FILE, budget_of, plain
from trainer.cycle import run_cycle
from trainer.kept import find_origins, recipe_folder
from trainer.reading import Reading, read
from trainer.registry import Registry
from trainer.space import merge
from trainer.trial_origins import cut_reading, known_origins, score_boosting, score_reading
from trainer.tune import Budget, choose

CPU = torch.device("cpu")


def tuned_task(**changes: Any) -> Task:
    """The drifting task with a recipe that learns next to nothing, to be tuned in a few trials."""
    task = drifting_task()
    training = task.training.model_dump() | {"pretrain_rate": 1e-5, "finetune_rate": 1e-6, "tune": True}
    return task.with_training(Training.model_validate(training | {"tune_trials": 4, "tune_seconds": 120} | changes))


def retrain(
    engine: Engine, registry: Registry, schema: Schema, num_windows: int, home: Path
) -> tuple[str | None, Story]:
    story = Story()
    cycle = claim(engine, schema, cutoff_after(num_windows))
    return run_cycle(engine, registry, cycle, settings=settings(home), now=now, report=story), story


def current(engine: Engine, schema: Schema) -> Schema:
    with engine.connect() as connection:
        return find_task(connection, schema.task.name)


def count_choices(engine: Engine, schema: Schema) -> int:
    with engine.connect() as connection:
        query = select(func.count()).select_from(choices).where(choices.c.task_id == schema.task_id)
        return connection.execute(query).scalar_one()


def test_the_first_cycle_chooses_and_the_next_does_not(
    engine: Engine, registry: Registry, mlflow_url: str, tmp_path: Path
) -> None:
    task = tuned_task()
    schema = define(engine, task, 10)
    state, story = retrain(engine, registry, schema, 10, tmp_path)
    assert state == "released"
    assert len(story.of("recipe.tried")) == 4

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
    assert len(trials) == 4
    assert trials[0]["training"] == plain(task.training).model_dump(mode="json")
    assert found.choice.training.model_dump(mode="json") in [trial["training"] for trial in trials]

    add_windows(engine, schema, 10, 11)
    state, story = retrain(engine, registry, schema, 11, tmp_path)
    assert state == "released"
    assert story.of("recipe.tried") == []
    assert story.of("matrix.missing") == [{"num_kept": 2, "num_to_fit": 0}]
    assert current(engine, schema) == found


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
    state, story = retrain(engine, registry, schema, 3, tmp_path)
    assert state == "held"
    assert len(story.of("choice.postponed")) == 1
    assert count_choices(engine, schema) == 0
    add_windows(engine, schema, 3, 10)
    state, story = retrain(engine, registry, schema, 10, tmp_path)
    assert state == "released"
    assert len(story.of("recipe.tried")) == 2
    assert count_choices(engine, schema) == 1


class Killed(Story):
    """Ends the process, as far as the cycle can tell, in the middle of a search."""

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
    state, story = retrain(engine, registry, schema, 10, tmp_path)
    assert state == "released"
    assert len(story.of("recipe.tried")) == 3


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


def reading_of(engine: Engine, num_windows: int, **how: Any) -> Reading:
    """The drifting task with its recipe, read at the end of some of its windows."""
    schema = define(engine, drifting_task(), 10, **how)
    return read(engine, schema, cutoff_after(num_windows), now())


def poisoned(reading: Reading, cutoff: int) -> Reading:
    """The reading with every row that happened at or after the cutoff, or became known later, turned to nonsense."""
    events: EventColumns = reading.events
    is_late = (events.at >= cutoff) | (events.known_at > cutoff)
    assert is_late.any()
    numbers = np.where(is_late[:, None], 1e6 + events.at[:, None] % 7, events.numbers)
    labels = np.where(is_late, 1 - events.labels, events.labels).astype(np.int32)
    return replace(reading, cutoff=cutoff, events=replace(events, numbers=numbers, labels=labels))


def test_no_row_after_the_known_end_takes_part_in_a_choice(engine: Engine) -> None:
    whole = reading_of(engine, 10)
    cutoff = cutoff_after(8)
    clean, bad = replace(whole, cutoff=cutoff), poisoned(whole, cutoff)
    starts = known_origins(bad)
    assert starts == known_origins(clean)
    assert max(starts) < cutoff
    errors = [
        [list(bunch) for bunch in score_reading(one, starts, CPU)(whole.schema.task.training, lambda: None).bunches]
        for one in (clean, bad)
    ]
    assert errors[0] == errors[1]
    late = [
        [list(bunch) for bunch in score_reading(one, [cutoff], CPU)(whole.schema.task.training, lambda: None).bunches]
        for one in (whole, replace(bad, cutoff=whole.cutoff))
    ]
    assert late[0] != late[1]


def test_origins_are_scored_on_complete_later_windows_only(engine: Engine) -> None:
    reading = reading_of(engine, 10)
    starts = known_origins(reading)
    origins = cut_reading(reading, starts, reading.schema.task.training)
    assert [(start - cutoff_after(0)) // reading.schema.task.clock.window for start in starts] == [4, 5, 6, 7, 8, 9]
    assert [len(origin.later) for origin in origins] == [2, 2, 2, 2, 2, 1]
    for start, origin in zip(starts, origins, strict=True):
        assert (origin.known.windows < start).all()
        assert all((later.rows.windows >= start).all() for later in origin.later)
    delayed = replace(
        reading.schema, task=reading.schema.task.model_copy(update={"label_delay": reading.schema.task.window})
    )
    assert known_origins(replace(reading, schema=delayed))[-1] == starts[-2]


def test_the_better_of_two_recipes_wins_on_a_drifting_stream(engine: Engine) -> None:
    reading = reading_of(engine, 10)
    training = reading.schema.task.training
    found = choose(
        score_reading(reading, known_origins(reading), CPU),
        training.model_copy(update={"pretrain_rate": 1e-5, "finetune_rate": 1e-6}),
        {"pretrain_rate": (1e-5, 2e-2)},
        Budget(trials=2, seconds=120),
        seed=0,
        seconds_now=lambda: 0.0,
    )
    assert found.training.pretrain_rate == 2e-2
    bad, good = (trial.error for trial in found.trials)
    assert bad is not None
    assert good is not None
    assert good < 0.9 * bad


def test_a_regression_is_chosen_for_by_its_absolute_error(engine: Engine) -> None:
    task = drifting_task(target={"name": "y", "kind": "regression"})
    schema = define(engine, task, 8, as_numbers=True)
    reading = read(engine, schema, cutoff_after(8), now())
    (*_, newest) = cut_reading(reading, known_origins(reading), task.training)
    rows = newest.later[0].rows
    nothing_learned = np.zeros((len(rows.u), 2), np.float32)
    labels = reading.events.labels[reading.events.at >= cutoff_after(7)]
    mean = reading.events.labels[(reading.events.at < cutoff_after(7)) & ~reading.events.withheld].mean()
    assert newest.later[0].error(nothing_learned) == pytest.approx(np.abs(labels - mean).mean(), rel=0.02)


def test_the_settings_of_lightgbm_are_chosen_at_the_same_origins(engine: Engine) -> None:
    reading = reading_of(engine, 10)
    starts, training = known_origins(reading), reading.schema.task.training
    found = choose(
        score_boosting(reading, starts, 1),
        merge(training, {"boosting.min_rows": 100_000}),  # no leaf is large enough: it learns nothing
        {"boosting.min_rows": (20, 100_000), "boosting.reads_time": (True,)},
        Budget(trials=2, seconds=120),
        seed=0,
        seconds_now=lambda: 0.0,
    )
    assert found.training.boosting.min_rows == 20
    bad, good = (trial.error for trial in found.trials)
    assert bad == pytest.approx(np.log(2), rel=0.1)
    assert good is not None
    assert good < 0.7 * np.log(2)
    blind = replace(reading, cutoff=cutoff_after(8))
    poison = poisoned(reading, cutoff_after(8))
    errors = [
        [list(bunch) for bunch in score_boosting(one, known_origins(one), 1)(training, lambda: None).bunches]
        for one in (blind, poison)
    ]
    assert errors[0] == errors[1]


@pytest.mark.parametrize("method", ["gi", "gbdt"])
def test_a_stream_is_chosen_for_on_its_first_windows(
    engine: Engine, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reading = reading_of(engine, 8)
    found = choose_for(reading, method, Budget(trials=2, seconds=120), seed=0)
    base, other = found.trials
    assert base.training == reading.schema.task.training
    assert all(name in ("boosting", "history") for name in changes(other.training, base.training)) == (method == "gbdt")
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("as it is")
    assert str(changes(other.training, base.training)) in second
