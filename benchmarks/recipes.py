"""Chooses a stream's hyper-parameters on its first windows, which no replay tells of.

No event after those windows is loaded. Each trial draws a recipe from `SPACE` with a fixed seed, fits it with one
member at every origin and scores it on all ages of the later windows: the figure is the mean error over ages. Chosen is
the quickest within `SLACK` of the best, since two seeds of one recipe differ by as much.
"""

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks.datasets import CHOSEN_ON, DATASETS, Dataset, default_folder, load, split_names
from benchmarks.streams import import_dataset, temporary_store
from contracts.task import Training
from trainer.candidates import fit_origins
from trainer.dataset import draw_in_labels
from trainer.export import build_graph
from trainer.graph import open_graph
from trainer.judge import reason_to_skip
from trainer.reading import Reading
from trainer.score import answer, in_window, row_errors

SLACK = 0.01  # share of the best error
_FIRST_TARGET = 3  # windows before it are too few to fit on
_MAX_MEMBERS = 32

SPACE: dict[str, Sequence[Any]] = {
    "calendar": [(), ("day",), ("day", "week")],
    "width": [32, 64],
    "num_layers": [1, 2],
    "embedding": [4, 8],
    "time_width": [1, 2, 4],
    "num_trelu": [0, 1],
    "batch_size": [128, 256],
    "pretrain_epochs": [10, 20, 40],
    "pretrain_rate": [3e-3, 1e-2],
    "finetune_windows": [1, 2, 3],
    "finetune_epochs": [1, 3],
    "finetune_rate": [3e-4, 1e-3],
    "weight_decay": [1e-2, 1e-1, 1.0],
    "averaged": [0.5, 0.9],
    "gi_weight": [0.5, 2.0],
    "delta_max": [1.0, 2.0, 4.0],
}


@dataclass(frozen=True)
class Trial:
    """One recipe, its mean error over ages, the error at each, and how long its fits took."""

    error: float
    by_age: tuple[float, ...]
    seconds: float
    recipe: dict[str, Any]


def main(arguments: list[str]) -> None:
    """Print a line a trial, then the chosen recipe."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks recipes", description=__doc__)
    parser.add_argument("--data", type=Path, default=default_folder(), help="folder of the data sets")
    parser.add_argument("--sets", default=",".join(DATASETS), help="names of data sets, separated by commas")
    parser.add_argument("--trials", type=int, default=24, help="recipes that are drawn and scored")
    parser.add_argument("--seconds", type=float, default=600, help="no trial of a stream begins after this long")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for name in split_names(options.sets):
        reading = known_reading(load(name, options.data), CHOSEN_ON[name])
        print(f"{name}: {len(reading.events)} events of the first {CHOSEN_ON[name]} windows")
        draw, began = random.Random(options.seed), time.monotonic()  # noqa: S311 a search needs no secrets
        trials: list[Trial] = []
        while len(trials) < options.trials and time.monotonic() - began < options.seconds:
            trials.append(run_trial(reading, {key: draw.choice(values) for key, values in SPACE.items()}))
            print(_line(trials[-1]), flush=True)
        print(f"chosen:\n{_line(choose(trials))}\n", flush=True)


def _line(trial: Trial) -> str:
    ages = " ".join(f"{error:.4f}" for error in trial.by_age)
    return f"{trial.error:.4f}  [{ages}]  {trial.seconds:4.1f} s  {trial.recipe}"


def known_reading(dataset: Dataset, num_windows: int) -> Reading:
    """The events of the first windows, read back from a store that holds no others."""
    clock = dataset.task.clock
    end = clock.window_start(dataset.events[0].at) + num_windows * clock.window
    early = replace(dataset, events=[event for event in dataset.events if event.at < end])
    with temporary_store() as engine:
        return import_dataset(engine, early, datetime.now(UTC))


def choose(trials: Sequence[Trial]) -> Trial:
    """The quickest of those within `SLACK` of the best."""
    limit = min(trial.error for trial in trials) * (1 + SLACK)
    return min((trial for trial in trials if trial.error <= limit), key=lambda trial: trial.seconds)


def run_trial(reading: Reading, recipe: dict[str, Any]) -> Trial:
    """Fit at the origins of every age and score on each later window."""
    began, known_task = time.monotonic(), reading.schema.task
    training = Training.model_validate(known_task.training.model_dump() | recipe | {"num_seeds": 1})
    task = known_task.model_copy(update={"training": training})
    reading = replace(reading, schema=replace(reading.schema, task=task))
    clock, first = task.clock, task.clock.window_start(int(reading.events.at[0]))
    windows = range(first + _FIRST_TARGET * clock.window, int(reading.events.at[-1]) + 1, clock.window)
    origins = range(first + clock.window, windows[-1] + 1, clock.window)
    known = [origin for origin in origins if reason_to_skip(task, reading.fit_rows(origin)) is None]
    errors: dict[int, list[float]] = {age: [] for age in range(task.guard.max_age)}
    for fit in fit_origins(reading, known, torch.device("cpu"), _MAX_MEMBERS, lambda _epoch: None):
        session = open_graph(build_graph(fit.encoder, fit.network, fit.members).SerializeToString())
        labels = reading.fit_rows(fit.origin)
        for window in windows:
            age = clock.age(fit.origin, window)
            rows = draw_in_labels(task, in_window(reading.events, window, clock), labels)
            if age in errors and len(rows):
                outputs = answer(session, task, rows)
                errors[age].append(float(row_errors(task, fit.encoder.classes, outputs, rows).mean()))
    by_age = tuple(fmean(found) for found in errors.values() if found)
    return Trial(fmean(by_age), by_age, time.monotonic() - began, recipe)
