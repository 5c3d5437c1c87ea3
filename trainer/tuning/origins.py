"""A task's origins for trials of recipes: which origins of a reading to try recipes at, and the rows of each.

No trial sees more than the reading's cutoff allows: origins lie before it, and a window after an origin counts only if
all of its labels are due.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from contracts.clock import format_moment
from contracts.errors import CycleError
from contracts.task import Task, Training
from store.events.reading.columns import EventColumns
from trainer.data.encoder import Encoder, class_positions, encode, fit_encoder, prepare
from trainer.data.labels import clip_labels
from trainer.data.snapshot import Reading
from trainer.data.windows import complete_until, in_window
from trainer.evaluation.calibration import tempered_losses
from trainer.evaluation.release_gates import reason_to_skip
from trainer.evaluation.scoring import row_errors
from trainer.methods.gbdt import answer_gbdt, fit_gbdt
from trainer.settings import ENCODED_MIB
from trainer.tuning.trials import (
    MAX_ORIGINS,
    SEED,
    CheckTime,
    Errors,
    LaterWindow,
    Origin,
    PreparedTrial,
    Scorer,
    TrialSetup,
    booster_work,
    pick_evenly,
    score_recipe,
    spread_over_groups,
)

# Share of the origins, the oldest ones, to leave out if enough remain: their fits know too little to compare recipes.
OLDEST_SHARE = 1 / 3


def known_origins(reading: Reading) -> list[int]:
    """Origins (microseconds) at which recipes can be compared as of the reading's cutoff, oldest first.

    Each can be fitted, and the window that begins at it is complete: all of its labels are due.
    """
    task = reading.schema.task
    starts = np.unique(task.clock.window_starts(reading.current.at))
    complete = [int(start) for start in starts if start < complete_until(task, reading.cutoff)]
    usable = [start for start in complete if reason_to_skip(task, reading.fit_rows(start)) is None]
    num_left_out = min(int(len(usable) * OLDEST_SHARE), max(0, len(usable) - task.guard.min_pairs))
    return pick_evenly(usable[num_left_out:], MAX_ORIGINS)


def network_scorer(
    reading: Reading, starts: Sequence[int], device: torch.device, *, with_cohort: bool = False
) -> Scorer:
    """A scorer of network recipes at these origins of a reading, by one member each or by a cohort."""
    setup = TrialSetup(reading.schema.task.clock, device, with_cohort=with_cohort)

    def score(training: Training, check_time: CheckTime) -> PreparedTrial:
        return score_recipe(encode_origins(reading, starts, training), training, setup, check_time)

    return score


def boosting_scorer(reading: Reading, starts: Sequence[int], threads: int) -> Scorer:
    """A scorer of LightGBM's settings at the same origins, on the same windows; `threads` per fit."""

    def score(training: Training, check_time: CheckTime) -> PreparedTrial:
        recipe = reading.with_training(training)
        work = sum(booster_work(len(_fit_rows(recipe, start)), training) for start in starts)
        return PreparedTrial(
            work, (_boosted_errors(recipe, group, threads, check_time) for group in spread_over_groups(starts))
        )

    return score


def encode_origins(reading: Reading, starts: Sequence[int], training: Training) -> list[Origin]:
    """These origins as a recipe sees them: with its history and calendar, and an encoder per origin.

    Raises CycleError if the recipe's history leaves an origin too few rows, or if `trainer.data.encoder.fit_encoder`
    does.
    """
    recipe = reading.with_training(training)
    task = recipe.schema.task
    rows_of = [_fit_rows(recipe, start) for start in starts]
    encoders = [fit_encoder(task, rows, start) for rows, start in zip(rows_of, starts, strict=True)]
    prepared = prepare([*zip(encoders, rows_of, strict=True)], ENCODED_MIB)
    return [
        Origin(
            known,
            encoder.vocabulary_sizes,
            encoder.num_outputs,
            _encode_later(recipe, start, encoder, rows),
            encoder.unread,
        )
        for known, encoder, rows, start in zip(prepared, encoders, rows_of, starts, strict=True)
    ]


def _encode_later(reading: Reading, start: int, encoder: Encoder, known: EventColumns) -> tuple[LaterWindow, ...]:
    task = reading.schema.task
    return tuple(
        LaterWindow(encode(encoder, rows), _errors_on(task, encoder, rows)) for rows in _later(reading, start, known)
    )


def _boosted_errors(reading: Reading, starts: Sequence[int], threads: int, check_time: CheckTime) -> list[Errors]:
    task, errors = reading.schema.task, list[Errors]()
    for start in starts:
        check_time()
        known = _fit_rows(reading, start)
        fit = fit_gbdt(task, known, start, seed=SEED, threads=threads)
        for rows in _later(reading, start, known):
            errors.append(_errors(task, fit.encoder, answer_gbdt(fit, rows, threads)[0], rows))
    return errors


def _fit_rows(reading: Reading, start: int) -> EventColumns:
    known = reading.fit_rows(start)
    if (reason := reason_to_skip(reading.schema.task, known)) is not None:
        raise CycleError(f"Nothing can be fitted as of {format_moment(start)}: {reason}.")
    return known


def _later(reading: Reading, start: int, known: EventColumns) -> Iterator[EventColumns]:
    """The rows of each complete window after an origin, up to the last age; windows without rows are skipped."""
    task, labelled = reading.schema.task, reading.current
    for age in range(task.guard.max_age):
        window = start + age * task.clock.window
        rows = clip_labels(task, in_window(labelled, window, task.clock), known)
        if len(rows) and window < complete_until(task, reading.cutoff):
            yield rows


def _errors_on(task: Task, encoder: Encoder, rows: EventColumns) -> Callable[[NDArray[np.float32]], Errors]:
    """A function from a cohort's raw outputs on these rows to errors."""

    def errors(raw: NDArray[np.float32]) -> Errors:
        if task.is_classification:
            answer = softmax(raw, axis=-1).mean(0)
        else:
            answer = encoder.label_unit.means(raw[..., 0].mean(0))
        return _errors(task, encoder, answer.astype(np.float32), rows)

    return errors


def _errors(task: Task, encoder: Encoder, answer: NDArray[np.float32], rows: EventColumns) -> Errors:
    """The errors that the task is judged by, of probabilities `(n, C)` or means `(n,)`.

    Raises CycleError if an answer is not finite.
    """
    untempered = row_errors(task, encoder.classes, [answer], rows)
    if not task.is_classification:
        return np.array([untempered.mean()])
    return np.array(tempered_losses(answer, class_positions(encoder.classes, rows), 1.0))
