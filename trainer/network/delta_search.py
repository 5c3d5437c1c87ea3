"""The search for the worst δ, the shift of model time that a minibatch is trained against.

The ascent goes by the sign of ∂ℓ/∂δ alone. For GI's loss that is −δ·ℓ′·F″ at u − δ, where the values cancel, and for a
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

# A warm δ is drawn afresh within this share of δ_max from 0, where −δ·ℓ′F″ vanishes, and from ±δ_max.
_STUCK = 0.05

# From δ `(E,)` to something of each member `(E,)`; a member's depends on its own δ only.
OfDelta = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class DeltaSearch:
    """How the worst δ is looked for. `maximum` in model time; `rate`, one ascent step, as a share of it."""

    mode: DeltaMode
    maximum: float
    steps: int
    rate: float


@dataclass(frozen=True)
class DeltaLoss:
    """What δ costs each member, and the slope ∂/∂δ of that."""

    loss: OfDelta
    slope: OfDelta


def interpolation(network: Network, loss: RowLoss, batch: Batch) -> DeltaLoss:
    """GI's interpolated loss of a δ; the slope of a network without curvature comes by autograd."""

    def of(delta: Tensor) -> Tensor:
        return interpolated(network, loss, batch, delta)

    if not isinstance(network, HasCurvature):
        return DeltaLoss(of, lambda delta: _autograd(network, of, delta))
    along_time = network.along_time(batch.dense, batch.codes)

    def slope(delta: Tensor) -> Tensor:
        value, rate, curvature = along_time(batch.u - delta[:, None])
        assert rate is not None
        assert curvature is not None
        pull = OUTPUT_GRADIENTS[loss](value + delta[:, None, None] * rate, batch.targets)
        return -delta * (pull * curvature).sum(2).mean(1)

    return DeltaLoss(of, slope)


def perturbation(network: Network, loss: RowLoss, batch: Batch) -> DeltaLoss:
    """The loss at a time that is off by δ."""

    def slope(delta: Tensor) -> Tensor:
        value, rate = network.dual(batch.dense, batch.codes, batch.u + delta[:, None])
        return (OUTPUT_GRADIENTS[loss](value, batch.targets) * rate).sum(2).mean(1)

    return DeltaLoss(lambda delta: perturbed(network, loss, batch, delta), slope)


@torch.no_grad()
def worst_delta(
    loss_of: Callable[[], DeltaLoss],
    *,
    shifts: DeltaSearch,
    last: Float[Tensor, " E"],
    draw: Float[Tensor, " E"],
) -> Float[Tensor, " E"]:
    """The δ of this minibatch, within ±δ_max, whose loss is large; the network's parameters are held meanwhile.

    `last` is the δ of the minibatch before (0 at first), `draw` is uniform in [−1, 1): the only randomness.

    - random: the draw itself; nobody asks for a loss.
    - adversarial: `steps` steps of ascent from the draw.
    - warm: the same from `last`, or from the draw where `last` is stuck near 0 or at the bound.
    - grid: the worst of `steps` equally spaced points from δ_max down to −δ_max, for each member.
    """
    drawn = draw * shifts.maximum
    if shifts.mode == "random":
        return drawn
    if shifts.mode == "grid":
        return _worst_of_grid(loss_of().loss, shifts, like=draw)
    if shifts.mode == "adversarial":
        return _ascend(loss_of().slope, shifts, drawn)
    size = last.abs() / shifts.maximum
    is_stuck = (size < _STUCK) | (size > 1 - _STUCK)
    return _ascend(loss_of().slope, shifts, torch.where(is_stuck, drawn, last))


def _worst_of_grid(loss_of: OfDelta, shifts: DeltaSearch, like: Tensor) -> Tensor:
    points = torch.linspace(shifts.maximum, -shifts.maximum, shifts.steps, dtype=like.dtype, device=like.device)
    candidates = points[:, None].expand(-1, len(like))
    losses = torch.stack([loss_of(delta) for delta in candidates])
    return candidates.gather(0, losses.argmax(0, keepdim=True))[0]


def _ascend(slope_of: OfDelta, shifts: DeltaSearch, start: Tensor) -> Tensor:
    """Steps of one length up the loss."""
    length, delta = shifts.rate * shifts.maximum, start
    for _ in range(shifts.steps):
        delta = (delta + length * slope_of(delta).sign()).clamp(-shifts.maximum, shifts.maximum)
    return delta


def _autograd(network: Network, loss_of: OfDelta, delta: Tensor) -> Tensor:
    """∂/∂δ of a loss by a backward pass. The gradient of the sum holds each member's own."""
    network.requires_grad_(False)
    try:
        with torch.enable_grad():
            delta = delta.detach().requires_grad_()
            (slope,) = torch.autograd.grad(loss_of(delta).sum(), delta)
    finally:
        network.requires_grad_(True)
    return slope
