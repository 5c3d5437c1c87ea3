"""What one recipe scores inside known rows: its part of an error matrix, made only to choose by.

A few origins are fitted with one member each, side by side, and scored on later windows by labels that are known at the
end; the best recipes once more with a whole cohort, as they would be released. Whatever can say what each origin knows
and what came after it can be chosen on: a service's reading, a set of the paper. All recipes are scored at the same
origins, on the same windows, from the same seeds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from contracts.clock import Clock
from contracts.task import Training
from trainer.data.encoder import Encoded
from trainer.methods.plans import PLANS
from trainer.network.network import Build, CohortNetwork, Network
from trainer.network.schedule import num_steps
from trainer.network.training_loop import Member, draw_network, outputs, train

# Origins of a choice, and how many of them a trial fits before it is asked whether to go on.
MAX_ORIGINS = 9
FITS_PER_GROUP = 3
SEED = 0
# What a step and a multiply-add cost on one thread, in seconds; only ratios between recipes count.
_SECONDS_PER_STEP, _SECONDS_PER_OPERATION = 1e-3, 2.5e-10
# The same of a row in a round of LightGBM, by the leaves of its tree.
_SECONDS_PER_BOOSTED_ROW = 2e-9

CheckTime = Callable[[], object]
# The error on one window: its mean log-loss at each of `TEMPERATURES` where labels are classes, else one figure.
Errors = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True)
class LaterWindow:
    """A window after an origin: its rows, and the errors on them of a cohort's raw outputs `(E, n, K)`, as one."""

    rows: Encoded
    errors: Callable[[NDArray[np.float32]], Errors]


@dataclass(frozen=True)
class Origin:
    """What one origin knows, encoded, and the windows after it. Sizes as in `trainer.network.training_loop.Member`."""

    known: Encoded
    vocabulary_sizes: tuple[int, ...]
    num_outputs: int
    later: tuple[LaterWindow, ...]


@dataclass(frozen=True)
class TrialSetup:
    """What the trials of a choice have in common: each is of one member, or of as many as the recipe's cohort has."""

    clock: Clock
    device: torch.device
    build: Build[Network] = CohortNetwork
    with_cohort: bool = False

    def seeds(self, training: Training) -> range:
        """The seeds of an origin's members."""
        return range(SEED, SEED + (training.num_seeds if self.with_cohort else 1))


@dataclass(frozen=True)
class PreparedTrial:
    """A recipe that is about to be scored.

    `work` is about how many seconds its fits take one thread, counted and not measured, so that a busy machine changes
    no choice. `groups` fits and scores as it is read: the errors of some origins at a time, of every later window.
    """

    work: float
    groups: Iterator[Sequence[Errors]]


# Makes a recipe ready to be scored. Raises CycleError where it cannot be.
Scorer = Callable[[Training, CheckTime], PreparedTrial]


def mean_error(windows: Sequence[Errors]) -> float:
    """The mean over windows, at the temperature that does best on all of them: a version is released with one too."""
    return float(np.mean(windows, axis=0).min())


def score_recipe(origins: Sequence[Origin], training: Training, shared: TrialSetup, watch: CheckTime) -> PreparedTrial:
    """Fit and score one recipe at these origins, bunch by bunch; `watch` is called after each epoch and may raise.

    Reading the groups raises CycleError where a loss is not finite.
    """
    num_seeds = len(shared.seeds(training))
    ready = [bunch for bunch in spread_over_groups(origins, num_seeds) if bunch]
    groups = (_errors(bunch, training, shared, watch) for bunch in ready)
    return PreparedTrial(num_seeds * sum(_work(origin, training) for origin in origins), groups)


def spread_over_groups(origins: Sequence[T], num_seeds: int = 1) -> list[list[T]]:
    """The origins dealt out to groups of about `FITS_PER_GROUP` fits, each of which spans all times."""
    num_bunches = max(1, len(origins) // max(1, FITS_PER_GROUP // num_seeds))
    return [list(origins[start::num_bunches]) for start in range(num_bunches)]


def pick_evenly(items: Sequence[T], most: int) -> list[T]:
    """At most so many of the items, evenly spread, the last among them."""
    if len(items) <= most:
        return list(items)
    places = np.linspace(0, len(items) - 1, most).round().astype(int)
    return [items[place] for place in places]


def _errors(origins: Sequence[Origin], training: Training, shared: TrialSetup, watch: CheckTime) -> list[Errors]:
    """The errors on each later window of origins, of which those are fitted side by side that share a program.

    These have as many classes, and minibatches of one size.
    """
    plan, seeds, errors = PLANS[training.method](training), shared.seeds(training), list[Errors]()

    def kind(origin: Origin) -> tuple[int, int]:
        return origin.num_outputs, training.rows_per_minibatch(len(origin.known.u))

    for _, alike in groupby(sorted(origins, key=kind), key=kind):
        cohort = list(alike)
        members = [Member(one.known, one.vocabulary_sizes, one.num_outputs, seed) for one in cohort for seed in seeds]
        network = draw_network(members, training, plan.is_timed, torch.float32, shared.build).to(shared.device)
        for _epoch in train(network, members, plan, training, shared.clock):
            watch()
        for number, origin in enumerate(cohort):
            own = range(number * len(seeds), (number + 1) * len(seeds))
            errors += [later.errors(outputs(network, later.rows, own)) for later in origin.later]
    return errors


def _work(origin: Origin, training: Training) -> float:
    """Seconds of one thread that the fit of an origin takes, by its steps, passes and multiply-adds."""
    num_inputs = origin.known.dense.shape[1] + training.embedding * origin.known.codes.shape[1] + training.time_width
    weights = num_inputs * training.width + (training.num_layers - 1) * training.width**2
    num_products = training.rows_per_minibatch(len(origin.known.u)) * weights
    per_pass: float = _SECONDS_PER_STEP + _SECONDS_PER_OPERATION * 3 * num_products
    num_windows = len(np.unique(origin.known.windows))
    phases = PLANS[training.method](training).phases_of(num_windows)
    # A bent step passes once plainly, twice for values and rates, and searches δ with as many again an ascent step.
    passes = {True: 1.0, False: 3.0 + 2.0 * training.delta_steps * (training.delta_mode != "random")}
    return sum(
        num_steps(origin.known, phase, training) * passes[phase.objective == "erm"] * per_pass for phase in phases
    )


def booster_work(num_rows: int, training: Training) -> float:
    """The same of LightGBM on so many rows: a lower rate takes more rounds."""
    boosting = training.boosting
    return _SECONDS_PER_BOOSTED_ROW * num_rows * boosting.num_leaves / boosting.learning_rate
