"""The yardstick of a training step computes the loss that ours computes, and every ratio is measured."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.nested_autograd import nested_interpolated, nested_step
from benchmarks.training import MAXIMUM, cohort, measure, minibatch, products_alone, step, take_turns
from trainer.network.losses import cross_entropy, interpolated
from trainer.network.network import CohortNetwork

CPU = torch.device("cpu")
SHIFT = torch.tensor([0.07])


def gradients(network: CohortNetwork, losses: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(losses.sum(), list(network.parameters()), allow_unused=True))


@pytest.mark.parametrize("num_classes", [2, 5])
def test_nested_autograd_finds_our_loss_and_its_gradient(num_classes: int) -> None:
    network, batch = cohort(num_classes, 1, CPU), minibatch(num_classes, 16, 1, CPU)
    ours, theirs = interpolated(network, cross_entropy, batch, SHIFT), nested_interpolated(network, batch, SHIFT)
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(gradients(network, ours), gradients(network, theirs), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-6)


def test_a_nested_step_trains() -> None:
    network, batch = cohort(3, 1, CPU), minibatch(3, 16, 1, CPU)
    before = [parameter.detach().clone() for parameter in network.parameters()]
    nested_step(network, batch, maximum=MAXIMUM, num_steps=2, weight=0.5)()
    assert not any(torch.equal(old, new) for old, new in zip(before, network.parameters(), strict=True))


def test_turns_are_taken_by_all_alike() -> None:
    taken: list[str] = []
    take_turns([lambda: taken.append("ours"), lambda: taken.append("other")], CPU, num_rounds=2, seconds=0)
    assert taken[-4:] == ["ours", "other", "ours", "other"]


def test_the_products_of_a_step_are_those_of_its_layers() -> None:
    one = step("erm", 2, 64, device=CPU)
    with FlopCounterMode(display=False) as counter:
        one()
    # Forward: 16 and 128 inputs of hidden layers, their gates and the head; backward: as much for weights, and less
    # for inputs, since no slopes of data are computed.
    forward = 16 * 128 + 128 * 128 + 2 * (8 * 16 + 2 * 8 * 128) + 128 * 2
    assert 2 * 64 * 2 * forward < counter.get_total_flops() < 2 * 64 * 3 * forward
    assert products_alone(one, 1, 64, CPU) > 0


def test_every_ratio_of_a_step_is_measured() -> None:
    lines: list[str] = []
    figures = measure(CPU, 1, batches=(8,), classes=(2, 10), seconds=0, report=lines.append)
    assert [figure["name"] for figure in figures] == [
        "GI step / ERM step, eager, 2 classes, batch 8",
        "GI step / ERM step, eager, 10 classes, batch 8",
        "GI step, eager / nested autograd, 10 classes, batch 8",
        "cohort of 8 / one member, GI step, batch 16",
        "cohort of 8 / one member, GI step, batch 32",
        "cohort of 8 / one member, GI step, batch 8",
    ]
    assert len([line for line in lines if not line.startswith(" ")]) == len(figures)
    for figure in figures:
        assert figure["met"] == (figure["yardstick"] / figure["ours"] >= figure["commit"])
        assert "torch" in figure["hardware"]
