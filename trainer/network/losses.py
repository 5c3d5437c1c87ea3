"""The losses of a fit: the plain loss, the Gradient Interpolation loss around it, and the paper's two ablations of it.

The interpolated loss requires that the outputs at u follow from value and rate at u − δ, for the worst δ nearby; so
labels supervise ∂F/∂u. The paper's ablations require less: that ∂F/∂u be small, or that the outputs hold at u + δ.
All losses are per member, `(E,)`, and the caller sums them, so no member's gradient depends on the number of members.

Legend: ℓ loss of a row   F(x, u) the network's outputs   δ a shift of model time, one per member and minibatch `(E,)`
        λ = gi_weight
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from contracts.task import RegressionLoss
from trainer.network.layers import FEW_COLUMNS
from trainer.network.network import Network

# A standardised label's scale stays within e^±5, so neither a single row nor an extrapolated output makes it infinite.
LOG_SCALE_LIMIT = 5.0

RowLoss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Batch:
    """Rows of one step, one minibatch per member: dense `(E, n, d)`, codes `(E, n, q)`, u and targets `(E, n)`."""

    dense: Float[Tensor, "E n d"]
    codes: Int[Tensor, "E n q"]
    u: Float[Tensor, "E n"]
    targets: Tensor

    def first(self, num_rows: int) -> "Batch":
        """The first `num_rows` rows of each member's minibatch, or all if it has fewer."""
        if num_rows >= self.u.shape[1]:
            return self
        return Batch(*(column[:, :num_rows] for column in (self.dense, self.codes, self.u, self.targets)))


def cross_entropy(outputs: Float[Tensor, "E n K"], targets: Int[Tensor, "E n"]) -> Float[Tensor, "E n"]:
    """−log softmax(outputs)[target], in nats."""
    if outputs.shape[2] < FEW_COLUMNS:
        return nn.functional.cross_entropy(outputs.mT, targets, reduction="none")
    losses = nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
    return losses.view(targets.shape)


def cross_entropy_gradient(outputs: Float[Tensor, "E n K"], targets: Int[Tensor, "E n"]) -> Float[Tensor, "E n K"]:
    """Gradient of a row's cross entropy in its outputs: softmax(outputs), minus 1 at the target."""
    shares = outputs.mT.softmax(1).mT if outputs.shape[2] < FEW_COLUMNS else outputs.softmax(2)
    at_target = targets[..., None].long()
    return shares.scatter_add(2, at_target, -torch.ones_like(at_target, dtype=shares.dtype))


def log_scale(raw: Tensor) -> Tensor:
    """The log of a scale from its raw output, smoothly within ±5."""
    return LOG_SCALE_LIMIT * torch.tanh(raw / LOG_SCALE_LIMIT)


def gaussian(outputs: Float[Tensor, "E n 2"], targets: Float[Tensor, "E n"]) -> Float[Tensor, "E n"]:
    """−log N(target; mean, scale²) with outputs (mean, raw log-scale), both of the standardised label."""
    log_of_scale = log_scale(outputs[..., 1])
    errors = (targets - outputs[..., 0]) * torch.exp(-log_of_scale)
    return 0.5 * errors * errors + log_of_scale + 0.5 * math.log(2 * math.pi)


def gaussian_gradient(outputs: Float[Tensor, "E n 2"], targets: Float[Tensor, "E n"]) -> Float[Tensor, "E n 2"]:
    """Gradient of a row's Gaussian loss in its outputs: −e/scale and (1 − e²)·∂log-scale, e = (target − mean)/scale."""
    log_of_scale = log_scale(outputs[..., 1])
    inverse = torch.exp(-log_of_scale)
    errors = (targets - outputs[..., 0]) * inverse
    squash = 1 - (log_of_scale / LOG_SCALE_LIMIT).square()
    return torch.stack([-errors * inverse, (1 - errors * errors) * squash], dim=-1)


def absolute(outputs: Float[Tensor, "E n 2"], targets: Float[Tensor, "E n"]) -> Float[Tensor, "E n"]:
    """√2·|error| of the mean, plus −log of a Laplace density in the scale alone; outputs as of `gaussian`.

    With the error held, √2·|error|/scale + log-scale + log(2)/2 is least when the scale is the standard deviation of
    errors of that distribution. Only the error's sign drives the mean, so noisy rows count as much as others and a few
    far labels have little influence.
    """
    log_of_scale = log_scale(outputs[..., 1])
    errors = math.sqrt(2) * (targets - outputs[..., 0]).abs()
    return errors + errors.detach() * torch.exp(-log_of_scale) + log_of_scale + 0.5 * math.log(2)


def absolute_gradient(outputs: Float[Tensor, "E n 2"], targets: Float[Tensor, "E n"]) -> Float[Tensor, "E n 2"]:
    """Gradient of a row's absolute loss in its outputs: −√2·sign(error) and (1 − √2·|error|/scale)·∂log-scale."""
    log_of_scale = log_scale(outputs[..., 1])
    errors = math.sqrt(2) * (targets - outputs[..., 0])
    squash = 1 - (log_of_scale / LOG_SCALE_LIMIT).square()
    return torch.stack([-math.sqrt(2) * errors.sign(), (1 - errors.abs() * torch.exp(-log_of_scale)) * squash], dim=-1)


# ℓ′ of each loss: the gradient of a row's loss in its outputs `(E, n, K)`.
OUTPUT_GRADIENTS: dict[RowLoss, Callable[[Tensor, Tensor], Tensor]] = {
    cross_entropy: cross_entropy_gradient,
    gaussian: gaussian_gradient,
    absolute: absolute_gradient,
}
REGRESSION_LOSSES: dict[RegressionLoss, RowLoss] = {"gaussian": gaussian, "absolute": absolute}


def erm(network: Network, loss: RowLoss, batch: Batch) -> Float[Tensor, " E"]:
    """The plain loss, empirical risk minimisation: mean of ℓ(y, F(x, u)) over each member's rows."""
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
    """The plain loss plus λ times the loss at a time shifted by a given δ (equation 4 of the paper)."""
    return erm(network, loss, batch) + weight * perturbed(network, loss, batch, delta)


def grad_reg(network: Network, loss: RowLoss, batch: Batch, weight: float, window: float) -> Float[Tensor, " E"]:
    """The plain loss plus λ times the mean of ‖∂F/∂t‖² over each member's rows (equation 3 of the paper).

    t counts windows of `window` in model time, so λ means the same for every span: ∂F/∂t = window·∂F/∂u. All outputs
    count, including a regression's log-scale.
    """
    value, rate = network.dual(batch.dense, batch.codes, batch.u)
    slopes = (window * rate).square().sum(2).mean(1)
    return loss(value, batch.targets).mean(1) + weight * slopes
