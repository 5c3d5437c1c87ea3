"""δ stays within its bounds, its slopes are exact, and the search ascends by them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from contracts.task import DeltaMode, Training
from trainer.network.delta_search import DeltaLoss, DeltaSearch, interpolation, perturbation, worst_delta
from trainer.network.losses import Batch, RowLoss, cross_entropy, gaussian, interpolated
from trainer.network.network import CohortNetwork, Network, architecture

RECIPE = Training(width=5, num_layers=3, embedding=2, time_width=4, time_linear=1, trelu_width=3, calendar=("week",))
MODES: tuple[DeltaMode, ...] = ("random", "adversarial", "warm", "grid")


def cohort(num_outputs: int = 3, num_trelu: int | None = 2) -> CohortNetwork:
    recipe = RECIPE.model_copy(update={"num_trelu": num_trelu})
    shape = architecture(recipe, num_dense=5, num_categories=1, num_outputs=num_outputs, is_timed=True)
    return CohortNetwork(shape, [(4,)] * 2, range(2), torch.float64)


def rows(num_outputs: int = 3, num_rows: int = 9, seed: int = 0, is_classified: bool = True) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    size = (2, num_rows)
    dense = torch.randn(*size, 5, generator=generator, dtype=torch.float64)
    return Batch(
        dense=dense,
        codes=torch.randint(0, 4, (*size, 1), generator=generator),
        u=torch.rand(*size, generator=generator, dtype=torch.float64) - 1,
        targets=torch.randint(0, num_outputs, size, generator=generator) if is_classified else dense[..., 0],
    )


def settings(mode: DeltaMode, steps: int = 3) -> DeltaSearch:
    return DeltaSearch(mode, maximum=0.2, steps=steps, rate=0.3)


def search(mode: DeltaMode, last: Tensor, draw: Tensor, steps: int = 3) -> Tensor:
    return worst_delta(interpolated_loss(cohort(), rows()), search=settings(mode, steps), last=last, draw=draw)


def interpolated_loss(network: Network, batch: Batch) -> Callable[[], DeltaLoss]:
    return lambda: interpolation(network, cross_entropy, batch)


def pair(first: float, second: float) -> Tensor:
    return torch.tensor([first, second], dtype=torch.float64)


class Uncurved:
    """A network that computes only value and rate."""

    def __init__(self, network: CohortNetwork) -> None:
        self.forward, self.dual, self.requires_grad_ = network.forward, network.dual, network.requires_grad_
        self.parameters, self.to, self.select = network.parameters, network.to, network.select
        self.num_members = network.num_members

    def __call__(self, dense: Tensor, codes: Tensor, u: Tensor) -> Tensor:
        return self.forward(dense, codes, u)


def by_autograd(loss: Callable[[Tensor], Tensor], delta: Tensor) -> Tensor:
    delta = delta.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(delta).sum(), delta)
    return slope


@pytest.mark.parametrize("num_trelu", [0, 1, 3])
@pytest.mark.parametrize("shift_loss", [interpolation, perturbation])
@pytest.mark.parametrize("loss", [cross_entropy, gaussian])
def test_slope_in_delta_is_that_of_autograd(
    loss: RowLoss, shift_loss: Callable[[Network, RowLoss, Batch], DeltaLoss], num_trelu: int
) -> None:
    is_classified = loss is cross_entropy
    network, batch = cohort(3 if is_classified else 2, num_trelu), rows(is_classified=is_classified)
    for delta in (pair(0.13, -0.07), pair(-0.2, 0.01)):
        shifted = shift_loss(network, loss, batch)
        expected = by_autograd(shifted.loss, delta)
        assert expected.abs().min() > 1e-7
        torch.testing.assert_close(shifted.slope(delta).detach(), expected, rtol=1e-9, atol=1e-12)


def test_a_network_without_curvature_has_the_same_slope() -> None:
    network, delta = cohort(), pair(0.13, -0.07)
    slopes = [interpolation(each, cross_entropy, rows()).slope(delta).detach() for each in (network, Uncurved(network))]
    torch.testing.assert_close(slopes[1], slopes[0], rtol=1e-9, atol=1e-12)
    assert all(parameter.grad is None and parameter.requires_grad for parameter in network.parameters())


def test_delta_is_looked_for_on_the_first_rows() -> None:
    batch = rows()
    few = batch.first(4)
    assert torch.equal(few.dense, batch.dense[:, :4])
    assert [column.shape[1] for column in (few.codes, few.u, few.targets)] == [4, 4, 4]
    assert batch.first(9) is batch
    draw = pair(0.4, -0.4)
    found, expected = (
        worst_delta(interpolated_loss(cohort(), each), search=settings("warm"), last=pair(0, 0), draw=draw)
        for each in (few, Batch(*(column[:, :4].clone() for column in vars(batch).values())))
    )
    assert torch.equal(found, expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_delta_stays_within_its_bound_in_every_mode(mode: DeltaMode, steps: int) -> None:
    for draw in (pair(-1, 0.99), pair(0.3, 0)):
        delta = search(mode, pair(0.19, -0.1), draw, steps)
        assert delta.shape == (2,)
        assert not delta.requires_grad
        assert delta.abs().max() <= 0.2


def test_random_delta_is_the_draw() -> None:
    assert torch.equal(search("random", pair(0, 0), pair(0.5, -1)), pair(0.1, -0.2))


def test_grid_takes_each_members_worst_point() -> None:
    network, batch, points = cohort(), rows(), torch.linspace(0.2, -0.2, 5, dtype=torch.float64)
    losses = torch.stack([interpolated(network, cross_entropy, batch, point.expand(2)) for point in points])
    assert torch.equal(search("grid", pair(0, 0), pair(0, 0), steps=5), points[losses.argmax(0)])


def test_ascent_raises_the_interpolated_loss() -> None:
    network, batch, small = cohort(), rows(), DeltaSearch("adversarial", maximum=0.2, steps=3, rate=0.05)
    draw = pair(0.4, -0.4)
    delta = worst_delta(interpolated_loss(network, batch), search=small, last=pair(0, 0), draw=draw)
    before, after = (interpolated(network, cross_entropy, batch, d) for d in (draw * 0.2, delta))
    assert (after > before).all()


def test_warm_goes_on_from_the_last_delta() -> None:
    last = pair(0.1, -0.05)
    warm, cold = search("warm", last, pair(0.9, 0.9)), search("adversarial", pair(0, 0), last / 0.2)
    torch.testing.assert_close(warm, cold)


@pytest.mark.parametrize("stuck", [0.0, 0.005, 0.2, -0.199])
def test_warm_leaves_zero_and_the_bound_by_a_fresh_draw(stuck: float) -> None:
    draw = pair(0.45, -0.6)
    assert torch.equal(search("warm", pair(stuck, stuck), draw), search("adversarial", pair(0, 0), draw))


def test_search_gives_parameters_no_gradient_and_leaves_them_trainable() -> None:
    network = cohort()
    worst_delta(interpolated_loss(network, rows()), search=settings("warm"), last=pair(0, 0), draw=pair(0.5, 0.5))
    assert all(parameter.grad is None and parameter.requires_grad for parameter in network.parameters())


def test_other_members_rows_do_not_move_a_members_delta() -> None:
    network, batch, other = cohort(), rows(), rows(seed=5)
    mixed = Batch(*(torch.stack([a[0], b[1]]) for a, b in zip(vars(batch).values(), vars(other).values(), strict=True)))
    deltas = [
        worst_delta(interpolated_loss(network, each), search=settings("warm"), last=pair(0.1, 0.1), draw=pair(0, 0))
        for each in (batch, mixed)
    ]
    assert deltas[0][0] == deltas[1][0]
