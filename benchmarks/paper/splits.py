"""The input of every method of the paper: the rows known at an origin, and the inputs of the domain that follows.

A domain is a window. Origins count domains: a split at origin k knows domains 0 to k − 1 and is scored on domain k. So
the test of the paper is the split at the last origin, and choices inside the training range are made at earlier ones. A
split's encoding comes from its known rows alone, and no method sees the targets of the scored rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from contracts.clock import Clock
from contracts.task import Training
from trainer.data.encoder import Encoded
from trainer.data.labels import PLAIN, LabelUnit
from trainer.network.network import Build, CohortNetwork, Network
from trainer.network.training_loop import Member

Metric = Literal["error_percent", "mae"]


@dataclass(frozen=True)
class Split:
    """One origin of a set.

    `known` and `unseen` are encoded alike. The targets of `unseen` are withheld (−1, or NaN); the true ones are in
    `answers` `(n,)`, in class positions or in the target's own unit, for the scorer alone. `vocabulary_sizes` and
    `num_outputs` are those of `trainer.network.training_loop.Member`. `label_unit` is how a regression's targets are
    made of labels. `build` makes the network that the set needs: for rows of features, images, or texts.
    """

    origin: int
    clock: Clock
    known: Encoded
    unseen: Encoded
    answers: NDArray[np.float64]
    vocabulary_sizes: tuple[int, ...]
    num_outputs: int
    metric: Metric
    label_unit: LabelUnit = PLAIN
    build: Build[Network] = CohortNetwork

    @property
    def is_classification(self) -> bool:
        return self.metric == "error_percent"

    def members(self, seeds: Sequence[int]) -> list[Member]:
        """A cohort with these seeds."""
        return [Member(self.known, self.vocabulary_sizes, self.num_outputs, seed) for seed in seeds]


def withheld_targets(rows: Encoded) -> Encoded:
    """The same rows with blank targets."""
    blank = -1 if np.issubdtype(rows.targets.dtype, np.integer) else np.nan
    return replace(rows, targets=np.full_like(rows.targets, blank))


# Outputs `(E, n, K)` on the unseen rows, one member per seed: logits, or (standardised mean, log-scale).
Method = Callable[[Split, Training, Sequence[int]], NDArray[np.float32]]


def errors(split: Split, outputs: NDArray[np.float32]) -> NDArray[np.float64]:
    """Percent of wrong classes, or mean absolute error in the target's unit, of each member `(E,)`."""
    if split.is_classification:
        return np.asarray(100 * (outputs.argmax(-1) != split.answers).mean(1))
    return np.asarray(np.abs(split.label_unit.means(outputs[..., 0]) - split.answers).mean(1))
