"""Trials see only what is known at their origins, and are scored on complete later windows, for every kind of task."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sqlalchemy import Engine

from benchmarks.recipes import changes, choose_for
from store.events.reading.columns import EventColumns
from tests.integration.drifting_task import cutoff_after, define, drifting_task, now
from trainer.data.snapshot import Reading, read
from trainer.evaluation.calibration import TEMPERATURES
from trainer.tuning.origins import boosting_scorer, encode_origins, known_origins, network_scorer
from trainer.tuning.search import Budget, choose
from trainer.tuning.space import merge
from trainer.tuning.trials import PreparedTrial, mean_error

CPU = torch.device("cpu")


def reading_of(engine: Engine, num_windows: int, **how: Any) -> Reading:
    """The drifting task with its recipe, read at the end of one of its windows."""
    schema = define(engine, drifting_task(), 10, **how)
    return read(engine, schema, cutoff_after(num_windows), now())


def poisoned(reading: Reading, cutoff: int) -> Reading:
    """The reading with every row that happened at or after the cutoff, or became known later, replaced by nonsense."""
    events: EventColumns = reading.events
    is_late = (events.at >= cutoff) | (events.known_at > cutoff)
    assert is_late.any()
    numbers = np.where(is_late[:, None], 1e6 + events.at[:, None] % 7, events.numbers)
    labels = np.where(is_late, 1 - events.labels, events.labels).astype(np.int32)
    return replace(reading, cutoff=cutoff, events=replace(events, numbers=numbers, labels=labels))


def errors_of(scoring: PreparedTrial) -> list[list[float]]:
    """The errors of every later window, in order."""
    return [found.tolist() for bunch in scoring.groups for found in bunch]


def test_no_row_after_the_known_end_takes_part_in_a_choice(engine: Engine) -> None:
    whole = reading_of(engine, 10)
    cutoff = cutoff_after(8)
    clean, bad = replace(whole, cutoff=cutoff), poisoned(whole, cutoff)
    starts = known_origins(bad)
    assert starts == known_origins(clean)
    assert max(starts) < cutoff
    errors = [
        errors_of(network_scorer(one, starts, CPU)(whole.schema.task.training, lambda: None)) for one in (clean, bad)
    ]
    assert errors[0] == errors[1]
    late = [
        errors_of(network_scorer(one, [cutoff], CPU)(whole.schema.task.training, lambda: None))
        for one in (whole, replace(bad, cutoff=whole.cutoff))
    ]
    assert late[0] != late[1]


def test_origins_are_scored_on_complete_later_windows_only(engine: Engine) -> None:
    reading = reading_of(engine, 10)
    starts = known_origins(reading)
    origins = encode_origins(reading, starts, reading.schema.task.training)
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
        network_scorer(reading, known_origins(reading), CPU),
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
    (*_, newest) = encode_origins(reading, known_origins(reading), task.training)
    rows = newest.later[0].rows
    nothing_learned = np.zeros((1, len(rows.u), 2), np.float32)
    labels = reading.events.labels[reading.events.at >= cutoff_after(7)]
    mean = reading.events.labels[(reading.events.at < cutoff_after(7)) & ~reading.events.withheld].mean()
    assert newest.later[0].errors(nothing_learned) == pytest.approx(np.abs(labels - mean).mean(), rel=0.02)


def test_a_recipe_that_is_too_sure_of_itself_is_scored_at_the_temperature_of_its_release(engine: Engine) -> None:
    reading = reading_of(engine, 10)
    (*_, newest) = encode_origins(reading, known_origins(reading), reading.schema.task.training)
    (later,) = newest.later
    noise = np.random.default_rng(0).normal(size=(len(later.rows.u), 2))
    logits = (np.eye(2)[later.rows.targets] + noise).astype(np.float32)
    mild, sure = later.errors(logits[None]), later.errors(2 * logits[None])
    assert min(sure) < 0.9 * sure[TEMPERATURES.index(1)]
    assert mean_error([sure]) == pytest.approx(mean_error([mild]), rel=1e-2)
    # One temperature for all windows: what one gains by another than theirs is not counted.
    assert mean_error([np.array([1.0, 3.0]), np.array([4.0, 1.0])]) == 2.0


def test_the_settings_of_lightgbm_are_chosen_at_the_same_origins(engine: Engine) -> None:
    reading = reading_of(engine, 10)
    starts, training = known_origins(reading), reading.schema.task.training
    found = choose(
        boosting_scorer(reading, starts, 1),
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
    errors = [errors_of(boosting_scorer(one, known_origins(one), 1)(training, lambda: None)) for one in (blind, poison)]
    assert errors[0] == errors[1]


@pytest.mark.parametrize("method", ["gi", "gbdt"])
def test_a_stream_is_chosen_for_on_its_first_windows(
    engine: Engine, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reading = reading_of(engine, 8)
    found = choose_for(reading, method, Budget(trials=2, seconds=120), seed=0)
    base, other, *finals = found.trials
    assert [trial.with_cohort for trial in finals] == [True, True] * (method == "gi")
    assert base.training == reading.schema.task.training
    assert all(name in ("boosting", "history") for name in changes(other.training, base.training)) == (method == "gbdt")
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.endswith("as it is")
    assert str(changes(other.training, base.training)) in second
