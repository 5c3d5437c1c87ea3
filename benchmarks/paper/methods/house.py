"""The methods that a service can run too, on a split of the paper: every plan of a network, and the three without one.

They fit what the service fits: the same plans, engine, booster and linear models, on the same encoded rows. LightGBM
reads a split's dense columns, which are standardised. Its trees would be the same with raw ones, except for missing
numbers, which have their own columns here.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.paper.splits import Method, Split
from contracts.task import Method as NetworkMethod
from contracts.task import Training
from trainer.data.encoder import Encoded
from trainer.methods.extrapolated_linear import extrapolate, fit_trend
from trainer.methods.gbdt import Table, fit_booster, predict, recency
from trainer.methods.naive_answer import naive
from trainer.methods.plans import PLANS
from trainer.network.training_loop import draw_network, outputs, train

# A probability that LightGBM rounds to 0 has this log.
_LEAST_PROBABILITY = 1e-12


def network_method(name: NetworkMethod) -> Method:
    """Draw the split's network for every seed and carry out the plan of this method on it."""

    def fitted(split: Split, training: Training, seeds: Sequence[int]) -> NDArray[np.float32]:
        plan, members = PLANS[name](training), split.members(seeds)
        network = draw_network(members, training, plan.is_timed, torch.float32, split.build)
        for _epoch in train(network, members, plan, training, split.clock):
            pass
        return outputs(network, split.unseen)

    return fitted


def naive_method(split: Split, _training: Training, seeds: Sequence[int]) -> NDArray[np.float32]:
    """What the newest known window gives on average; the same for every row and seed."""
    found = naive(split.known, split.num_outputs, split.is_classification)
    if not split.is_classification:
        found = np.array([found[0], np.log(found[1])], np.float32)
    return np.tile(found, (len(seeds), len(split.unseen.u), 1))


def gbdt_method(split: Split, training: Training, seeds: Sequence[int]) -> NDArray[np.float32]:
    """LightGBM on codes, dense and model time, newer rows weighing more; one booster a seed."""
    known, num_classes = split.known, split.num_outputs * split.is_classification
    num_calendar = 2 * len(training.calendar)
    weights = recency(known, split.clock, training.boosting.half_life)
    table = Table(known.codes.shape[1], num_calendar, _values(known, num_calendar), known.targets, weights)
    found = []
    for seed in seeds:
        booster, scale = fit_booster(table, num_classes, training, seed=seed, threads=torch.get_num_threads())
        answers = predict(booster, _values(split.unseen, num_calendar), num_classes, torch.get_num_threads())
        found.append(np.log(answers.clip(_LEAST_PROBABILITY)) if num_classes else _with_scale(answers, scale))
    return np.stack(found).astype(np.float32)


def extrapolated_linear_method(split: Split, _training: Training, seeds: Sequence[int]) -> NDArray[np.float32]:
    """Linear models per domain, their coefficients extrapolated; nothing is drawn, so all seeds agree."""
    trend = fit_trend(split.known, split.vocabulary_sizes, split.num_outputs, split.clock)
    found = extrapolate(trend, split.unseen)
    answers = found if split.is_classification else _with_scale(found, trend.scale)
    return np.tile(answers.astype(np.float32), (len(seeds), 1, 1))


def _values(rows: Encoded, num_calendar: int) -> NDArray[np.float64]:
    """The columns of `gbdt.Table`; the calendar's are the last of dense."""
    num_numbers = rows.dense.shape[1] - num_calendar
    numbers, calendar = rows.dense[:, :num_numbers], rows.dense[:, num_numbers:]
    return np.column_stack([rows.codes, numbers, rows.u, calendar]).astype(np.float64)


def _with_scale(means: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Outputs `(n, 2)` of means `(n, 1)`."""
    return np.column_stack([means, np.full(len(means), np.log(scale))])
