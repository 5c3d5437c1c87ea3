"""The norms of Rot-MNIST's second network: batch norms per member, whose statistics time does not move."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.paper.norms import Norm, NormedConvNetwork
from contracts.clock import Clock
from tests.unit.benchmarks.paper.test_networks import RECIPE, SIDE, bent, inputs, shape
from trainer.data.encoder import Encoded
from trainer.methods.plans import PLANS
from trainer.network.layers import Dual
from trainer.network.training_loop import Member, train

# torch.func.jvp itself calls what torch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

SEEDS = (1, 2)


def normed(seeds: tuple[int, ...] = SEEDS) -> NormedConvNetwork:
    return bent(NormedConvNetwork(shape("conv"), [()] * len(seeds), seeds, torch.float64))


def images(seed: int, num_members: int = 2, num_channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 + 3 * torch.randn(5, num_members * num_channels, 4, 4, generator=generator, dtype=torch.float64)


def drawn(norm: Norm) -> Norm:
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.uniform_(0.5, 2.0, generator=generator)
    return norm


def test_a_norm_is_the_batch_norm_of_each_member() -> None:
    ours = drawn(Norm(2, 3).double())
    theirs = [nn.BatchNorm2d(3).double() for _ in SEEDS]
    for member, norm in enumerate(theirs):
        norm.load_state_dict(
            {
                "weight": ours.scale[member],
                "bias": ours.shift[member],
                "running_mean": ours.mean[member],
                "running_var": ours.variance[member],
                "num_batches_tracked": torch.tensor(0),
            }
        )
    for seed in range(3):  # what it remembers moves from minibatch to minibatch
        x = images(seed)
        expected = torch.cat([norm(part) for norm, part in zip(theirs, x.tensor_split(2, dim=1), strict=True)], dim=1)
        torch.testing.assert_close(ours(Dual(x, None)).value, expected, rtol=0, atol=1e-12)
    x = images(9)
    with torch.no_grad():
        expected = torch.cat(
            [norm.eval()(part) for norm, part in zip(theirs, x.tensor_split(2, dim=1), strict=True)], dim=1
        )
        torch.testing.assert_close(ours(Dual(x, None)).value, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("is_fitting", [True, False])
def test_a_rate_is_scaled_as_values_are_with_statistics_held(is_fitting: bool) -> None:
    norm, x, moved = drawn(Norm(2, 3).double()), images(0), images(1)
    spread = x.var((0, 2, 3), correction=0) if is_fitting else norm.variance.flatten().clone()
    factor = (norm.scale.flatten() / (spread + 1e-5).sqrt())[:, None, None]
    with torch.set_grad_enabled(is_fitting):
        _, rate, curvature = norm(Dual(x, moved, 2 * moved))
    torch.testing.assert_close(rate, moved * factor, rtol=0, atol=1e-12)
    torch.testing.assert_close(curvature, 2 * moved * factor, rtol=0, atol=1e-12)


def test_the_dual_pass_gives_value_and_rate_of_forward_mode() -> None:
    made, (dense, codes, u) = normed(), inputs("conv")
    made(dense, codes, u)  # so that the statistics are not those of the start
    with torch.no_grad():
        value, rate = made.dual(dense, codes, u)
        expected = torch.func.jvp(lambda at: made(dense, codes, at), (u,), (torch.ones_like(u),))
    torch.testing.assert_close(value, expected[0], rtol=0, atol=1e-9)
    torch.testing.assert_close(rate, expected[1], rtol=0, atol=1e-9)
    assert rate.abs().max() > 1e-3


def test_each_member_computes_what_it_would_alone() -> None:
    (dense, codes, u), made = inputs("conv"), normed()
    together = made.dual(dense, codes, u)
    for member, seed in enumerate(SEEDS):
        one = slice(member, member + 1)
        alone = normed((seed,))
        for whole, part in zip(together, alone.dual(dense[one], codes[one], u[one]), strict=True):
            torch.testing.assert_close(part, whole[one], rtol=0, atol=1e-12)
        with torch.no_grad():  # and remembers what it would
            whole, part = (
                network(*columns)
                for network, columns in ((made, (dense, codes, u)), (alone, (dense[one], codes[one], u[one])))
            )
            torch.testing.assert_close(part, whole[one], rtol=0, atol=1e-12)
            selected = made.select([member])(dense[one], codes[one], u[one])
            torch.testing.assert_close(selected, whole[one], rtol=0, atol=1e-12)


def test_a_fit_trains_scales_and_shifts_and_statistics_follow_its_minibatches() -> None:
    num_rows = 20
    n = np.arange(num_rows)
    pixels = np.random.default_rng(0).normal(3, 2, (num_rows, SIDE**2)).astype(np.float32)
    rows = Encoded(pixels, np.zeros((num_rows, 0), np.int64), (n / 20 - 1).astype(np.float32), n % 3, n - n % 5)
    training = RECIPE.model_copy(update={"batch_size": 8, "pretrain_epochs": 1, "finetune_epochs": 1})
    members, made = [Member(rows, (), 3, seed) for seed in SEEDS], normed()
    before = {name: parameter.detach().clone() for name, parameter in made.named_parameters()}
    clock = Clock(window=5, offset=0, span=20)
    assert all(
        math.isfinite(report.mean_loss)
        for report in train(made, members, PLANS[training.method](training), training, clock)
    )
    moved = {name for name, parameter in made.named_parameters() if not torch.equal(parameter, before[name])}
    assert moved == set(before)


def test_what_a_norm_remembers_is_kept_with_the_parameters_and_learned_by_nobody() -> None:
    names = {
        name: parameter.requires_grad for name, parameter in normed().named_parameters() if "convolutions.0" in name
    }
    assert names == {
        "convolutions.0.0.weight": True,
        "convolutions.0.0.bias": True,
        "convolutions.0.1.scale": True,
        "convolutions.0.1.shift": True,
        "convolutions.0.1.mean": False,
        "convolutions.0.1.variance": False,
    }
