"""Chooses a stream's hyper-parameters on its first windows, which no replay reports.

No event after those windows is loaded. The chooser is that of `training.tune`, at the origins of those windows. It
chooses our recipe, starting from the task's own, and with the same budget the settings of LightGBM, the rival that
users would pick.
"""

import argparse
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.datasets import CHOSEN_ON, DATASETS, Dataset, default_folder, load, split_names
from benchmarks.streams import import_dataset, temporary_store
from contracts.task import Training
from trainer.data.snapshot import Reading
from trainer.methods.gbdt import GBDT
from trainer.tuning.origins import boosting_scorer, known_origins, network_scorer
from trainer.tuning.search import Budget, SearchResult, Trial, choose
from trainer.tuning.space import BOOSTING, PROVEN, restrict_space, space_of

OURS = "gi"


def main(arguments: list[str]) -> None:
    """Print a line for each trial, then the choice."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks recipes", description=__doc__)
    parser.add_argument("--data", type=Path, default=default_folder(), help="folder of the data sets")
    parser.add_argument("--sets", default=",".join(DATASETS), help="names of data sets, separated by commas")
    parser.add_argument("--methods", default=f"{OURS},{GBDT}", help=f"{OURS}, {GBDT} or both, separated by a comma")
    parser.add_argument("--trials", type=int, default=24, help="most recipes tried for a stream and method")
    parser.add_argument("--seconds", type=float, default=600, help="most seconds for a stream and method")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    budget = Budget(options.trials, options.seconds)
    for name in split_names(options.sets):
        reading = known_reading(load(name, options.data), CHOSEN_ON[name])
        print(f"{name}: {len(reading.events)} events of the first {CHOSEN_ON[name]} windows")
        for method in options.methods.split(","):
            began = time.monotonic()
            found = choose_for(reading, method, budget, options.seed)
            print(_summary(name, method, found, time.monotonic() - began), flush=True)


def known_reading(dataset: Dataset, num_windows: int) -> Reading:
    """The events of the first windows, read back as of their end from a store that holds no others."""
    clock = dataset.task.clock
    end = clock.window_start(dataset.events[0].at) + num_windows * clock.window
    early = replace(dataset, events=[event for event in dataset.events if event.at < end])
    with temporary_store() as engine:
        return import_dataset(engine, early, datetime.now(UTC))


def choose_for(reading: Reading, method: str, budget: Budget, seed: int) -> SearchResult:
    """Choose our recipe, or LightGBM's settings, for the task of a reading; prints a line for each trial."""
    task, starts = reading.schema.task, known_origins(reading)
    choose_in = partial(
        choose,
        base=task.training,
        budget=budget,
        seed=seed,
        seconds_now=time.monotonic,
        report=lambda trial: print(_line(trial, task.training), flush=True),
    )
    if method == GBDT:
        return choose_in(
            boosting_scorer(reading, starts, torch.get_num_threads()), space=restrict_space(BOOSTING, task)
        )
    score, final = (network_scorer(reading, starts, torch.device("cpu"), with_cohort=each) for each in (False, True))
    return choose_in(score, space=space_of(task), final=final, first=PROVEN)


def _line(trial: Trial, base: Training) -> str:
    error = "      –" if trial.error is None else f"{trial.error:7.4f}"
    how = "cohort" if trial.with_cohort else "member"
    return f"{error}  {how} {trial.outcome:12} {trial.seconds:5.1f} s  {changes(trial.training, base) or 'as it is'}"


def _summary(name: str, method: str, found: SearchResult, seconds: float) -> str:
    told = f"{name}, {method}: {found.num_tried} trials in {seconds:.0f} s"
    return f"{told}; as it is {found.error_before}, chosen {found.error}\n{found.training.model_dump()}\n"


def changes(training: Training, base: Training) -> dict[str, Any]:
    """The settings in which a recipe differs from another."""
    former = base.model_dump()
    return {name: value for name, value in training.model_dump().items() if value != former[name]}
