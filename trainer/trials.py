"""What one recipe scores inside known rows: its part of an error matrix, made only to choose by.

A few origins are fitted with one member each, side by side, and scored on later windows by labels that are known at the
end. Whatever can say what each origin knows and what came after it can be chosen on: a service's reading, a set of the
paper. All recipes are scored at the same origins, on the same windows, from the same seed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from contracts.clock import Clock, format_moment
from contracts.columns import EventColumns
from contracts.errors import CycleError
from contracts.task import Task, Training
from trainer.dataset import Encoded, Encoder, draw_in_labels, encode, fit_encoder
from trainer.fit import Member, draw_network, outputs, train
from trainer.judge import reason_to_skip
from trainer.methods import METHODS
from trainer.network import Build, CohortNetwork, Network
from trainer.reading import Reading
from trainer.score import complete_until, in_window, row_errors
from trainer.steps import num_steps

# Origins of a choice, and how many of them a trial fits before it is asked whether to go on.
MAX_ORIGINS = 9
PER_BUNCH = 3
# Share of the origins, the oldest, that are left out where there are enough: their fits know too little to tell recipes
# apart.
_OLDEST_SHARE = 1 / 3
_SEED = 0
# What a step and a multiply-add cost on one thread, in seconds; only ratios between recipes count.
_SECONDS_PER_STEP, _SECONDS_PER_OPERATION = 1e-3, 2.5e-10

Watch = Callable[[], object]
T = TypeVar("T")


@dataclass(frozen=True)
class Later:
    """A window after an origin: its rows, and the error of raw outputs `(n, K)` on them."""

    rows: Encoded
    error: Callable[[NDArray[np.float32]], float]


@dataclass(frozen=True)
class Origin:
    """What one origin knows, encoded, and the windows after it. Sizes as in `trainer.fit.Member`."""

    known: Encoded
    vocabulary_sizes: tuple[int, ...]
    num_outputs: int
    later: tuple[Later, ...]


@dataclass(frozen=True)
class Shared:
    """What the trials of a choice have in common."""

    clock: Clock
    device: torch.device
    build: Build[Network] = CohortNetwork


@dataclass(frozen=True)
class Scoring:
    """A recipe that is about to be scored.

    `work` is about how many seconds its fits take one thread, counted and not measured, so that a busy machine changes
    no choice. `bunches` fits and scores as it is read: the errors of some origins at a time, one per later window.
    """

    work: float
    bunches: Iterator[Sequence[float]]


def score_recipe(origins: Sequence[Origin], training: Training, shared: Shared, watch: Watch) -> Scoring:
    """Fit and score one recipe at these origins, bunch by bunch; `watch` is called after each epoch and may raise.

    Reading the bunches raises CycleError where a loss is not finite.
    """
    ready = [bunch for bunch in spread_bunches(origins) if bunch]
    bunches = (_errors(bunch, training, shared, watch) for bunch in ready)
    return Scoring(sum(_work(origin, training) for origin in origins), bunches)


def spread_bunches(origins: Sequence[T]) -> list[list[T]]:
    """The origins dealt out to bunches of about `PER_BUNCH`, each of which spans all times."""
    num_bunches = max(1, len(origins) // PER_BUNCH)
    return [list(origins[start::num_bunches]) for start in range(num_bunches)]


def pick_evenly(items: Sequence[T], most: int) -> list[T]:
    """At most so many of the items, evenly spread, the last among them."""
    if len(items) <= most:
        return list(items)
    places = np.linspace(0, len(items) - 1, most).round().astype(int)
    return [items[place] for place in places]


def known_origins(reading: Reading) -> list[int]:
    """Origins that a choice can be made on at the reading's cutoff, oldest first; moments in microseconds.

    Each can be fitted, and the window that begins at it is complete: all of its labels are due.
    """
    task = reading.schema.task
    starts = np.unique(task.clock.window_starts(reading.events.as_of(reading.cutoff).at))
    complete = [int(start) for start in starts if start < complete_until(task, reading.cutoff)]
    usable = [start for start in complete if reason_to_skip(task, reading.fit_rows(start)) is None]
    num_left_out = min(int(len(usable) * _OLDEST_SHARE), max(0, len(usable) - task.guard.min_pairs))
    return pick_evenly(usable[num_left_out:], MAX_ORIGINS)


def cut_reading(reading: Reading, starts: Sequence[int], training: Training) -> list[Origin]:
    """These origins as a recipe sees them: with its history, its calendar and an encoder of their own.

    Raises CycleError where its history leaves an origin too few rows, or one class.
    """
    task = reading.schema.task.with_training(training)
    reading = replace(reading, schema=replace(reading.schema, task=task))
    labelled = reading.events.as_of(reading.cutoff)
    return [_cut(reading, labelled, start) for start in starts]


def _cut(reading: Reading, labelled: EventColumns, start: int) -> Origin:
    task, known = reading.schema.task, reading.fit_rows(start)
    if (reason := reason_to_skip(task, known)) is not None:
        raise CycleError(f"Nothing can be fitted as of {format_moment(start)}: {reason}.")
    encoder = fit_encoder(task, known, start)
    later = []
    for age in range(task.guard.max_age):
        window = start + age * task.clock.window
        rows = draw_in_labels(task, in_window(labelled, window, task.clock), known)
        if len(rows) and window < complete_until(task, reading.cutoff):
            later.append(Later(encode(encoder, rows), _error_on(task, encoder, rows)))
    return Origin(encode(encoder, known), encoder.vocabulary_sizes, encoder.num_outputs, tuple(later))


def _error_on(task: Task, encoder: Encoder, rows: EventColumns) -> Callable[[NDArray[np.float32]], float]:
    """The error that the task is judged by, of raw outputs on these rows."""

    def error(raw: NDArray[np.float32]) -> float:
        answers = [raw[:, 0] * encoder.label_scale + encoder.label_mean]
        if task.is_classification:
            logits = raw.astype(np.float64)
            answers = [np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)).astype(np.float32)]
        return float(row_errors(task, encoder.classes, answers, rows).mean())

    return error


def _errors(origins: Sequence[Origin], training: Training, shared: Shared, watch: Watch) -> list[float]:
    """The error on each later window of origins that are fitted side by side, as far as they know as many classes."""
    plan, errors = METHODS[training.method](training), list[float]()
    for _, alike in groupby(sorted(origins, key=_num_outputs), key=_num_outputs):
        cohort = list(alike)
        members = [Member(one.known, one.vocabulary_sizes, one.num_outputs, _SEED) for one in cohort]
        network = draw_network(members, training, plan.is_timed, torch.float32, shared.build).to(shared.device)
        for _epoch in train(network, members, plan, training, shared.clock):
            watch()
        errors += [
            later.error(outputs(network, later.rows, [number])[0])
            for number, origin in enumerate(cohort)
            for later in origin.later
        ]
    return errors


def _num_outputs(origin: Origin) -> int:
    return origin.num_outputs


def _work(origin: Origin, training: Training) -> float:
    """Seconds of one thread that the fit of an origin takes, by its steps, passes and multiply-adds."""
    num_inputs = origin.known.dense.shape[1] + training.embedding * origin.known.codes.shape[1] + training.time_width
    weights = num_inputs * training.width + (training.num_layers - 1) * training.width**2
    per_pass: float = _SECONDS_PER_STEP + _SECONDS_PER_OPERATION * 3 * training.batch_size * weights
    num_windows = len(np.unique(origin.known.windows))
    phases = METHODS[training.method](training).phases_of(num_windows)
    # A bent step passes once plainly, twice for values and rates, and searches δ with as many again an ascent step.
    passes = {True: 1.0, False: 3.0 + 2.0 * training.delta_steps * (training.delta_mode != "random")}
    return sum(
        num_steps(origin.known, phase, training) * passes[phase.objective == "erm"] * per_pass for phase in phases
    )


def score_reading(
    reading: Reading, starts: Sequence[int], device: torch.device
) -> Callable[[Training, Watch], Scoring]:
    """How recipes are scored at these origins of a reading."""
    shared = Shared(reading.schema.task.clock, device)

    def score(training: Training, watch: Watch) -> Scoring:
        return score_recipe(cut_reading(reading, starts, training), training, shared, watch)

    return score
