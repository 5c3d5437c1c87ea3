"""What a fit minimises: the plain loss, the Gradient Interpolation loss around it, and the paper's two ablations of it.

The interpolated loss asks that the outputs at u follow from value and rate at u − δ, for the worst δ nearby, and so
supervises ∂F/∂u with labels. The paper's ablations ask for less: that ∂F/∂u be small, or that the outputs hold at
u + δ. Everything here is per member: losses leave as `(E,)` and the caller adds them up, so that no member's gradient
depends on how many others there are.

Legend: ℓ loss of a row   F(x, u) the network's outputs   δ a shift of model time, one per member and minibatch `(E,)`
        λ = gi_weight     δ_max in model time here (`delta_max` of a recipe is in windows)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from contracts.task import DeltaMode
from trainer.network import Network

# A standardised label's scale stays within e^±5: neither a single row nor an extrapolated output can make it infinite.
LOG_SCALE_LIMIT = 5.0
# A warm δ is drawn afresh within this share of δ_max from 0, where ∂ℓ/∂δ = −δ·ℓ′F″ vanishes, and from ±δ_max.
_STUCK = 0.05

RowLoss = Callable[[Tensor, Tensor], Tensor]
# What δ `(E,)` costs each member `(E,)`; a member's loss depends on its own δ only.
ShiftLoss = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Batch:
    """Rows of one step, one minibatch per member: dense `(E, n, d)`, codes `(E, n, q)`, u and targets `(E, n)`."""

    dense: Float[Tensor, "E n d"]
    codes: Int[Tensor, "E n q"]
    u: Float[Tensor, "E n"]
    targets: Tensor


@dataclass(frozen=True)
class Shifts:
    """How the worst δ is looked for. `maximum` in model time; `rate`, one ascent step, as a share of it."""

    mode: DeltaMode
    maximum: float
    steps: int
    rate: float


def cross_entropy(outputs: Float[Tensor, "E n K"], targets: Int[Tensor, "E n"]) -> Float[Tensor, "E n"]:
    """−log softmax(outputs)[target], in nats."""
    losses = nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
    return losses.view(targets.shape)


def log_scale(raw: Tensor) -> Tensor:
    """The log of a scale from its raw output, smoothly within ±5."""
    return LOG_SCALE_LIMIT * torch.tanh(raw / LOG_SCALE_LIMIT)


def gaussian(outputs: Float[Tensor, "E n 2"], targets: Float[Tensor, "E n"]) -> Float[Tensor, "E n"]:
    """−log N(target; mean, scale²) with outputs (mean, raw log-scale), both of the standardised label."""
    log_of_scale = log_scale(outputs[..., 1])
    errors = (targets - outputs[..., 0]) * torch.exp(-log_of_scale)
    return 0.5 * errors * errors + log_of_scale + 0.5 * math.log(2 * math.pi)


def erm(network: Network, loss: RowLoss, batch: Batch) -> Float[Tensor, " E"]:
    """Mean of ℓ(y, F(x, u)) over each member's rows."""
    return loss(network(batch.dense, batch.codes, batch.u), batch.targets).mean(1)


def interpolated(network: Network, loss: RowLoss, batch: Batch, delta: Float[Tensor, " E"]) -> Float[Tensor, " E"]:
    """Mean of ℓ(y, F(x, u − δ) + δ·∂F(x, u − δ)/∂u) over each member's rows."""
    value, rate = network.dual(batch.dense, batch.codes, batch.u - delta[:, None])
    return loss(value + delta[:, None, None] * rate, batch.targets).mean(1)


def gradient_interpolation(
    network: Network, loss: RowLoss, batch: Batch, delta: Float[Tensor, " E"], weight: float
) -> Float[Tensor, " E"]:
    """The GI loss for a given δ: the plain loss plus λ times the interpolated one (equation 1 of the paper)."""
    return erm(network, loss, batch) + weight * interpolated(network, loss, batch, delta)


def perturbed(network: Network, loss: RowLoss, batch: Batch, delta: Float[Tensor, " E"]) -> Float[Tensor, " E"]:
    """Mean of ℓ(y, F(x, u + δ)) over each member's rows."""
    return loss(network(batch.dense, batch.codes, batch.u + delta[:, None]), batch.targets).mean(1)


def time_perturb(
    network: Network, loss: RowLoss, batch: Batch, delta: Float[Tensor, " E"], weight: float
) -> Float[Tensor, " E"]:
    """The plain loss plus λ times the loss at a time that is off by a given δ (equation 4 of the paper)."""
    return erm(network, loss, batch) + weight * perturbed(network, loss, batch, delta)


def grad_reg(network: Network, loss: RowLoss, batch: Batch, weight: float, window: float) -> Float[Tensor, " E"]:
    """The plain loss plus λ times the mean of ‖∂F/∂t‖² over each member's rows (equation 3 of the paper).

    t counts windows, `window` in model time each, so that λ means the same for every span: ∂F/∂t = window·∂F/∂u. All
    outputs count, a regression's log-scale among them.
    """
    value, rate = network.dual(batch.dense, batch.codes, batch.u)
    slopes = (window * rate).square().sum(2).mean(1)
    return loss(value, batch.targets).mean(1) + weight * slopes


def worst_delta(
    network: Network,
    loss_of: ShiftLoss,
    *,
    shifts: Shifts,
    last: Float[Tensor, " E"],
    draw: Float[Tensor, " E"],
) -> Float[Tensor, " E"]:
    """The δ of this minibatch, within ±δ_max, whose loss is large; the network's parameters are held meanwhile.

    `last` is the δ of the minibatch before (0 at first), `draw` is uniform in [−1, 1): the only randomness.

    - random: the draw itself.
    - adversarial: `steps` steps of ascent from the draw.
    - warm: the same from `last`, or from the draw where `last` is stuck near 0 or at the bound.
    - grid: the worst of `steps` equally spaced points from δ_max down to −δ_max, for each member.
    """
    drawn = draw * shifts.maximum
    if shifts.mode == "random":
        return drawn
    if shifts.mode == "grid":
        return _worst_of_grid(loss_of, shifts, like=draw)
    if shifts.mode == "adversarial":
        return _ascend(network, loss_of, shifts, drawn)
    size = last.abs() / shifts.maximum
    is_stuck = (size < _STUCK) | (size > 1 - _STUCK)
    return _ascend(network, loss_of, shifts, torch.where(is_stuck, drawn, last))


def _worst_of_grid(loss_of: ShiftLoss, shifts: Shifts, like: Tensor) -> Tensor:
    points = torch.linspace(shifts.maximum, -shifts.maximum, shifts.steps, dtype=like.dtype, device=like.device)
    candidates = points[:, None].expand(-1, len(like))
    with torch.no_grad():
        losses = torch.stack([loss_of(delta) for delta in candidates])
    return candidates.gather(0, losses.argmax(0, keepdim=True))[0]


def _ascend(network: Network, loss_of: ShiftLoss, shifts: Shifts, start: Tensor) -> Tensor:
    """Steps of one length up the loss, with the gradient in δ alone."""
    length, delta = shifts.rate * shifts.maximum, start
    network.requires_grad_(False)
    try:
        for _ in range(shifts.steps):
            delta = delta.detach().requires_grad_()
            # A member's loss depends on its own δ only, so the gradient of the sum holds each member's own.
            (slope,) = torch.autograd.grad(loss_of(delta).sum(), delta)
            delta = (delta.detach() + length * slope.sign()).clamp(-shifts.maximum, shifts.maximum)
    finally:
        network.requires_grad_(True)
    return delta
