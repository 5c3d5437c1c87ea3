"""Chooses the flights task's hyper-parameters on its first 26 weeks, and shows what they do to the rivals.

A candidate recipe is fitted as of several origins within the first 26 weeks and scored on the window that begins at
each: the error matrix's age 0. No row of a later week is ever loaded, so the demo's weeks choose nothing. The search is
random within `SPACE`, from a fixed seed; every trial is printed, and `docs/flights.md` keeps the log of the choice: the
quickest fit among the trials that are within `SLACK` of the best, since two seeds of one recipe differ by as much.
"""

import argparse
import hashlib
import random
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.figures import Figure, smaller_is_better, write_figures
from cli.flights import load_flights, read_task_file, week_start
from contracts.clock import to_micros
from contracts.columns import NEVER, WITHHELD_BYTES, EventColumns
from contracts.task import Task, Training
from trainer.dataset import Encoded, encode, fit_encoder
from trainer.fit import Member, finish, fit, outputs
from trainer.methods import naive

if TYPE_CHECKING:
    import pandas as pd

NUM_KNOWN_WEEKS = 26
SLACK = 0.002  # nats of mean log-loss
TARGET_WEEKS = (9, 11, 13, 15, 17, 19, 21, 23, 25)

SPACE: dict[str, Sequence[Any]] = {
    "calendar": [(), ("day",), ("day", "week")],
    "width": [32, 48, 64],
    "embedding": [4, 8],
    "time_width": [1, 2],
    "num_trelu": [1, 2],
    "pretrain_epochs": [2, 3, 4, 6],
    "pretrain_rate": [2e-3, 4e-3],
    "finetune_windows": [1, 2],
    "finetune_epochs": [1, 2, 4],
    "finetune_rate": [1e-4, 3e-4, 6e-4],
    "weight_decay": [1e-1, 3e-1, 1.0, 3.0],
    "averaged": [0.5, 0.9],
    "gi_weight": [0.5, 1.0, 3.0, 10.0],
    "gi_pretrain": [False, True],
    "delta_max": [1.0, 2.0, 4.0, 8.0],
}


@dataclass(frozen=True)
class Origin:
    """One origin's rows, encoded: what its fit may use, and the window that it is scored on."""

    known: Encoded
    target: Encoded
    vocabulary_sizes: tuple[int, ...]
    num_outputs: int


@dataclass(frozen=True)
class Trial:
    """One recipe, its mean log-loss over the target weeks, and how long its fits took."""

    loss: float
    seconds: float
    recipe: dict[str, Any]


def main(arguments: list[str]) -> None:
    """Print a line a trial, then the best recipe beside the rivals with the same budget."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks flights", description=__doc__)
    parser.add_argument("--trials", type=int, default=24, help="recipes that are drawn and scored")
    parser.add_argument("--seconds", type=float, default=1500, help="no trial begins after this long")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    options = parser.parse_args(arguments)
    task = Task.model_validate(tomllib.loads(read_task_file()))
    columns = known_columns(task)
    yardsticks = {"naive": _naive_loss(task, columns)}
    print(f"{len(columns)} events of weeks 0-25; target weeks {TARGET_WEEKS}; naive {yardsticks['naive']:.4f}")
    trials: list[Trial] = []
    began = time.monotonic()
    for recipe in draw_recipes(options.trials, options.seed):
        if time.monotonic() - began > options.seconds:
            break
        trial_began = time.monotonic()
        losses = score(task, columns, task.training.model_copy(update=dict(recipe)))
        trials.append(Trial(float(np.mean(losses)), time.monotonic() - trial_began, dict(recipe)))
        print(f"{trials[-1].loss:.4f}  {trials[-1].seconds:5.1f} s  {trials[-1].recipe}", flush=True)
    best = choose(trials)
    print(f"\nchosen: {best.loss:.4f}  {best.seconds:5.1f} s  {best.recipe}")
    chosen = task.training.model_copy(update=best.recipe)
    for method in ("gi", "baseline", "last_window"):
        losses = score(task, columns, chosen.model_copy(update={"method": method}))
        yardsticks[method] = float(np.mean(losses))
        print(f"{method:12} {yardsticks[method]:.4f}  by week {np.round(losses, 4).tolist()}", flush=True)
    if options.json:
        ours = yardsticks.pop("gi")
        write_figures(options.json, [_beside(method, ours, loss) for method, loss in yardsticks.items()])


def _beside(method: str, ours: float, loss: float) -> Figure:
    """GI's mean log-loss beside a rival's: we commit to no more than it, and aim at 2 % less."""
    return smaller_is_better(
        f"flights, choosing weeks, GI beside {method}", ours, loss, commit=loss, goal=0.98 * loss, unit="nats"
    )


def choose(trials: Sequence[Trial]) -> Trial:
    """The quickest of those within `SLACK` of the best."""
    limit = min(trial.loss for trial in trials) + SLACK
    return min((trial for trial in trials if trial.loss <= limit), key=lambda trial: trial.seconds)


def draw_recipes(num: int, seed: int) -> Iterator[Mapping[str, Any]]:
    """Independent draws from `SPACE`."""
    draw = random.Random(seed)  # noqa: S311 a search needs no secrets
    for _ in range(num):
        yield {name: draw.choice(values) for name, values in SPACE.items()}


def known_columns(task: Task) -> EventColumns:
    """The events of weeks 0 to 25 as the store would return them; later rows are dropped first."""
    frame = load_flights()
    return to_columns(task, frame[frame["week"] < NUM_KNOWN_WEEKS])


def to_columns(task: Task, frame: "pd.DataFrame") -> EventColumns:
    """Rows of `load_flights` as arrays, without a database."""
    at = frame["at"].astype("datetime64[us, UTC]").to_numpy("datetime64[us]").astype(np.int64)
    categories = [frame[feature.name].to_numpy(str) for feature in task.categories]
    coded = [np.unique(values, return_inverse=True) for values in categories]
    classes, labels = np.unique(frame["label"].to_numpy(str), return_inverse=True)
    hashes = [hashlib.sha256(event_id.encode()).digest()[0] for event_id in frame["event_id"]]
    return EventColumns(
        at=at,
        known_at=at + int(task.label_delay.total_seconds() * 1e6),
        superseded_at=np.full(len(at), NEVER),
        numbers=frame[[feature.name for feature in task.numbers]].to_numpy(np.float64),
        categories=np.stack([codes for _, codes in coded], axis=1).astype(np.int32),
        vocabularies=tuple(tuple(values.tolist()) for values, _ in coded),
        labels=labels.astype(np.int32),
        classes=tuple(classes.tolist()),
        withheld=np.array(hashes) < WITHHELD_BYTES,
    )


def score(task: Task, columns: EventColumns, training: Training) -> list[float]:
    """Mean log-loss of a recipe on each target week, one member per origin, all in one cohort."""
    recipe = task.model_copy(update={"training": training})
    origins = [_origin(recipe, columns, week) for week in TARGET_WEEKS]
    members = [Member(one.known, one.vocabulary_sizes, one.num_outputs, seed=0) for one in origins]
    network = finish(fit(members, training, task.clock, torch.device("cpu")))
    return [
        _log_loss(outputs(network, one.target, [number])[0], one.target.targets) for number, one in enumerate(origins)
    ]


def _origin(task: Task, columns: EventColumns, week: int) -> Origin:
    start, end = to_micros(week_start(week)), to_micros(week_start(week + 1))
    known = columns.as_of(start)
    known = known.select(~known.withheld)
    encoder = fit_encoder(task, known, start)
    target = encode(encoder, columns.in_window(start, end))
    return Origin(encode(encoder, known), target, encoder.vocabulary_sizes, encoder.num_outputs)


def _naive_loss(task: Task, columns: EventColumns) -> float:
    losses = []
    for week in TARGET_WEEKS:
        origin = _origin(task, columns, week)
        logits = naive(origin.known, origin.num_outputs, True)
        losses.append(_log_loss(np.tile(logits, (len(origin.target.u), 1)), origin.target.targets))
    return float(np.mean(losses))


def _log_loss(logits: np.ndarray[Any, Any], targets: np.ndarray[Any, Any]) -> float:
    loss = torch.nn.functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(targets).long())
    return loss.item()
