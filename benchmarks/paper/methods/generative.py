"""Generative: a transformer network is taught to move rows to the next domain, and a classifier learns from its images.

The paper's definition (its appendix of other methods): with a transformer G(x, t₁, t₂), a discriminator D(x, t) that
tells rows of a domain from images, and a classifier C(x, t) that was trained on all known rows,

    L_D = −E log D(x, i) − E log(1 − D(G(z, i−1, i), i))                     x of domain i, z of domain i − 1
    L_G = −E log D(G(z, i−1, i), i) + λ₁·E‖I(z) − G(z, i−1, i)‖² + λ₂·E ℓ(y, C(G(z, i−1, i), i))

are minimised in turn, over all successive domains at once. I(z) is where an optimal transport map carries z: for the
plan P of least squared distance between two domains, the mean Σ_j P_zj·x_j / Σ_j P_zj. Finally C is fine-tuned on
the images of the newest domain's rows in the next one, with the rows' own targets.

G adds to x what a network gives, D gives the logit of a row being real; both have the recipe's width and layers, and
see time as C does. Images are rows one window later. Categories and the calendar stay as they are.

Legend: E members   n rows   p numbers of a row   λ₁ = _NEARNESS   λ₂ = _FAITHFULNESS
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.paper.methods.draws import minibatches, seeds_for, steps_of
from benchmarks.paper.methods.rows import moved_on, newest, spread
from benchmarks.paper.splits import Split
from contracts.clock import Clock
from contracts.errors import CycleError
from contracts.task import Training
from trainer.data.encoder import Encoded
from trainer.methods.plans import Phase, Plan
from trainer.network.losses import Batch, RowLoss, cross_entropy, gaussian
from trainer.network.minibatches import DeviceRows
from trainer.network.network import CohortNetwork, Network, architecture
from trainer.network.training_loop import Member, draw_network, outputs, train

_NEARNESS, _FAITHFULNESS = 1.0, 1.0
# Rows of a domain that a transport map carries, evenly spread over it: a map costs the square of their number and more.
_MOST_ROWS = 1000
_TRANSFORMER, _DISCRIMINATOR, _BEFORE, _AFTER = range(4)


@dataclass(frozen=True)
class Pairs:
    """Rows of every domain but the newest, where transport carries their numbers `(n, p)`, and rows of the later ones.

    `step` is a window in model time.
    """

    before: Encoded
    images: NDArray[np.float32]
    after: Encoded
    step: float


class Critics(NamedTuple):
    """What a transformer must convince: the discriminator, the classifier, and the loss of the classifier's rows."""

    discriminator: Network
    classifier: Network
    loss: RowLoss


def generative_method(split: Split, training: Training, seeds: Sequence[int]) -> NDArray[np.float32]:
    """Train C, then G against D, then C on G's images.

    Raises CycleError if rows have no numbers or are of one domain, and where a loss is not finite.
    """
    num_numbers = split.known.dense.shape[1] - 2 * len(training.calendar)
    if num_numbers == 0:
        raise CycleError("A transformer moves numbers: categories and texts cannot be moved.")
    pairs = pair(split.known, num_numbers, split.clock)
    members = split.members(seeds)
    classifier = draw_network(members, training, True, torch.float32, split.build)
    pretrain = Phase("pretrain", "all", "all", training.pretrain_epochs, training.pretrain_rate, "erm")
    finetune = replace(pretrain, name="finetune", epochs=training.finetune_epochs, rate=training.finetune_rate)
    _carry_out(pretrain, classifier, members, training, split.clock)
    transformer = _transformer(split, classifier, pairs, training, seeds)
    rows = newest(split.known)
    moved = outputs_of(transformer, rows, num_numbers, pairs.step)
    images = [
        replace(member, rows=moved_on(rows, numbers, split.clock))
        for member, numbers in zip(members, moved, strict=True)
    ]
    _carry_out(finetune, classifier, images, training, split.clock)
    return outputs(classifier, split.unseen)


def pair(known: Encoded, num_numbers: int, clock: Clock) -> Pairs:
    """Each domain with the one that follows it. Raises CycleError if there is one domain only."""
    starts = np.unique(known.windows)
    if len(starts) < 2:
        raise CycleError("A transformer learns from rows of two domains or more.")
    chosen = [spread(np.flatnonzero(known.windows == start), _MOST_ROWS) for start in starts]
    points = known.dense[:, :num_numbers]
    images = [transported(points[before], points[after]) for before, after in itertools.pairwise(chosen)]
    return Pairs(
        before=known.take(np.concatenate(chosen[:-1])),
        images=np.concatenate(images),
        after=known.take(np.concatenate(chosen[1:])),
        step=clock.window / clock.span,
    )


def transported(before: NDArray[np.float32], after: NDArray[np.float32]) -> NDArray[np.float32]:
    """Where the plan of least squared distance carries points `(n, p)` among others `(m, p)`; all weigh the same."""
    import ot

    weights = (np.full(len(points), 1 / len(points)) for points in (before, after))
    plan = ot.emd(*weights, ot.dist(before.astype(np.float64), after.astype(np.float64)), numItermax=10**7)
    return np.asarray(plan @ after / plan.sum(1, keepdims=True), np.float32)


def transform(transformer: Network, batch: Batch, num_numbers: int, step: float) -> Batch:
    """The images of a batch one step later."""
    timed = torch.cat([batch.dense, batch.u[..., None]], dim=-1)
    later = batch.u + step
    numbers = batch.dense[..., :num_numbers] + transformer(timed, batch.codes, later)
    return Batch(torch.cat([numbers, batch.dense[..., num_numbers:]], dim=-1), batch.codes, later, batch.targets)


def discriminator_loss(discriminator: Network, real: Batch, image: Batch) -> Float[Tensor, " E"]:
    """L_D of each member; images are held."""
    on_real = discriminator(real.dense, real.codes, real.u)[..., 0]
    on_image = discriminator(image.dense.detach(), image.codes, image.u)[..., 0]
    return nn.functional.softplus(-on_real).mean(1) + nn.functional.softplus(on_image).mean(1)


def transformer_loss(critics: Critics, image: Batch, goals: Float[Tensor, "E n p"]) -> Float[Tensor, " E"]:
    """L_G of each member, for images and where transport carries the same rows."""
    logits = critics.discriminator(image.dense, image.codes, image.u)[..., 0]
    apart = (image.dense[..., : goals.shape[-1]] - goals).square().sum(2).mean(1)
    classified = critics.loss(critics.classifier(image.dense, image.codes, image.u), image.targets).mean(1)
    return nn.functional.softplus(-logits).mean(1) + _NEARNESS * apart + _FAITHFULNESS * classified


def outputs_of(transformer: Network, rows: Encoded, num_numbers: int, step: float) -> NDArray[np.float32]:
    """The numbers `(E, n, p)` of the rows' images."""
    stock = DeviceRows.load([rows] * transformer.num_members, torch.device("cpu"), torch.float32)
    everything = torch.arange(len(rows.u)).expand(transformer.num_members, -1)
    with torch.inference_mode():
        image = transform(transformer, stock.batch(everything), num_numbers, step)
    return image.dense[..., :num_numbers].numpy()


def _transformer(split: Split, classifier: Network, pairs: Pairs, training: Training, seeds: Sequence[int]) -> Network:
    """G, after as many epochs against D as the recipe pre-trains for, one step each in turn."""
    num_dense, num_categories = split.known.dense.shape[1], split.known.codes.shape[1]
    num_numbers = pairs.images.shape[1]

    def drawn(purpose: int, num_inputs: int, num_outputs: int) -> CohortNetwork:
        shape = architecture(training, num_inputs, num_categories, num_outputs, is_timed=True)
        return CohortNetwork(shape, [split.vocabulary_sizes] * len(seeds), seeds_for(seeds, purpose))

    transformer = drawn(_TRANSFORMER, num_dense + 1, num_numbers)
    discriminator = drawn(_DISCRIMINATOR, num_dense, 1)
    critics = Critics(discriminator, classifier, cross_entropy if split.is_classification else gaussian)
    moves, tells = (
        torch.optim.Adam(network.parameters(), lr=training.finetune_rate, fused=True)
        for network in (transformer, discriminator)
    )
    before, after = (
        DeviceRows.load([rows] * len(seeds), torch.device("cpu"), torch.float32) for rows in (pairs.before, pairs.after)
    )
    goals = torch.from_numpy(pairs.images)
    size = training.rows_per_minibatch(len(goals))
    num_steps = steps_of(len(goals), training.pretrain_epochs, size)
    sources = minibatches(len(goals), num_steps, size, seeds_for(seeds, _BEFORE))
    reals = minibatches(len(pairs.after.u), num_steps, size, seeds_for(seeds, _AFTER))
    classifier.requires_grad_(False)
    for numbers, real in zip(sources, reals, strict=True):
        image = transform(transformer, before.batch(numbers), num_numbers, pairs.step)
        _descend(tells, discriminator_loss(discriminator, after.batch(real), image))
        _descend(moves, transformer_loss(critics, image, goals[numbers]))
    classifier.requires_grad_(True)
    if not all(parameter.isfinite().all() for parameter in transformer.parameters()):
        raise CycleError("The loss of the transformer is not finite.")
    return transformer


def _descend(optimiser: torch.optim.Optimizer, losses: Float[Tensor, " E"]) -> None:
    optimiser.zero_grad()
    torch.autograd.backward(losses.sum())
    optimiser.step()


def _carry_out(phase: Phase, network: Network, members: Sequence[Member], training: Training, clock: Clock) -> None:
    phases = (phase,) if phase.epochs else ()
    for _epoch in train(network, members, Plan(is_timed=True, phases=phases), training, clock):
        pass
