"""The search for the worst δ: the shift of model time that a minibatch is trained against.

The ascent uses only the sign of ∂ℓ/∂δ. For GI's loss that is −δ·ℓ′·F″ at u − δ, since the other terms cancel, and for a
perturbed time ℓ′·F′ at u + δ: one forward pass with curvature, or with rate, and no backward pass through the network.

Legend: E members   ℓ, F, u, δ as in `trainer.network.losses`   δ_max in model time (`delta_max` of a recipe is in
windows)
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from contracts.task import DeltaMode
from trainer.network.losses import OUTPUT_GRADIENTS, Batch, RowLoss, interpolated, perturbed
from trainer.network.network import HasCurvature, Network

# A warm δ is redrawn if it is within this share of δ_max of 0, where −δ·ℓ′F″ vanishes, or of ±δ_max.
_STUCK = 0.05

# A function of δ `(E,)` with one value per member `(E,)`, which depends on the member's own δ only.
OfDelta = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class DeltaSearch:
    """The settings of the search. `maximum` in model time; `rate`, one ascent step, as a share of it."""

    mode: DeltaMode
    maximum: float
    steps: int
    rate: float


@dataclass(frozen=True)
class DeltaLoss:
    """The loss of each member as a function of δ, and its slope ∂/∂δ."""

    loss: OfDelta
    slope: OfDelta


def interpolation(network: Network, loss: RowLoss, batch: Batch) -> DeltaLoss:
    """GI's interpolated loss as a function of δ; without curvature, a network's slope comes from autograd."""

    def of(delta: Tensor) -> Tensor:
        return interpolated(network, loss, batch, delta)

    if not isinstance(network, HasCurvature):
        return DeltaLoss(of, lambda delta: _autograd(network, of, delta))
    along_time = network.along_time(batch.dense, batch.codes)

    def slope(delta: Tensor) -> Tensor:
        value, rate, curvature = along_time(batch.u - delta[:, None])
        assert rate is not None
        assert curvature is not None
        gradient = OUTPUT_GRADIENTS[loss](value + delta[:, None, None] * rate, batch.targets)
        return -delta * (gradient * curvature).sum(2).mean(1)

    return DeltaLoss(of, slope)


def perturbation(network: Network, loss: RowLoss, batch: Batch) -> DeltaLoss:
    """The loss at a time shifted by δ."""

    def slope(delta: Tensor) -> Tensor:
        value, rate = network.dual(batch.dense, batch.codes, batch.u + delta[:, None])
        return (OUTPUT_GRADIENTS[loss](value, batch.targets) * rate).sum(2).mean(1)

    return DeltaLoss(lambda delta: perturbed(network, loss, batch, delta), slope)


@torch.no_grad()
def worst_delta(
    loss_of: Callable[[], DeltaLoss],
    *,
    search: DeltaSearch,
    last: Float[Tensor, " E"],
    draw: Float[Tensor, " E"],
) -> Float[Tensor, " E"]:
    """A δ within ±δ_max whose loss on this minibatch is large, with the network's parameters held.

    `last` is the δ of the minibatch before (0 at first). `draw` is uniform in [−1, 1) and the only randomness.

    - random: the draw itself; the loss is not evaluated.
    - adversarial: `steps` steps of ascent from the draw.
    - warm: the same from `last`, or from the draw if `last` is stuck near 0 or at the bound.
    - grid: the worst of `steps` equally spaced points from δ_max down to −δ_max, for each member.
    """
    drawn = draw * search.maximum
    if search.mode == "random":
        return drawn
    if search.mode == "grid":
        return _worst_of_grid(loss_of().loss, search, like=draw)
    if search.mode == "adversarial":
        return _ascend(loss_of().slope, search, drawn)
    size = last.abs() / search.maximum
    is_stuck = (size < _STUCK) | (size > 1 - _STUCK)
    return _ascend(loss_of().slope, search, torch.where(is_stuck, drawn, last))


def _worst_of_grid(loss_of: OfDelta, search: DeltaSearch, like: Tensor) -> Tensor:
    points = torch.linspace(search.maximum, -search.maximum, search.steps, dtype=like.dtype, device=like.device)
    candidates = points[:, None].expand(-1, len(like))
    losses = torch.stack([loss_of(delta) for delta in candidates])
    return candidates.gather(0, losses.argmax(0, keepdim=True))[0]


def _ascend(slope_of: OfDelta, search: DeltaSearch, start: Tensor) -> Tensor:
    """Ascent by steps of equal length."""
    length, delta = search.rate * search.maximum, start
    for _ in range(search.steps):
        delta = (delta + length * slope_of(delta).sign()).clamp(-search.maximum, search.maximum)
    return delta


def _autograd(network: Network, loss_of: OfDelta, delta: Tensor) -> Tensor:
    """∂/∂δ of a loss by a backward pass. The gradient of the sum holds each member's own slope."""
    network.requires_grad_(False)
    try:
        with torch.enable_grad():
            delta = delta.detach().requires_grad_()
            (slope,) = torch.autograd.grad(loss_of(delta).sum(), delta)
    finally:
        network.requires_grad_(True)
    return slope
