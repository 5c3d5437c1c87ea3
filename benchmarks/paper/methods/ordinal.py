"""Ordinal (DPerturb): known rows are pushed to look like the next domain, and a classifier is fine-tuned on them.

The paper's definition (its appendix of other methods): a classifier F(x, t) is pre-trained on all known rows. An
ordinal classifier G(x₁, x₂) learns from pairs of rows of any two domains how far they are apart in time. Rows are
perturbed along the gradient of G in its inputs, so that they look like rows of the next domain, and F is fine-tuned on
them. Here G predicts how many windows x₂ is later than x₁,

    L_G = mean (G(x₁, x₂) − (t₂ − t₁))²     x' ← x' + _STEP·g / ‖g‖   with g = ∇_{x'} G(x, x'), until G(x, x') ≥ 1

from x' = x on, for the rows of the newest domain and in at most `_MOST_STEPS` steps. The results count as rows one
window later with the same targets, which F gets by its time. So that a push keeps the class, the two rows of a pair are
of one class and G gets it; otherwise a row that looks later is often one of another class. F is the set's own timed
network. G reads numbers only, and categories and the calendar stay as they are.

Legend: E members   n rows   p numbers of a row   B rows of a minibatch   t in windows
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.paper.methods.draws import minibatches, seeds_for, steps_of
from benchmarks.paper.methods.rows import moved_on, newest
from benchmarks.paper.splits import Split
from contracts.clock import Clock
from contracts.errors import CycleError
from contracts.task import Training
from trainer.data.encoder import Encoded
from trainer.methods.plans import Phase, Plan
from trainer.network.network import CohortNetwork, Network, architecture
from trainer.network.training_loop import Member, draw_network, outputs, train

# In the unit of standardised numbers, over all of a row.
_STEP, _MOST_STEPS = 0.05, 6
_ORDINAL, _FIRST, _SECOND = range(3)


def ordinal_method(split: Split, training: Training, seeds: Sequence[int]) -> NDArray[np.float32]:
    """Train F and G on the known rows, push the newest ones on, and fine-tune F on the results.

    Raises CycleError if rows have no numbers, or if they are of one domain.
    """
    num_numbers = split.known.dense.shape[1] - 2 * len(training.calendar)
    if num_numbers == 0:
        raise CycleError("An ordinal classifier perturbs numbers: categories and texts cannot be perturbed.")
    members = split.members(seeds)
    classifier = draw_network(members, training, True, torch.float32, split.build)
    pretrain = Phase("pretrain", "all", "all", training.pretrain_epochs, training.pretrain_rate, "erm")
    finetune = replace(pretrain, name="finetune", epochs=training.finetune_epochs, rate=training.finetune_rate)
    _carry_out(pretrain, classifier, members, training, split.clock)
    ordinal = fit_ordinal(Rows.of(split.known, split.clock, num_numbers), training, seeds)
    newest_rows = newest(split.known)
    pushed = push(ordinal, Rows.of(newest_rows, split.clock, num_numbers))
    simulated = [
        replace(member, rows=moved_on(newest_rows, numbers, split.clock))
        for member, numbers in zip(members, pushed.numpy(), strict=True)
    ]
    _carry_out(finetune, classifier, simulated, training, split.clock)
    return outputs(classifier, split.unseen)


@dataclass(frozen=True)
class Rows:
    """What G reads: numbers `(n, p)`, classes `(n,)`, all 0 in a regression, and times `(n,)` in windows."""

    numbers: Tensor
    classes: Tensor
    times: Tensor

    @staticmethod
    def of(rows: Encoded, clock: Clock, num_numbers: int) -> "Rows":
        is_classified = np.issubdtype(rows.targets.dtype, np.integer)
        return Rows(
            numbers=torch.from_numpy(rows.dense[:, :num_numbers]),
            classes=torch.from_numpy(rows.targets) if is_classified else torch.zeros(len(rows.u), dtype=torch.int64),
            times=torch.from_numpy((rows.windows - rows.windows[0]) / clock.window).float(),
        )


def fit_ordinal(rows: Rows, training: Training, seeds: Sequence[int]) -> CohortNetwork:
    """G of each member, of the recipe's width and layers, trained as long and fast as F is pre-trained."""
    if rows.times.min() == rows.times.max():
        raise CycleError("An ordinal classifier learns from rows of two domains or more.")
    num_rows, num_numbers = rows.numbers.shape
    recipe = training.model_copy(update={"calendar": ()})
    shape = architecture(recipe, 2 * num_numbers, 1, 1, is_timed=False)
    sizes = [(int(rows.classes.max()) + 2,)] * len(seeds)
    ordinal = CohortNetwork(shape, sizes, seeds_for(seeds, _ORDINAL))
    optimiser = torch.optim.AdamW(
        ordinal.parameters(), lr=training.pretrain_rate, weight_decay=training.weight_decay, fused=True
    )
    size = training.rows_per_minibatch(num_rows)
    num_steps = steps_of(min(num_rows, training.rows_per_epoch), training.pretrain_epochs, size)
    firsts = minibatches(num_rows, num_steps, size, seeds_for(seeds, _FIRST))
    generators = [torch.Generator().manual_seed(seed) for seed in seeds_for(seeds, _SECOND)]
    for first in firsts:
        second = partners(rows.classes, first, generators)
        told = tell(ordinal, rows.numbers[first], rows.numbers[second], rows.classes[first])
        losses = (told - (rows.times[second] - rows.times[first])).square().mean(1)
        optimiser.zero_grad()
        torch.autograd.backward(losses.sum())
        optimiser.step()
    return ordinal


def partners(classes: Tensor, first: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
    """For each row of `first` `(E, B)` any row of its class; each member draws by its own generator."""
    counts = torch.bincount(classes)
    by_class, starts = classes.argsort(stable=True), counts.cumsum(0) - counts
    draws = torch.stack([torch.rand(first.shape[1], generator=generator) for generator in generators])
    own = classes[first]
    return by_class[starts[own] + (draws * counts[own]).long().clamp(max=counts[own] - 1)]


def tell(
    ordinal: Network, first: Float[Tensor, "E n p"], second: Float[Tensor, "E n p"], classes: Int[Tensor, "E n"]
) -> Float[Tensor, "E n"]:
    """G(x₁, x₂): how many windows later than the first each second row looks, both of this class."""
    pairs = torch.cat([first, second], dim=-1)
    told = ordinal(pairs, 1 + classes[..., None], pairs[..., 0])
    return told[..., 0]


def push(ordinal: Network, rows: Rows) -> Float[Tensor, "E n p"]:
    """The rows' numbers, moved until each looks one window later than it was, or until the steps are spent."""
    start, classes = (column.expand(ordinal.num_members, *column.shape) for column in (rows.numbers, rows.classes))
    moved = start.clone()
    for _ in range(_MOST_STEPS):
        moved.requires_grad_()
        told = tell(ordinal, start, moved, classes)
        (slopes,) = torch.autograd.grad(told.sum(), moved)
        steps = _STEP * torch.nn.functional.normalize(slopes, dim=-1)
        moved = torch.where(told[..., None] < 1, moved + steps, moved).detach()
    return moved


def _carry_out(phase: Phase, network: Network, members: Sequence[Member], training: Training, clock: Clock) -> None:
    phases = (phase,) if phase.epochs else ()
    for _epoch in train(network, members, Plan(is_timed=True, phases=phases), training, clock):
        pass
