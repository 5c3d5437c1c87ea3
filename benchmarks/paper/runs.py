"""From a cell's entry to its figure: fit the models that it needs on the paper's split, and score each.

A model of `paper` is one network; one of `released` is what ships, a cohort of the recipe's `num_seeds` networks whose
answers are averaged. Every model has seeds of its own.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.paper.methods import METHODS
from benchmarks.paper.rules import RULES
from benchmarks.paper.sets import SETS, PaperSet
from benchmarks.paper.sets.files import FILES, find_files
from benchmarks.paper.splits import Split, errors
from benchmarks.paper.tables import Entry
from contracts.task import Training
from trainer.methods.plans import PLANS

# A probability that rounds to 0 has this log.
_LEAST_SHARE = 1e-30


@dataclass(frozen=True)
class Score:
    """What each independent model of a cell scored, and the wall clock of them all.

    `losses` are mean log-losses of classes in nats, or the errors again if a label is a value.
    """

    errors: tuple[float, ...]
    losses: tuple[float, ...]
    seconds: float


def missing_file(folder: Path, set_name: str) -> str | None:
    """The first file of a set that is not in the folder."""
    return next((file for file in FILES[set_name] if not (folder / file).is_file()), None)


def loader(folder: Path) -> Callable[[str], PaperSet]:
    """Loads sets from a folder, each once. The loader raises NotFound if a file is missing."""

    @cache
    def load(name: str) -> PaperSet:
        find_files(folder, name)
        return SETS[name](folder)

    return load


def cut(paper_set: PaperSet, origin: int, training: Training) -> tuple[Split, Training]:
    """The split that a recipe reads, and the recipe restricted to the set: its calendar, its newest windows."""
    calendar = tuple(phase for phase in training.calendar if phase in paper_set.calendars)
    training = training.model_copy(update={"calendar": calendar})
    return recent(paper_set.split(origin, training), training.history), training


def recent(split: Split, history: int | None) -> Split:
    """The split with its newest known windows only; all of them if None. Encoded by all known rows."""
    if history is None:
        return split
    known = split.known
    first = int(np.searchsorted(known.windows, np.unique(known.windows)[-history:][0]))
    parts = {name: getattr(known, name)[first:] for name in ("dense", "codes", "u", "targets", "windows")}
    return replace(split, known=replace(known, **parts))


def origins_of(entry: Entry, paper_set: PaperSet) -> range:
    """The origins that a cell's models are fitted at: the paper's own, or every one from there on."""
    first = paper_set.test_origin
    return range(first, paper_set.num_domains if entry.measure == "later_error" else first + 1)


def score(entry: Entry, paper_set: PaperSet, num_models: int) -> Score:
    """Fit and score a cell's models: means over its origins. Raises MorrowError if the method refuses."""
    training = entry.recipe.training
    scores = [score_at(paper_set, at, entry, training, num_models) for at in origins_of(entry, paper_set)]
    return Score(
        tuple(np.mean([found.errors for found in scores], 0).tolist()),
        tuple(np.mean([found.losses for found in scores], 0).tolist()),
        math.fsum(found.seconds for found in scores),
    )


def score_at(paper_set: PaperSet, origin: int, entry: Entry, training: Training, num_models: int) -> Score:
    """The same at one origin, with any recipe."""
    split, training = cut(paper_set, origin, training)
    began = time.perf_counter()
    if entry.config == "rule":
        error = RULES[entry.method](split)
        return Score((error,), (error,), time.perf_counter() - began)
    if entry.config == "released" and entry.method in PLANS:
        models = [_released(split, training, entry.method, model) for model in range(num_models)]
        outputs = np.concatenate(models)
    else:
        outputs = METHODS[entry.method](split, training, range(num_models))
    seconds = time.perf_counter() - began
    return Score(tuple(errors(split, outputs).tolist()), tuple(losses(split, outputs).tolist()), seconds)


def losses(split: Split, outputs: NDArray[np.float32]) -> NDArray[np.float64]:
    """Mean −log softmax(outputs)[answer] of each model `(E,)`, or its mean absolute error if labels are values."""
    if not split.is_classification:
        return errors(split, outputs)
    logits = outputs.astype(np.float64)
    own = np.take_along_axis(logits, split.answers.astype(np.int64)[None, :, None], axis=-1)[..., 0]
    return np.asarray((np.logaddexp.reduce(logits, axis=-1) - own).mean(1))


def _released(split: Split, training: Training, method: str, model: int) -> NDArray[np.float32]:
    """Outputs `(1, n, K)` of one released model: the averaged answers of its cohort."""
    seeds = range(model * training.num_seeds, (model + 1) * training.num_seeds)
    return averaged(split, METHODS[method](split, training, seeds))


def averaged(split: Split, outputs: NDArray[np.float32]) -> NDArray[np.float32]:
    """A cohort's one answer `(1, n, K)`, as the service gives it: mean probabilities (their logs), or mean values."""
    if not split.is_classification:
        return np.asarray(outputs.mean(0, keepdims=True), np.float32)
    logits = outputs.astype(np.float64)
    shares = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)).mean(0, keepdims=True)
    return np.asarray(np.log(shares.clip(_LEAST_SHARE)), np.float32)
