"""A step of the GI loss as the paper's authors take it: nested autograd, class by class, as a yardstick.

∂F/∂t is computed one class after the other by a backward pass whose graph is kept, and the gradient in δ by another
backward pass through all of them. For more than two classes the last ∂F/∂t is held, so that the step trains less than
ours does; the yardstick does so too, which makes it cheaper. Written from the paper's description.

Legend as in `trainer.network.losses`
"""

from collections.abc import Callable

import torch
from torch import Tensor

from trainer.network.losses import Batch, cross_entropy
from trainer.network.network import CohortNetwork

# Above this many classes the last slope is held.
_MAX_TRAINED = 2


def nested_step(
    network: CohortNetwork, batch: Batch, *, maximum: float, num_steps: int, weight: float
) -> Callable[[], None]:
    """One step of training a single member, ready to be repeated; δ continues from the step before."""
    optimiser = torch.optim.AdamW(network.parameters(), fused=True)
    delta = torch.full((1,), maximum / 2, device=batch.u.device)

    def take() -> None:
        nonlocal delta
        for _ in range(num_steps):
            delta = delta.detach().requires_grad_()
            (slope,) = torch.autograd.grad(nested_interpolated(network, batch, delta).sum(), delta)
            delta = (delta + 0.1 * maximum * slope.sign()).clamp(-maximum, maximum)
        delta = delta.detach()
        is_held = network.architecture.num_outputs > _MAX_TRAINED
        plain = cross_entropy(network(batch.dense, batch.codes, batch.u), batch.targets).mean(1)
        losses = plain + weight * nested_interpolated(network, batch, delta, is_held=is_held)
        optimiser.zero_grad()
        torch.autograd.backward(losses.sum())
        optimiser.step()

    return take


def nested_interpolated(network: CohortNetwork, batch: Batch, delta: Tensor, *, is_held: bool = False) -> Tensor:
    """The interpolated loss `(E,)`, with ∂F/∂u of each class from a backward pass of its own."""
    u = batch.u - delta[:, None]
    if not u.requires_grad:
        u.requires_grad_()
    value = network(batch.dense, batch.codes, u)
    slopes = [torch.autograd.grad(column.sum(), u, create_graph=True)[0] for column in value.unbind(-1)]
    rate = torch.stack(slopes, dim=-1)
    return cross_entropy(value + delta[:, None, None] * (rate.detach() if is_held else rate), batch.targets).mean(1)
