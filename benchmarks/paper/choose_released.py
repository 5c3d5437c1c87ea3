"""Chooses what the service would train on a set, by the search of `training.tune` inside the training range.

A recipe's figure is the error matrix's, as for a task that tunes itself: log-loss at the temperature that does best, or
the mean absolute error, of the window that follows each origin. The newest of these windows is the last before the
test's. A budget bounds the search, which goes on from what an earlier one chose, and the choice records how much of it
was spent. LightGBM, the rival that users would pick, is chosen with the same budget by the same figure at the same
origins.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from benchmarks.paper.choices import RELEASED, Choice, read_choices, words
from benchmarks.paper.methods import METHODS
from benchmarks.paper.recipes import FORMER, PAPER
from benchmarks.paper.runs import averaged, cut
from benchmarks.paper.sets import PaperSet
from benchmarks.paper.splits import Split, errors
from contracts.task import Training, read_training
from trainer.evaluation.calibration import tempered_losses
from trainer.tuning.origins import OLDEST_SHARE
from trainer.tuning.search import Budget, Trial, choose
from trainer.tuning.space import BOOSTING, NETWORK, PROVEN, Space, calendars, restrict_space, value_of
from trainer.tuning.trials import (
    MAX_ORIGINS,
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

Chosen = Literal["gi", "gbdt"]
SEED = 0


def choose_released(paper_set: PaperSet, method: Chosen, budget: Budget, report: Callable[[str], object]) -> Choice:
    """Choose our recipe or LightGBM's settings for one set within a budget; `report` gets a line a trial."""
    began = time.monotonic()

    def tell(trial: Trial) -> None:
        error = "no error" if trial.error is None else f"{trial.error:.4f}"
        tried = words(difference(trial.training))
        how = "by a cohort, " if trial.with_cohort else ""
        report(f"{paper_set.name}, {method}: {error} ({how}{trial.outcome}, {trial.seconds:.1f} s) {tried}")

    found = choose(
        boosting_scorer(paper_set) if method == "gbdt" else scorer(paper_set),
        read_training({"calendar": paper_set.calendars}),
        restrict_space(BOOSTING, paper_set.task) if method == "gbdt" else space(paper_set),
        budget,
        seed=SEED,
        seconds_now=time.monotonic,
        final=None if method == "gbdt" else scorer(paper_set, with_cohort=True),
        first=[*_former(paper_set, method), *(() if method == "gbdt" else _tried_elsewhere(paper_set))],
        report=tell,
    )
    return Choice(
        changes=dict(difference(found.training)),
        domains=tuple(choosing_origins(paper_set)),
        error=None if found.error is None else round(found.error, 4),
        default_error=None if found.error_before is None else round(found.error_before, 4),
        trials=found.num_tried,
        seconds=round(time.monotonic() - began),
        seed=SEED,
        started_from=_start(paper_set, method),
    )


def choosing_origins(paper_set: PaperSet) -> list[int]:
    """Origins that a recipe is scored at, inside the training range; the last is one domain before the test's."""
    first = max(1, math.ceil(paper_set.test_origin * OLDEST_SHARE))
    return pick_evenly(range(first, paper_set.test_origin), MAX_ORIGINS)


def scorer(paper_set: PaperSet, *, with_cohort: bool = False) -> Scorer:
    """Scores a recipe on a set: fits at each origin, by one member or a cohort, on the domain that follows."""

    def score(training: Training, check_time: CheckTime) -> PreparedTrial:
        splits, allowed = _cuts(paper_set, training)
        setup = TrialSetup(paper_set.clock, torch.device("cpu"), splits[0].build, with_cohort)
        return score_recipe([_origin(split) for split in splits], allowed, setup, check_time)

    return score


def boosting_scorer(paper_set: PaperSet) -> Scorer:
    """Scores LightGBM's settings in the same way."""

    def errors_at(splits: Sequence[Split], training: Training, check_time: CheckTime) -> list[Errors]:
        found = []
        for split in splits:
            check_time()
            found.append(_errors(split, METHODS["gbdt"](split, training, [SEED])))
        return found

    def score(training: Training, check_time: CheckTime) -> PreparedTrial:
        splits, allowed = _cuts(paper_set, training)
        work = sum(booster_work(len(split.known.u), allowed) for split in splits)
        return PreparedTrial(work, (errors_at(group, allowed, check_time) for group in spread_over_groups(splits)))

    return score


def space(paper_set: PaperSet) -> Space:
    """The service's space, with the set's phases and categories, and with values of its own."""
    return restrict_space({**NETWORK, "calendar": calendars(paper_set.calendars), **paper_set.space}, paper_set.task)


def difference(training: Training) -> Mapping[str, Any]:
    """The settings in which a recipe differs from those that `released.toml` leaves out."""
    return _differing(training.model_dump(), FORMER.model_dump())


def _differing(values: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _differing(value, default[name]) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if value != default[name]
    }


def base_name(set_name: str) -> str:
    """The set whose published recipe is tried too."""
    return set_name.replace("_rows", "")


def _cuts(paper_set: PaperSet, training: Training) -> tuple[list[Split], Training]:
    """The split at each origin of the choice, and the recipe as the set allows it."""
    found = [cut(paper_set, origin, training) for origin in choosing_origins(paper_set)]
    return [split for split, _ in found], found[0][1]


def _origin(split: Split) -> Origin:
    later = LaterWindow(split.unseen, lambda outputs: _errors(split, outputs))
    return Origin(split.known, split.vocabulary_sizes, split.num_outputs, (later,))


def _errors(split: Split, outputs: NDArray[np.float32]) -> Errors:
    """The errors of a cohort's outputs `(E, n, K)` on the unseen rows, as one answer."""
    answer = averaged(split, outputs)
    if not split.is_classification:
        return errors(split, answer)
    return np.array(tempered_losses(softmax(answer[0], axis=1), split.answers.astype(np.int64), 1.0))


def _former(paper_set: PaperSet, method: Chosen) -> list[Mapping[str, Any]]:
    """What an earlier choice for this set found, where the search starts."""
    choice = read_choices(RELEASED).get(paper_set.name, {}).get(method)
    if choice is None:
        return []
    training = read_training(choice.changes)
    return [{name: value_of(training, name) for name in (BOOSTING if method == "gbdt" else space(paper_set))}]


def _start(paper_set: PaperSet, method: Chosen) -> str:
    """What a search starts from, in words."""
    choice = read_choices(RELEASED).get(paper_set.name, {}).get(method)
    return "" if choice is None else f"an earlier choice of {choice.trials} in {choice.seconds} s"


def _tried_elsewhere(paper_set: PaperSet) -> list[Mapping[str, Any]]:
    return [*PROVEN, _as_settings(PAPER[base_name(paper_set.name)])]


def _as_settings(training: Training) -> Mapping[str, Any]:
    return {name: value for name, value in training.model_dump().items() if name in NETWORK}
