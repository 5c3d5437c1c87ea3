"""The networks for images and texts keep the promises of the cohort network: exact rates, and members on their own."""

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from benchmarks.paper.networks import BagNetwork, ConvNetwork
from contracts.task import Training
from trainer.network.losses import Batch, cross_entropy, gradient_interpolation
from trainer.network.network import Architecture, Network, architecture

# torch.func.jvp itself calls what torch deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

RECIPE = Training(
    width=6, num_layers=3, embedding=3, time_width=4, time_linear=1, trelu_width=3, calendar=(), num_trelu=None
)
SIDE, NUM_WORDS = 6, 5
Made = TypeVar("Made", bound=ConvNetwork | BagNetwork)
KINDS = ("conv", "bag")


def shape(kind: str, *, is_timed: bool = True, num_trelu: int | None = None) -> Architecture:
    recipe = RECIPE.model_copy(update={"num_trelu": num_trelu})
    sizes = (SIDE * SIDE, 0) if kind == "conv" else (2, NUM_WORDS)
    return architecture(recipe, *sizes, num_outputs=3, is_timed=is_timed)


def conv(seeds: Sequence[int] = (1, 2), **shapes: Any) -> ConvNetwork:
    return bent(ConvNetwork(shape("conv", **shapes), [()] * len(seeds), seeds, torch.float64))


def bag(seeds: Sequence[int] = (1, 2), vocabularies: Sequence[int] = (7, 9), **shapes: Any) -> BagNetwork:
    return bent(BagNetwork(shape("bag", **shapes), [(size,) for size in vocabularies], seeds, torch.float64))


def bent(network: Made) -> Made:
    """The same with gates that are far from the plain ReLU, so that every path of a rate matters."""
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "slope" in name or "threshold" in name:
                parameter.mul_(5)
    return network


def network(kind: str, **shapes: Any) -> ConvNetwork | BagNetwork:
    return conv(**shapes) if kind == "conv" else bag(**shapes)


def inputs(kind: str, num_members: int = 2, num_rows: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    width, num_codes = (SIDE * SIDE, 0) if kind == "conv" else (2, NUM_WORDS)
    dense = torch.randn(num_members, num_rows, width, generator=generator, dtype=torch.float64)
    codes = torch.randint(0, 7, (num_members, num_rows, num_codes), generator=generator)
    u = torch.rand(num_members, num_rows, generator=generator, dtype=torch.float64) - 1
    return dense, codes, u


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_trelu", [None, 0, 1, 2])
def test_the_dual_pass_gives_value_and_rate_of_forward_mode(kind: str, num_trelu: int | None) -> None:
    made, (dense, codes, u) = network(kind, num_trelu=num_trelu), inputs(kind)
    made.requires_grad_(False)  # forward mode through a bag of words knows no weights that learn
    value, rate = made.dual(dense, codes, u)
    expected = torch.func.jvp(lambda at: made(dense, codes, at), (u,), (torch.ones_like(u),))
    torch.testing.assert_close(value, expected[0], rtol=0, atol=1e-9)
    torch.testing.assert_close(rate, expected[1], rtol=0, atol=1e-9)
    assert rate.abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_each_member_computes_what_it_would_alone(kind: str) -> None:
    made, (dense, codes, u) = network(kind), inputs(kind)
    together = made.dual(dense, codes, u)
    for member, seed in enumerate((1, 2)):
        one = slice(member, member + 1)
        solo = conv([seed]) if kind == "conv" else bag([seed], [(7, 9)[member]])
        for alone in (solo, made.select([member])):
            for whole, part in zip(together, alone.dual(dense[one], codes[one], u[one]), strict=True):
                torch.testing.assert_close(part, whole[one], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_time_oblivious_network_has_no_rate_and_no_time(kind: str) -> None:
    made, (dense, codes, u) = network(kind, is_timed=False), inputs(kind)
    value, rate = made.dual(dense, codes, u)
    assert torch.equal(made(dense, codes, u + 1), value)
    assert not rate.any()
    assert not [name for name, _ in made.named_parameters() if name.startswith(("time", "activations"))]


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_the_gi_loss_is_that_of_finite_differences(kind: str) -> None:
    made, (dense, codes, u) = network(kind), inputs(kind)
    batch = Batch(dense, codes, u, torch.tensor([[0, 1, 2, 0, 1], [2, 2, 0, 1, 0]]))
    delta = torch.tensor([0.2, -0.1], dtype=torch.float64)

    def loss() -> Tensor:
        return gradient_interpolation(made, cross_entropy, batch, delta, weight=0.7).sum()

    parameters = list(made.parameters())
    gradients = torch.autograd.grad(loss(), parameters)
    generator, step = torch.Generator().manual_seed(1), 1e-6
    for parameter, gradient in zip(parameters, gradients, strict=True):
        for position in torch.randperm(parameter.numel(), generator=generator)[:4].tolist():
            flat = parameter.data.view(-1)
            before = flat[position].item()
            ends = []
            for moved in (before + step, before - step):
                flat[position] = moved
                ends.append(loss().item())
            flat[position] = before
            difference = (ends[0] - ends[1]) / (2 * step)
            assert difference == pytest.approx(gradient.reshape(-1)[position].item(), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_trelu", [None, 0, 1, 2])
def test_the_course_gives_value_rate_and_curvature(kind: str, num_trelu: int | None) -> None:
    made, (dense, codes, u) = network(kind, num_trelu=num_trelu), inputs(kind)
    value, rate, curvature = made.along_time(dense, codes)(u)
    made.requires_grad_(False)
    for got, expected in zip((value, rate), made.dual(dense, codes, u), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    bent = torch.func.jvp(lambda at: made.dual(dense, codes, at)[1], (u,), (torch.ones_like(u),))[1]
    torch.testing.assert_close(curvature, bent, rtol=0, atol=1e-9)


def test_the_time_dependent_layers_are_the_last() -> None:
    kinds = [type(layer).__name__ for layer in conv(num_trelu=2).activations]
    assert kinds == ["ReLU", "ChannelTReLU", "TReLU"]


def test_all_pixels_of_a_channel_share_their_slope_and_threshold() -> None:
    parameters = dict(conv().named_parameters())
    for gate in ("slope", "threshold"):
        assert [parameters[f"activations.{i}.{gate}.bias"].shape[1] for i in range(3)] == [16, 32, 6]


def test_the_papers_network_has_its_sizes() -> None:
    recipe = Training(width=256, num_layers=5, time_width=16, time_linear=4, calendar=())
    made = ConvNetwork(architecture(recipe, 784, 0, 10, is_timed=True), [()], [0])
    parameters = dict(made.named_parameters())
    kernels = [tuple(parameters[f"convolutions.{i}.weight"].shape[1:]) for i in range(4)]
    assert kernels == [(16, 1, 3, 3), (32, 16, 3, 3), (64, 32, 3, 3), (128, 64, 3, 3)]
    assert made.hidden.weight.shape[1:] == (128 * 2 * 2 + 16, 256)
    assert made.head.weight.shape[1:] == (256, 10)


def test_a_text_is_the_mean_of_its_words() -> None:
    made = bag([3], [7])
    assert made.embedding is not None
    codes = torch.tensor([[[2, 0, 5, 5, 0], [0, 0, 0, 0, 0]]])
    vectors = made.embedding.table[0]
    expected = torch.stack([(vectors[2] + 2 * vectors[5]) / 3, torch.zeros(3, dtype=torch.float64)])
    torch.testing.assert_close(made.embedding(codes)[0], expected, rtol=0, atol=1e-15)


def test_code_0_learns_nothing() -> None:
    made, (dense, codes, u) = bag(), inputs("bag")
    assert made.embedding is not None
    (gradient,) = torch.autograd.grad(made(dense, codes, u).square().sum(), [made.embedding.table])
    assert not gradient[:, 0].any()
    assert gradient[:, 1:].any()


def test_a_single_layer_is_refused() -> None:
    single = RECIPE.model_copy(update={"num_layers": 1})
    with pytest.raises(ValueError, match="at least 2"):
        ConvNetwork(architecture(single, 36, 0, 3, is_timed=True), [()], [0])


def test_numbers_that_are_no_square_are_refused() -> None:
    with pytest.raises(ValueError, match="no square image"):
        ConvNetwork(architecture(RECIPE, 35, 0, 3, is_timed=True), [()], [0])


@pytest.mark.parametrize("kind", KINDS)
def test_both_are_networks_that_a_fit_trains(kind: str) -> None:
    made = network(kind)
    assert isinstance(made, Network)
    assert made.num_members == 2
    assert all(math.isfinite(value) for value in made(*inputs(kind)).flatten().tolist())
