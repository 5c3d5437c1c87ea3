"""The hour of a day as a number, as a newcomer declares it: the fit learns it, or the status says what to change."""

import re

import numpy as np
import torch

from contracts.task import Task, Training
from service.advice.task_warnings import warn_of_early_end
from store.events.reading.columns import NEVER, EventColumns
from store.tasks.catalog import Schema
from trainer.data.snapshot import Reading
from trainer.evaluation.origin_fits import Fit, fit_origins
from trainer.export.artefact import torch_answers

DAY, HOUR = 86_400_000_000, 3_600_000_000
NUM_DAYS, ROWS_PER_DAY = 60, 72
CUTOFF = NUM_DAYS * DAY
# Nothing else tells the fit what hour it is.
RECIPE = Training(num_seeds=1, calendar=(), number_form="plain", finetune_windows=1, finetune_epochs=1)
TASK = Task.model_validate(
    {
        "name": "rentals",
        "window": "P7D",
        "target": {"name": "rides", "kind": "regression"},
        "features": [{"name": "hour", "kind": "number"}, {"name": "warm", "kind": "number"}],
        "training": RECIPE.model_dump(),
    }
)


def rides(first_day: int, end_day: int) -> EventColumns:
    """Many rides in the morning and in the evening, few otherwise; a twentieth of the rows is withheld."""
    random = np.random.default_rng(first_day)
    count = (end_day - first_day) * ROWS_PER_DAY
    at = first_day * DAY + np.arange(count) * (DAY // ROWS_PER_DAY)
    hour, warm = (at % DAY // HOUR).astype(float), random.normal(size=count)
    is_busy = ((hour >= 7) & (hour < 10)) | ((hour >= 16) & (hour < 19))
    return EventColumns(
        at=at,
        known_at=at,
        superseded_at=np.full(count, NEVER),
        numbers=np.column_stack([hour, warm]),
        categories=np.zeros((count, 0), np.int32),
        vocabularies=(),
        labels=np.where(is_busy, 100.0, 20.0) + 5 * warm + random.normal(size=count),
        classes=(),
        withheld=random.random(count) < 0.05,
    )


def fitted(**changes: object) -> Fit:
    task = TASK.with_training(RECIPE.model_copy(update=changes))
    reading = Reading(Schema(1, 1, 1, task), CUTOFF, CUTOFF, rides(0, NUM_DAYS))
    (fit,) = fit_origins(reading, [CUTOFF], torch.device("cpu"), 1, lambda _epoch: None, watches=True)
    return fit


def error_of(fit: Fit) -> float:
    """The mean absolute error on the week after the cutoff."""
    later = rides(NUM_DAYS, NUM_DAYS + 7)
    found = torch_answers(fit.encoder, fit.network, fit.members, later)[:, 0]
    return float(np.abs(found - later.labels).mean())


def test_a_fit_that_starves_is_told_a_budget_that_feeds_it() -> None:
    starved = fitted()
    num_rows = int((~rides(0, NUM_DAYS).withheld).sum())
    (warning,) = warn_of_early_end(RECIPE, num_rows, RECIPE.rows_per_minibatch(num_rows), starved.late_gain)
    told = re.search(r"set training\.pretrain_steps = (\d+)$", warning)
    assert told is not None
    fed = fitted(pretrain_steps=int(told[1]))
    assert error_of(fed) < 0.7 * error_of(starved)


def test_by_pieces_the_same_number_is_learned_by_the_default_budget() -> None:
    assert error_of(fitted(number_form="piecewise")) < 0.5 * error_of(fitted())
