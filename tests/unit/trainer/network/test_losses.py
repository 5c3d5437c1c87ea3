"""The losses are their formulas, and GI's gradient is exact."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from contracts.task import Training
from trainer.network.losses import (
    OUTPUT_GRADIENTS,
    Batch,
    RowLoss,
    absolute,
    cross_entropy,
    erm,
    gaussian,
    grad_reg,
    gradient_interpolation,
    interpolated,
    log_scale,
    time_perturb,
)
from trainer.network.network import CohortNetwork, architecture

RECIPE = Training(width=5, num_layers=2, embedding=2, time_width=4, time_linear=1, trelu_width=3, calendar=("week",))
SHIFT = torch.tensor([0.13, -0.07], dtype=torch.float64)

# Losses (E,) of a cohort on rows for a weight λ, with δ fixed.
Objective = Callable[[CohortNetwork, RowLoss, Batch, float], Tensor]
OBJECTIVES: list[Objective] = [
    lambda network, loss, batch, weight: gradient_interpolation(network, loss, batch, SHIFT, weight),
    lambda network, loss, batch, weight: time_perturb(network, loss, batch, SHIFT, weight),
    lambda network, loss, batch, weight: grad_reg(network, loss, batch, weight, window=0.3),
]


def cohort(num_outputs: int = 3, num_members: int = 2) -> CohortNetwork:
    shape = architecture(RECIPE, num_dense=5, num_categories=1, num_outputs=num_outputs, is_timed=True)
    return CohortNetwork(shape, [(4,)] * num_members, range(num_members), torch.float64)


def rows(num_outputs: int = 3, num_members: int = 2, num_rows: int = 9, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    size = (num_members, num_rows)
    return Batch(
        dense=torch.randn(*size, 5, generator=generator, dtype=torch.float64),
        codes=torch.randint(0, 4, (*size, 1), generator=generator),
        u=torch.rand(*size, generator=generator, dtype=torch.float64) - 1,
        targets=torch.randint(0, num_outputs, size, generator=generator),
    )


def pair(first: float, second: float) -> Tensor:
    return torch.tensor([first, second], dtype=torch.float64)


def sine() -> CohortNetwork:
    """F(x, u) = (sin u, 0): one sine, a hidden unit that is always on, and a head that subtracts its bias again."""
    recipe = Training(width=1, num_layers=1, num_trelu=0, time_width=1, time_linear=0, calendar=())
    network = CohortNetwork(architecture(recipe, 1, 0, 2, is_timed=True), [()], [0], torch.float64)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        assert network.time is not None
        network.time.frequency.fill_(1)
        network.hidden.get_parameter("0.weight")[0, 1] = 1
        network.hidden.get_parameter("0.bias").fill_(2)
        network.head.weight[0, 0, 0] = 1
        network.head.bias[0, 0] = -2
    return network


def test_cross_entropy_by_hand() -> None:
    outputs = torch.tensor([[[0.0, math.log(3.0)], [0.0, 0.0]]])
    expected = torch.tensor([[-math.log(0.75), math.log(2.0)]])
    torch.testing.assert_close(cross_entropy(outputs, torch.tensor([[1, 0]])), expected)


def test_gaussian_by_hand() -> None:
    outputs = torch.tensor([[[1.0, 5 * math.atanh(math.log(2.0) / 5)]]])
    expected = 0.5 * 1.5**2 + math.log(2.0) + 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(gaussian(outputs, torch.tensor([[4.0]])), torch.tensor([[expected]]))


def test_absolute_loss_by_hand() -> None:
    outputs = torch.tensor([[[1.0, 5 * math.atanh(math.log(2.0) / 5)]]])
    expected = math.sqrt(2) * 3 + math.sqrt(2) * 1.5 + math.log(2.0) + 0.5 * math.log(2.0)
    torch.testing.assert_close(absolute(outputs, torch.tensor([[4.0]])), torch.tensor([[expected]]))


def test_an_absolute_loss_pulls_every_mean_as_hard_and_the_scale_to_the_deviation() -> None:
    """Errors of mean size s/√2, as of a Laplace density with deviation s, leave the scale unchanged."""
    errors = 2 * torch.tensor([[0.5, -1.5, 1.0, -1.0]], dtype=torch.float64) / math.sqrt(2)
    raw = torch.tensor([0.0, 5 * math.atanh(math.log(2.0) / 5)], dtype=torch.float64)
    outputs = raw.expand(1, 4, 2).clone().requires_grad_()
    torch.autograd.backward(absolute(outputs, errors).sum())
    assert outputs.grad is not None
    torch.testing.assert_close(outputs.grad[..., 0], -math.sqrt(2) * errors.sign())
    assert float(outputs.grad[..., 1].sum()) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("num_outputs", [2, 3, 20])
def test_pulls_are_the_gradients_of_the_losses(num_outputs: int) -> None:
    generator = torch.Generator().manual_seed(0)
    outputs = 2 * torch.randn(2, 9, num_outputs, generator=generator, dtype=torch.float64)
    targets: dict[RowLoss, Tensor] = {
        cross_entropy: torch.randint(0, num_outputs, (2, 9), generator=generator),
        gaussian: torch.randn(2, 9, generator=generator, dtype=torch.float64),
        absolute: torch.randn(2, 9, generator=generator, dtype=torch.float64),
    }
    for loss, pull in OUTPUT_GRADIENTS.items():
        free = outputs[..., : None if loss is cross_entropy else 2].clone().requires_grad_()
        (expected,) = torch.autograd.grad(loss(free, targets[loss]).sum(), free)
        torch.testing.assert_close(pull(free.detach(), targets[loss]), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("loss", [gaussian, absolute])
def test_a_loss_stays_finite_whatever_the_raw_scale(loss: RowLoss) -> None:
    outputs = torch.tensor([[[0.0, -1e6], [0.0, 1e6]]], requires_grad=True)
    losses = loss(outputs, torch.tensor([[3.0, 3.0]]))
    torch.autograd.backward(losses.sum())
    assert losses.isfinite().all()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()


def test_log_scale_is_squashed_within_five() -> None:
    raw = torch.tensor([0.0, 5.0, 1e6])
    torch.testing.assert_close(log_scale(raw), torch.tensor([0.0, 5 * math.tanh(1.0), 5.0]))


def test_gi_loss_by_hand() -> None:
    """y = 0.5 at u = −0.4 with δ = 0.3: compare F(−0.4) = sin(−0.4) with sin(−0.7) + 0.3·cos(−0.7)."""
    plain = squared_loss(0.5, math.sin(-0.4))
    bent = squared_loss(0.5, math.sin(-0.7) + 0.3 * math.cos(-0.7))
    delta = torch.tensor([0.3], dtype=torch.float64)
    found = gradient_interpolation(sine(), gaussian, moment(-0.4, 0.5), delta, 2.0)
    torch.testing.assert_close(found, torch.tensor([plain + 2 * bent], dtype=torch.float64))


def moment(u: float, target: float) -> Batch:
    """One row of one member, with uninformative features."""
    times, targets = (torch.tensor([[number]], dtype=torch.float64) for number in (u, target))
    return Batch(torch.zeros_like(times)[..., None], torch.zeros(1, 1, 0, dtype=torch.int64), times, targets)


def squared_loss(target: float, output: float) -> float:
    """−log N(target; output, 1)."""
    return 0.5 * (target - output) ** 2 + 0.5 * math.log(2 * math.pi)


def test_grad_reg_by_hand() -> None:
    """The slope of F = sin u at u = −0.4 per window of 0.25 is 0.25·cos(−0.4); the log-scale has slope 0."""
    found = grad_reg(sine(), gaussian, moment(-0.4, 0.5), weight=2.0, window=0.25)
    expected = squared_loss(0.5, math.sin(-0.4)) + 2 * (0.25 * math.cos(-0.4)) ** 2
    torch.testing.assert_close(found, torch.tensor([expected], dtype=torch.float64))


def test_time_perturb_by_hand() -> None:
    """y = 0.5 at u = −0.4 with δ = 0.3: compare F(−0.4) = sin(−0.4) with F(−0.1) = sin(−0.1)."""
    delta = torch.tensor([0.3], dtype=torch.float64)
    found = time_perturb(sine(), gaussian, moment(-0.4, 0.5), delta, weight=2.0)
    expected = squared_loss(0.5, math.sin(-0.4)) + 2 * squared_loss(0.5, math.sin(-0.1))
    torch.testing.assert_close(found, torch.tensor([expected], dtype=torch.float64))


def test_interpolation_without_shift_is_the_plain_loss() -> None:
    network, batch = cohort(), rows()
    torch.testing.assert_close(
        interpolated(network, cross_entropy, batch, pair(0, 0)), erm(network, cross_entropy, batch)
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_weight_zero_is_erm_bit_for_bit(objective: Objective) -> None:
    def results(objective: Callable[[CohortNetwork], Tensor]) -> list[Tensor]:
        network = cohort()
        losses = objective(network)
        torch.autograd.backward(losses.sum())
        return [losses.detach(), *(p.grad for p in network.parameters() if p.grad is not None)]

    plain = results(lambda network: erm(network, cross_entropy, rows()))
    other = results(lambda network: objective(network, cross_entropy, rows(), 0.0))
    assert all(torch.equal(a, b) for a, b in zip(plain, other, strict=True))


def assert_gradient_is_exact(objective: Objective, loss: RowLoss, batch: Batch, num_outputs: int) -> None:
    """Central differences of every parameter with δ fixed; all members at once, because their losses are summed."""
    network, step = cohort(num_outputs), 1e-6

    def losses() -> Tensor:
        return objective(network, loss, batch, 0.7)

    torch.autograd.backward(losses().sum())
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            assert parameter.grad is not None, name
            flat, found = (tensor.view(network.num_members, -1) for tensor in (parameter, parameter.grad))
            for i in range(flat.shape[1]):
                values = flat[:, i].clone()
                flat[:, i] = values + step
                above = losses()
                flat[:, i] = values - step
                below = losses()
                flat[:, i] = values
                assert float((found[:, i] - (above - below) / (2 * step)).abs().max()) < 1e-7, f"{name}[:, {i}]"


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_gradient_of_every_parameter_equals_a_finite_difference_for_three_classes(objective: Objective) -> None:
    assert_gradient_is_exact(objective, cross_entropy, rows(), num_outputs=3)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_gradient_of_every_parameter_equals_a_finite_difference_for_regression(objective: Objective) -> None:
    batch = replace(rows(), targets=rows().dense[..., 0])
    assert_gradient_is_exact(objective, gaussian, batch, num_outputs=2)


def test_gi_trains_the_rate() -> None:
    """The gradient flows through ∂F/∂u: it differs from that of the same loss with the rate held."""
    batch, delta = rows(), pair(0.1, 0.1)

    def gradient(objective: Callable[[CohortNetwork], Tensor]) -> Tensor:
        network = cohort()
        torch.autograd.backward(objective(network).sum())
        assert network.head.weight.grad is not None
        return network.head.weight.grad

    def with_rate_held(network: CohortNetwork) -> Tensor:
        value, rate = network.dual(batch.dense, batch.codes, batch.u - delta[:, None])
        return cross_entropy(value + delta[:, None, None] * rate.detach(), batch.targets).mean(1)

    ours = gradient(lambda network: interpolated(network, cross_entropy, batch, delta))
    assert (ours - gradient(with_rate_held)).abs().max() > 1e-4
