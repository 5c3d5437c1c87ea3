"""FTRL: the regularised leader of online learning, made optimistic, as the paper's appendix C takes it from its source.

As `ftpl`, with a strongly convex regulariser R in place of the random loss. What the learner plays in round T + 1
are the weights θ of a network of features only, here

    θ = argmin_θ  Σ_{i ≤ T} f_i(θ) + f_T(θ) + R(θ)        f_i(θ) = (1/n̄)·Σ_{rows of domain i} ℓ(y, F_θ(x))
                                                          R(θ) = ‖θ‖² / 2η

The second f_T is the guess g of the loss to come. A domain's loss is in units of n̄, the rows of a mean domain, so that
η means the same for small and large sets. All weights and biases count in R. The paper gives neither R nor η; of 1 to
1,000, an η of 100 was best on average over Elec2, 2-Moons and Shuttle at earlier origins. Adam minimises the sum
itself, with R among the gradients, by the epochs and rates of `baseline`; the recipe's own weight decay and averaging
have no part in it.

Legend: T known domains   N known rows   n̄ = N/T   θ weights   η = _REACH
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.paper.methods.draws import minibatches, seeds_for, steps_of
from benchmarks.paper.methods.rows import join, newest
from benchmarks.paper.splits import Split
from contracts.errors import CycleError
from contracts.task import Training
from trainer.network.losses import Batch, RowLoss, cross_entropy, erm, gaussian
from trainer.network.minibatches import DeviceRows
from trainer.network.network import Network
from trainer.network.training_loop import draw_network, outputs

_REACH = 100.0


def ftrl_method(split: Split, training: Training, seeds: Sequence[int]) -> NDArray[np.float32]:
    """Minimise the sum for every seed, each from its own draw. Raises CycleError if a loss is not finite."""
    rows = join([split.known, newest(split.known)])
    mean_rows = len(split.known.u) / len(np.unique(split.known.windows))
    network = draw_network(split.members(seeds), training, False, torch.float32, split.build)
    stock = DeviceRows.load([rows] * len(seeds), torch.device("cpu"), torch.float32)
    loss = cross_entropy if split.is_classification else gaussian
    batch_size = training.rows_per_minibatch(len(rows.u))
    stretches = (
        (training.pretrain_epochs, len(rows.u), training.pretrain_rate),
        (training.finetune_epochs * training.finetune_windows, round(mean_rows), training.finetune_rate),
    )
    for number, (epochs, num_rows, rate) in enumerate(stretches):
        optimiser = torch.optim.Adam(network.parameters(), lr=rate, fused=True)
        num_steps = steps_of(min(num_rows, training.rows_per_epoch), epochs, batch_size)
        for numbers in minibatches(len(rows.u), num_steps, batch_size, seeds_for(seeds, number)):
            losses = leader_loss(network, loss, stock.batch(numbers), mean_rows / len(rows.u))
            optimiser.zero_grad()
            torch.autograd.backward(losses.sum())
            optimiser.step()
        if not all(parameter.isfinite().all() for parameter in network.parameters()):
            raise CycleError("FTRL's loss is not finite")
    return outputs(network, split.unseen)


def leader_loss(network: Network, loss: RowLoss, batch: Batch, share: float) -> Float[Tensor, " E"]:
    """The sum of each member, per row that is summed over, estimated by a batch; `share` is n̄ by all such rows."""
    return erm(network, loss, batch) + share * regulariser(network)


def regulariser(network: Network) -> Float[Tensor, " E"]:
    """R(θ) = ‖θ‖² / 2η of each member `(E,)`."""
    squares = [parameter.square().flatten(1).sum(1) for parameter in network.parameters()]
    return torch.stack(squares).sum(0) / (2 * _REACH)
