"""CIDA: an encoder that sees time makes features which do not reveal it, and one predictor reads them for all times.

The paper's definition (appendix A.2): three networks, an encoder E(x, u), a predictor P of the target and a
discriminator D of the time, both given E's features z = E(x, u) alone. With s the standardised u, they play

    D:     min  L_d = mean (D(z) − s)²                    P, E:     min  mean ℓ(y, P(z)) − λ·L_d

in turn, a step each. At the end of the game z says no more about the time than its mean does. Regression has the
Gaussian loss of our own networks in place of the cross-entropy. The original also shows D the future's inputs. The
paper assumes that there are none, so here all three see known rows only, and what E learned of time carries it to the
future's u.

E is the set's own network with plain ReLUs, time among its inputs and the recipe's width of features; P has one hidden
layer and D two, of that width. All epochs of the recipe are on all known rows, first at the rate of pre-training, then
at that of fine-tuning.

Legend: E members   n rows   z features `(E, n, width)`   λ = _ERASURE
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.paper.methods.draws import minibatches, seeds_for, steps_of
from benchmarks.paper.splits import Split
from contracts.errors import CycleError
from contracts.task import Training
from trainer.network.losses import Batch, RowLoss, cross_entropy, gaussian
from trainer.network.minibatches import DeviceRows
from trainer.network.network import CohortNetwork, Network, architecture
from trainer.network.training_loop import outputs

_ERASURE = 0.5
_ENCODER, _PREDICTOR, _DISCRIMINATOR, _FIRST, _THEN = range(5)


@dataclass(frozen=True)
class Game:
    """The players of every member, the loss of a row, and the constants that standardise u to s."""

    encoder: Network
    predictor: Network
    discriminator: Network
    loss: RowLoss
    u_mean: float
    u_scale: float

    def features(self, batch: Batch) -> Float[Tensor, "E n z"]:
        """z of each row."""
        return self.encoder(batch.dense, batch.codes, batch.u)

    def discriminator_loss(self, z: Float[Tensor, "E n z"], u: Float[Tensor, "E n"]) -> Float[Tensor, " E"]:
        """L_d of each member."""
        told = _read(self.discriminator, z)[..., 0]
        return (told - (u - self.u_mean) / self.u_scale).square().mean(1)

    def encoder_loss(self, z: Float[Tensor, "E n z"], batch: Batch) -> Float[Tensor, " E"]:
        """What predictor and encoder minimise, of each member."""
        predicted = self.loss(_read(self.predictor, z), batch.targets).mean(1)
        return predicted - _ERASURE * self.discriminator_loss(z, batch.u)


def cida_method(split: Split, training: Training, seeds: Sequence[int]) -> NDArray[np.float32]:
    """Play the game on the known rows, then predict from the unseen rows' features.

    Raises CycleError if the game does not converge.
    """
    game = draw_game(split, training, seeds)
    for purpose, rate, epochs in (
        (_FIRST, training.pretrain_rate, training.pretrain_epochs),
        (_THEN, training.finetune_rate, training.finetune_epochs),
    ):
        play(game, _batches(split, training, seeds_for(seeds, purpose), epochs), rate, training.weight_decay)
    z = torch.from_numpy(outputs(game.encoder, split.unseen))
    with torch.inference_mode():
        answers = _read(game.predictor, z).numpy()
    if not np.isfinite(answers).all():
        raise CycleError("CIDA did not converge: its answers are not finite.")
    return answers


def draw_game(split: Split, training: Training, seeds: Sequence[int]) -> Game:
    """Untrained players; each member's from its own seed."""
    known, width = split.known, training.width
    sizes = [split.vocabulary_sizes] * len(seeds)
    plain = training.model_copy(update={"num_trelu": 0})
    shape = architecture(plain, known.dense.shape[1], known.codes.shape[1], width, is_timed=True)

    def reader(purpose: int, num_layers: int, num_outputs: int) -> Network:
        recipe = plain.model_copy(update={"num_layers": num_layers, "calendar": ()})
        read = architecture(recipe, width, 0, num_outputs, is_timed=False)
        return CohortNetwork(read, [()] * len(seeds), seeds_for(seeds, purpose))

    return Game(
        encoder=split.build(shape, sizes, seeds_for(seeds, _ENCODER), torch.float32),
        predictor=reader(_PREDICTOR, 1, split.num_outputs),
        discriminator=reader(_DISCRIMINATOR, 2, 1),
        loss=cross_entropy if split.is_classification else gaussian,
        u_mean=float(known.u.mean()),
        u_scale=float(known.u.std()) or 1.0,
    )


def play(game: Game, batches: Iterator[Batch], rate: float, weight_decay: float) -> None:
    """Take a step of the discriminator and one of the others on each batch."""
    tells, erases = (
        torch.optim.AdamW(list(parameters), lr=rate, weight_decay=weight_decay, fused=True)
        for parameters in (
            game.discriminator.parameters(),
            itertools.chain(game.encoder.parameters(), game.predictor.parameters()),
        )
    )
    for batch in batches:
        z = game.features(batch)
        _descend(tells, game.discriminator_loss(z.detach(), batch.u))
        _descend(erases, game.encoder_loss(z, batch))


def _batches(split: Split, training: Training, seeds: Sequence[int], epochs: int) -> Iterator[Batch]:
    """Minibatches of reshuffled passes over the known rows."""
    stock = DeviceRows.load([split.known] * len(seeds), torch.device("cpu"), torch.float32)
    num_rows = len(split.known.u)
    batch_size = training.rows_per_minibatch(num_rows)
    num_steps = steps_of(min(num_rows, training.rows_per_epoch), epochs, batch_size)
    for numbers in minibatches(num_rows, num_steps, batch_size, seeds):
        yield stock.batch(numbers)


def _read(network: Network, z: Float[Tensor, "E n z"]) -> Float[Tensor, "E n K"]:
    """A reader's outputs for features; it knows no categories and no time."""
    return network(z, torch.zeros(*z.shape[:2], 0, dtype=torch.int64), z[..., 0])


def _descend(optimiser: torch.optim.Optimizer, losses: Float[Tensor, " E"]) -> None:
    optimiser.zero_grad()
    torch.autograd.backward(losses.sum())
    optimiser.step()
