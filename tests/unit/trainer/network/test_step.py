"""A step's losses are one function of tensors, and δ is remembered from step to step."""

import pytest
import structlog
import torch
from torch import Tensor, nn

from contracts.clock import Clock
from contracts.task import Training
from trainer.methods.plans import Objective, Phase
from trainer.network.delta_search import DeltaSearch, interpolation, worst_delta
from trainer.network.losses import Batch, cross_entropy, erm, gradient_interpolation
from trainer.network.network import CohortNetwork, architecture
from trainer.network.step import Step, capture, objective, tensor_objective

RECIPE = Training(width=5, time_width=4, trelu_width=3, calendar=(), delta_rows=6, delta_rate=0.2, gi_weight=0.7)
CLOCK = Clock(window=1, offset=0, span=10)
OBJECTIVES: tuple[Objective, ...] = ("erm", "gi", "grad_reg", "time_perturb")


def phase(kind: Objective) -> Phase:
    return Phase("some", rows="all", budget="all", epochs=1, rate=1e-3, objective=kind)


def cohort() -> CohortNetwork:
    return CohortNetwork(architecture(RECIPE, 3, 0, 3, is_timed=True), [()] * 2, range(2), torch.float64)


def rows(seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return Batch(
        dense=torch.randn(2, 9, 3, generator=generator, dtype=torch.float64),
        codes=torch.zeros(2, 9, 0, dtype=torch.int64),
        u=torch.rand(2, 9, generator=generator, dtype=torch.float64) - 1,
        targets=torch.randint(0, 3, (2, 9), generator=generator),
    )


def pair(first: float, second: float) -> Tensor:
    return torch.tensor([first, second], dtype=torch.float64)


def columns(batch: Batch, draw: Tensor, last: Tensor) -> tuple[Tensor, ...]:
    return batch.dense, batch.codes, batch.u, batch.targets, draw, last


def test_plain_phases_and_a_weight_of_zero_have_the_plain_loss() -> None:
    network, expected = cohort(), erm(cohort(), cross_entropy, rows())
    without = RECIPE.model_copy(update={"gi_weight": 0})
    cases: list[tuple[Objective, Training]] = [("erm", RECIPE), ("gi", without)]
    for kind, training in cases:
        found, delta = objective(network, cross_entropy, phase(kind), training, CLOCK)(rows(), pair(0.4, -0.4))
        assert torch.equal(found, expected)
        assert torch.equal(delta, pair(0, 0))


def test_gi_looks_for_delta_on_few_rows_and_remembers_it() -> None:
    network, search = cohort(), DeltaSearch("warm", 0.2, RECIPE.delta_steps, RECIPE.delta_rate)
    losses_of, delta = objective(network, cross_entropy, phase("gi"), RECIPE, CLOCK), pair(0, 0)
    for seed, draw in enumerate((pair(0.4, -0.4), pair(0.9, 0.1), pair(-0.3, 0.3))):
        batch = rows(seed)
        few = batch.first(6)
        delta = worst_delta(lambda: interpolation(network, cross_entropy, few), search=search, last=delta, draw=draw)  # noqa: B023
        expected = gradient_interpolation(network, cross_entropy, batch, delta, 0.7)
        found, at = losses_of(batch, draw)
        assert torch.equal(found, expected)
        assert torch.equal(at, delta)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_a_step_as_a_module_gives_losses_gradients_and_delta(kind: Objective) -> None:
    network = cohort()
    function = tensor_objective(network, cross_entropy, phase(kind), RECIPE, CLOCK)
    given = columns(rows(), pair(0.4, -0.4), pair(0.1, 0.05))
    parameters = [*network.parameters()]
    plain, module = function(*given), Step(network, function)(*given)
    assert [*Step(network, function).parameters()] == parameters
    for mine, other in zip(plain, module, strict=True):
        assert torch.equal(mine, other)
    assert module[1].data_ptr() not in {column.data_ptr() for column in given if len(column)}
    gradients = [torch.autograd.grad(each[0].sum(), parameters) for each in (plain, module)]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_what_cannot_be_recorded_stays_as_it_is_and_is_told_of() -> None:
    network = cohort()
    function = tensor_objective(network, cross_entropy, phase("gi"), RECIPE, CLOCK)
    with structlog.testing.capture_logs() as logs:
        assert capture(network, function, columns(rows(), pair(0.4, -0.4), pair(0, 0))) is function
    assert [entry["event"] for entry in logs] == ["fit.not_recorded"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
@pytest.mark.parametrize("kind", OBJECTIVES)
def test_a_recorded_step_equals_the_plain_one(kind: Objective) -> None:
    network = cohort().cuda()
    function = tensor_objective(network, cross_entropy, phase(kind), RECIPE, CLOCK)
    parameters, example = [*network.parameters()], columns(rows(), pair(0.4, -0.4), pair(0.1, 0.05))
    captured = capture(network, function, tuple(column.cuda() for column in example))
    assert captured is not function
    for seed in (1, 2):
        given = [column.cuda() for column in columns(rows(seed), pair(0.2, -0.1), pair(0.1, 0.05))]
        plain, other = function(*given), captured(*given)
        torch.testing.assert_close(other, plain)
        for a, b in zip(*(torch.autograd.grad(each[0].sum(), parameters) for each in (other, plain)), strict=True):
            torch.testing.assert_close(a, b)


def test_only_networks_of_ours_are_recorded() -> None:
    class Other(nn.Module):
        pass

    function = tensor_objective(cohort(), cross_entropy, phase("erm"), RECIPE, CLOCK)
    with structlog.testing.capture_logs() as logs:
        assert capture(Other(), function, ()) is function  # type: ignore[arg-type]  # a network unlike ours
    assert logs == []
