"""Score one recipe inside known rows: a small error matrix, made only to compare recipes.

A trial fits a few origins side by side, with one member each, and scores them on later windows by labels that are known
at the end. The best recipes are scored once more with a whole cohort, as they would be released. An `Origin` can come
from any source of encoded rows: a service's reading, or a data set of the paper. All recipes are scored at the same
origins, on the same windows, from the same seeds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, groupby
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from contracts.clock import Clock
from contracts.task import Training
from trainer.data.encoder import Encoded, FitRows
from trainer.data.numbers import num_added
from trainer.methods.plans import PLANS
from trainer.network.network import Build, CohortNetwork, Network
from trainer.network.phase_schedule import num_steps
from trainer.network.training_loop import Member, draw_network, outputs, train

# Most origins of a search, and how many fits a trial makes before it may be pruned.
MAX_ORIGINS = 9
FITS_PER_GROUP = 3
SEED = 0
# Seconds of one thread for a step and for a multiply-add; only ratios between recipes matter.
_SECONDS_PER_STEP, _SECONDS_PER_OPERATION = 1e-3, 2.5e-10
# Seconds of one thread for a row in a round of LightGBM, per leaf of its tree.
_SECONDS_PER_BOOSTED_ROW = 2e-9

# Called after each epoch; raises to end a trial that is out of time.
CheckTime = Callable[[], object]
# The error on one window: the mean log-loss at each of `TEMPERATURES` if labels are classes, else one number.
Errors = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True)
class LaterWindow:
    """A window after an origin: its rows, and a function from a cohort's raw outputs `(E, n, K)` on them to errors."""

    rows: Encoded
    errors: Callable[[NDArray[np.float32]], Errors]


@dataclass(frozen=True)
class Origin:
    """What one origin knows, encoded, and the windows after it. Sizes as in `trainer.network.training_loop.Member`.

    `unread` are the columns that the members of a cohort do not read, in turn.
    """

    known: FitRows
    vocabulary_sizes: tuple[int, ...]
    num_outputs: int
    later: tuple[LaterWindow, ...]
    unread: tuple[tuple[int, ...], ...] = ((),)


@dataclass(frozen=True)
class TrialSetup:
    """The setup that all trials of a search share: one member per fit, or as many as the recipe's cohort has."""

    clock: Clock
    device: torch.device
    build: Build[Network] = CohortNetwork
    with_cohort: bool = False

    def seeds(self, training: Training) -> range:
        """The seeds of an origin's members."""
        return range(SEED, SEED + (training.num_seeds if self.with_cohort else 1))


@dataclass(frozen=True)
class PreparedTrial:
    """A recipe that is ready to be scored.

    `work` estimates the seconds of one thread for its fits. It is computed, not measured, so a busy machine changes no
    choice. `groups` fits and scores while it is iterated: each item holds the errors of a few origins on every later
    window.
    """

    work: float
    groups: Iterator[Sequence[Errors]]


# Makes a recipe ready to be scored. Raises CycleError if that is impossible.
Scorer = Callable[[Training, CheckTime], PreparedTrial]


def mean_error(windows: Sequence[Errors]) -> float:
    """The mean over windows at the one temperature that is best for all of them: a released version has one too."""
    return float(np.mean(windows, axis=0).min())


def score_recipe(
    origins: Sequence[Origin], training: Training, setup: TrialSetup, check_time: CheckTime
) -> PreparedTrial:
    """Fit and score one recipe at these origins, group by group.

    Iterating over the groups raises CycleError if a loss is not finite, and whatever `check_time` raises.
    """
    num_seeds = len(setup.seeds(training))
    ready = [group for group in spread_over_groups(origins, num_seeds) if group]
    groups = (_errors(group, training, setup, check_time) for group in ready)
    return PreparedTrial(num_seeds * sum(_work(origin, training) for origin in origins), groups)


def spread_over_groups(origins: Sequence[T], num_seeds: int = 1) -> list[list[T]]:
    """The origins in groups of about `FITS_PER_GROUP` fits, each of which spans the whole time range."""
    num_groups = max(1, len(origins) // max(1, FITS_PER_GROUP // num_seeds))
    return [list(origins[start::num_groups]) for start in range(num_groups)]


def pick_evenly(items: Sequence[T], most: int) -> list[T]:
    """At most `most` of the items, evenly spaced, the last one included."""
    if len(items) <= most:
        return list(items)
    positions = np.linspace(0, len(items) - 1, most).round().astype(int)
    return [items[position] for position in positions]


def _errors(origins: Sequence[Origin], training: Training, setup: TrialSetup, check_time: CheckTime) -> list[Errors]:
    """The errors on each later window of these origins.

    Origins with as many classes and minibatches of the same size share a program, so they are fitted side by side.
    """
    plan, seeds, errors = PLANS[training.method](training), setup.seeds(training), list[Errors]()

    def kind(origin: Origin) -> tuple[int, int]:
        return origin.num_outputs, training.rows_per_minibatch(len(origin.known))

    for _, alike in groupby(sorted(origins, key=kind), key=kind):
        cohort = list(alike)
        members = [
            Member(one.known, one.vocabulary_sizes, one.num_outputs, seed, unread)
            for one in cohort
            for seed, unread in zip(seeds, cycle(one.unread), strict=False)
        ]
        network = draw_network(members, training, plan.is_timed, torch.float32, setup.build).to(setup.device)
        for _epoch in train(network, members, plan, training, setup.clock):
            check_time()
        for number, origin in enumerate(cohort):
            own = range(number * len(seeds), (number + 1) * len(seeds))
            errors += [later.errors(outputs(network, later.rows, own)) for later in origin.later]
    return errors


def _work(origin: Origin, training: Training) -> float:
    """Estimated seconds of one thread for an origin's fit, by its steps, passes and multiply-adds."""
    num_numbers = origin.known.num_dense + num_added(origin.known.num_positions)
    num_inputs = num_numbers + training.embedding * origin.known.num_codes + training.time_width
    weights = num_inputs * training.width + (training.num_layers - 1) * training.width**2
    num_products = training.rows_per_minibatch(len(origin.known)) * weights
    per_pass: float = _SECONDS_PER_STEP + _SECONDS_PER_OPERATION * 3 * num_products
    num_windows = len(np.unique(origin.known.windows))
    phases = PLANS[training.method](training).phases_of(num_windows)
    # A step of the plain loss takes one pass. Others take two more for values and rates, and two per ascent step of δ.
    passes = {True: 1.0, False: 3.0 + 2.0 * training.delta_steps * (training.delta_mode != "random")}
    return sum(
        num_steps(origin.known, phase, training) * passes[phase.objective == "erm"] * per_pass for phase in phases
    )


def booster_work(num_rows: int, training: Training) -> float:
    """Estimated seconds of one thread for a fit of LightGBM: a lower learning rate takes more rounds."""
    boosting = training.boosting
    return _SECONDS_PER_BOOSTED_ROW * num_rows * boosting.num_leaves / boosting.learning_rate
